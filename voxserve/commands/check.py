"""`voxserve check`: measures the promised figures on this machine."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from voxserve.core.errors import InvalidInput

HELP = "measure speed, latency, concurrency and word error rate on this machine"
PARTS = ("start", "decision", "ttfa", "speed", "streams", "wer")


def configure(parser: argparse.ArgumentParser) -> None:
    """Which parts, where the result goes."""
    parser.add_argument("-o", "--output", metavar="FILE", help="write the results as JSON")
    parser.add_argument(
        "--only", metavar="PART", nargs="+", choices=PARTS, help=f"some of {', '.join(PARTS)}"
    )
    parser.add_argument(
        "--stream-seconds",
        type=float,
        default=60.0,
        metavar="S",
        help="how long each number of concurrent streams is tried (default: 60)",
    )


def run(args: argparse.Namespace) -> int:
    """Prints the table; exit code 1 when a figure that must be met is missed."""
    output = None if args.output is None else Path(args.output)
    if output is not None and not output.parent.is_dir():
        raise InvalidInput(f"{output}: there is no folder {output.parent}")
    from voxserve.bench.check import check
    from voxserve.bench.tables import markdown_table

    results = check(
        args.only or PARTS,
        stream_seconds=args.stream_seconds,
        command=shlex.join(["voxserve", *sys.argv[1:]]),
        tell=lambda line: print(line, file=sys.stderr),
    )
    print(markdown_table(results), end="")
    if output is not None:
        results.save(output)
    missed = [
        row.figure for row in results.rows if row.verdict() == "missed" and row.must is not None
    ]
    return 1 if missed else 0
