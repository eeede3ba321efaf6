"""`voxserve simulate`: the scheduler on a simulated GPU, one run, a sweep or its capacity."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxserve.commands.settings_option import parse_several
from voxserve.core.errors import InvalidInput
from voxserve.core.outputs import check_writable, naming

if TYPE_CHECKING:
    from voxserve.bench.sim_capacity import Capacity
    from voxserve.bench.sim_sweep import SweepResult

HELP = "serve a load on a simulated GPU, in virtual time"
# Of figures that a reader could take for something else.
_MEANING = {
    "attainment": "of the requests had first audio in time and no stall",
    "goodput_rps": "of these, per second of arrivals",
    "completed_rps": "requests completed, per second until the last one was, past the arrivals",
    "rejected": "requests refused because they would have been late",
    "lm_busy": "of the time the lane had work",
    "decode_batch": "requests per step",
    "background_batch": "chunks per batch",
}
EPILOG = """\
examples:
  voxserve simulate --rate 40
  voxserve simulate --rate 30,40,50 --set sm_split=100/32,84/48
  voxserve simulate --capacity --set chunk_ramp="4 10"
Several values, separated by commas, make a sweep over every combination.
goodput_rps counts requests in time per second of arrivals; completed_rps all that ended, over the
time until the last one had, so it can be the smaller of the two.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Profile, load, settings, outputs."""
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--profile", default="h200", help="profile name or file (default: h200)")
    parser.add_argument(
        "--workload",
        default="libritts",
        help="libritts, seedtts, words:N, burst:N, file:PATH, replay:PATH; @regular, @burst:N",
    )
    parser.add_argument("--rate", default="40", metavar="R[,R...]", help="requests per second")
    parser.add_argument("--seconds", type=float, default=60.0, help="arrival window (60)")
    parser.add_argument("--seeds", default="0", metavar="S[,S...]", help="pooled (default: 0)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="NAME=V[,V...]",
        help="a setting; may be repeated",
    )
    parser.add_argument(
        "--capacity", action="store_true", help="find the capacity at 90 %% and 99 %% instead"
    )
    parser.add_argument("--jitter", action="store_true", help="vary stage times as profiled")
    parser.add_argument("--workers", type=int, help="processes (default: one per core)")
    parser.add_argument("--trace", metavar="FILE", help="save the trace of a single run")
    parser.add_argument("--json", metavar="FILE", help="save the figures")
    parser.add_argument("--html", metavar="FILE", help="save a figure (attainment over rate)")


def run(args: argparse.Namespace) -> int:
    """Runs what was asked for and prints a table; the last line is the answer."""
    settings = parse_several(args.settings)
    outputs = (args.trace, ".gz"), (args.json, ".json"), (args.html, ".html")
    for path, suffix in outputs:
        if path is not None:
            check_writable(path, suffix)
    if args.capacity:
        return _capacity(args, settings)
    rates, seeds = _numbers(args.rate, "--rate"), _seeds(args.seeds)
    if args.trace:
        _save_trace(args, settings, rates, seeds)
    from voxserve.bench.sim_sweep import sweep

    result = sweep(
        args.profile,
        args.workload,
        rate_rps=rates if len(rates) > 1 else rates[0],
        seconds=args.seconds,
        seeds=seeds,
        workers=args.workers,
        progress=sys.stderr.isatty(),
        jitter=args.jitter,
        **settings,
    )
    print(result.table() if len(result.rows) > 1 else _one(result))
    _tell_notes(sorted({note for row in result.rows for note in row.notes}))
    if args.json:
        _write(args.json, json.dumps(result.to_json(), indent=1))
    if args.html:
        _save_figure(args.html, result)
    return 0


def _numbers(text: str, option: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidInput(f"{option} {text!r} is not a list of numbers like 30,40") from None


def _seeds(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise InvalidInput(f"--seeds {text!r} is not a list of whole numbers like 0,1,2")
    return [int(part) for part in parts]


def _one(result: SweepResult) -> str:
    figures = result.rows[0].figures
    width = max(len(name) for name in figures)
    return "\n".join(
        f"{name:{width}}  {value:<8.4g}  {_MEANING.get(name, '')}".rstrip()
        for name, value in figures.items()
    )


def _capacity(args: argparse.Namespace, settings: dict[str, Any]) -> int:
    from voxserve.bench.sim_capacity import find_capacity

    if several := [name for name, value in settings.items() if isinstance(value, list)]:
        raise InvalidInput(f"--capacity takes one value of {several[0]}; run it once for each")
    capacity = find_capacity(
        args.profile,
        args.workload,
        thresholds=(0.9, 0.99),
        seconds=args.seconds,
        workers=args.workers,
        **settings,
    )
    for rate, attainment in capacity.attainment.items():
        print(f"{rate:6g} requests/s  attainment {attainment:.4f}")
    print(_capacity_line(capacity))
    if args.json:
        _write(args.json, json.dumps(capacity.to_json(), indent=1))
    return 0


def _capacity_line(capacity: Capacity) -> str:
    parts = [f"{rps:g} requests/s at {threshold:.0%}" for threshold, rps in capacity.rps.items()]
    return f"SLO capacity: {', '.join(parts)} ({capacity.num_runs} simulated runs)"


def _save_trace(
    args: argparse.Namespace, settings: dict[str, Any], rates: list[float], seeds: list[int]
) -> None:
    from voxserve.core import trace_file
    from voxserve.sim.api import simulate

    if len(rates) > 1 or len(seeds) > 1 or any(isinstance(v, list) for v in settings.values()):
        raise InvalidInput("--trace saves one run: give one rate, one seed and single settings")
    result = simulate(
        args.profile,
        args.workload,
        rate_rps=rates[0],
        seconds=args.seconds,
        seed=seeds[0],
        trace=True,
        jitter=args.jitter,
        **settings,
    )
    with naming(args.trace):
        trace_file.save(result.trace(), args.trace)


def _save_figure(path: str, result: SweepResult) -> None:
    from voxserve.viz.sweeps import sweep_figure

    figure = sweep_figure([(row.axes, row.figures) for row in result.rows])
    with naming(path):
        figure.write_html(path)


def _write(path: str, text: str) -> None:
    with naming(path):
        Path(path).write_text(text + "\n", encoding="utf-8")


def _tell_notes(notes: list[str]) -> None:
    if notes:
        print(f"note: {'; '.join(notes)}", file=sys.stderr)
