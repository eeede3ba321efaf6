"""`voxserve plan`: roles and splits for one or several GPUs, ranked from a profile."""

from __future__ import annotations

import argparse
import sys

HELP = "rank placements and SM splits for a group of GPUs"
EPILOG = """\
examples:
  voxserve plan
  voxserve plan --gpus 2
  voxserve plan --gpus 2 --rate 30 --check 0
Splits and placements are ranked by estimates; the best placements are then simulated: requests per
second of which 90 % are in time, to 4 %. With --check 0 nothing is simulated.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Group, load, how many placements to simulate."""
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--gpus", type=int, default=1, help="GPUs of the group (1)")
    parser.add_argument("--profile", default="h200", help="profile name or file (default: h200)")
    parser.add_argument(
        "--workload", default="libritts", help="mean request to plan for (libritts)"
    )
    parser.add_argument("--rate", type=float, help="requests per second one GPU must serve")
    parser.add_argument("--check", type=int, default=3, help="best placements to simulate (3)")
    parser.add_argument("--workers", type=int, help="processes (default: one per core)")


def run(args: argparse.Namespace) -> int:
    """Prints the split table and the ranked placements."""
    from voxserve.bench.plan import plan

    has_bar = sys.stderr.isatty()
    result = plan(
        args.profile,
        args.gpus,
        args.workload,
        rate_rps=args.rate,
        check=args.check,
        workers=args.workers,
        progress=has_bar,
        tell=lambda line: None if has_bar else print(line, file=sys.stderr, flush=True),
    )
    print(f"one GPU: {result.split.split} ({result.split.why})")
    print(f"{'split':>8}{'LM':>9}{'codec':>9}  requests/s")
    for item in result.split.estimates:
        mark = " <" if item.split == result.split.split else ""
        print(f"{item.split!s:>8}{item.lm_rps:9.1f}{item.codec_rps:9.1f}{mark}")
    print(result.table())
    for note in result.notes:
        print(f"note: {note}", file=sys.stderr)
    return 0
