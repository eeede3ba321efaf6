"""`voxserve check`: measures the promised figures on this machine."""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from voxserve.core.errors import DeviceUnavailable, InvalidInput
from voxserve.core.outputs import check_writable, naming

if TYPE_CHECKING:
    from voxserve.bench.tables import Results

HELP = "measure speed, latency, concurrency and word error rate on this machine"
PARTS = ("start", "decision", "ttfa", "speed", "streams", "wer")
GPU = "gpu"  # a table of its own: kernel parity and stage speed of the full-size model


def configure(parser: argparse.ArgumentParser) -> None:
    """Which parts, where the result goes."""
    parser.add_argument("-o", "--output", metavar="FILE", help="write the results as JSON")
    parser.add_argument(
        "--only",
        metavar="PART",
        nargs="+",
        choices=(*PARTS, GPU),
        help=f"some of {', '.join(PARTS)}, or {GPU} alone",
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
    if not 0 < args.stream_seconds < math.inf:
        raise InvalidInput(f"--stream-seconds {args.stream_seconds} is not positive and finite")
    if args.output is not None:
        check_writable(args.output, ".json")
    parts = args.only or PARTS
    if GPU in parts and len(parts) > 1:
        raise InvalidInput(f"{GPU} is a table of its own: ask for it alone")
    from voxserve.bench.tables import markdown_table

    results = _gpu_results() if parts == [GPU] else _results(parts, args.stream_seconds)
    print(markdown_table(results), end="")
    if args.output is not None:
        with naming(args.output):
            results.save(Path(args.output))
    missed = [
        row.figure for row in results.rows if row.verdict() == "missed" and row.must is not None
    ]
    return 1 if missed else 0


def _results(parts: Sequence[str], stream_seconds: float) -> Results:
    from voxserve.bench.check import check

    return check(parts, stream_seconds=stream_seconds, command=_command(), tell=_tell)


def _gpu_results() -> Results:
    import torch

    from voxserve.bench.stages import stage_results

    if not torch.cuda.is_available():
        raise DeviceUnavailable("this torch finds no NVIDIA GPU to check")
    return stage_results(command=_command(), tell=_tell)


def _command() -> str:
    return shlex.join(["voxserve", *sys.argv[1:]])


def _tell(line: str) -> None:
    print(line, file=sys.stderr)
