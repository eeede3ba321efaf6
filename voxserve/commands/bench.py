"""`voxserve bench`: offers load to a running model and finds its SLO capacity."""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxserve.commands.settings_option import parse_settings
from voxserve.core import trace_file
from voxserve.core.errors import InvalidInput
from voxserve.core.workload import MAX_RATE_RPS, find

if TYPE_CHECKING:
    from voxserve.bench.client import Listener, LoadRun
    from voxserve.bench.load_sweep import Sweep, SweepPlan
    from voxserve.bench.target import EngineTarget

HELP = "offer load and find the SLO capacity"
EPILOG = """\
examples:
  voxserve bench --rates "0.2 0.4"
  voxserve bench --device sim:h200 --rates "40 60" --seconds 20 --seeds 1
Requests arrive in real time, on a simulated GPU too: each rate takes seeds times seconds.
"voxserve simulate" needs no such wait: it runs in virtual time.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """What is measured, with which load, where the results go."""
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--model", default="vox-tiny", help="default: vox-tiny")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, sim:NAME")
    parser.add_argument("--weights", help='a checkpoint folder or repo id, or "random"')
    parser.add_argument(
        "--workload",
        default="libritts",
        help="libritts, seedtts, words:N, burst:N, file:PATH, replay:PATH; @regular, @burst:N",
    )
    parser.add_argument(
        "--rates", help='requests per second to test, like "40 60 80"; default: find the capacity'
    )
    parser.add_argument("--start", type=float, default=8.0, help="first rate of the search (8)")
    parser.add_argument("--step", type=float, default=2.0, help="resolution of the rate (2)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of arrivals in a run (60)")
    parser.add_argument("--seeds", type=int, default=3, help="runs pooled per rate (3)")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds to drain a run (900)")
    parser.add_argument("--ttfa-target", type=float, help="seconds; default: the device's")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting, repeatable"
    )
    parser.add_argument(
        "-o", "--output", default="bench-results", metavar="FOLDER", help="default: bench-results"
    )
    parser.add_argument(
        "--traces",
        nargs="?",
        type=float,
        const=10.0,
        metavar="SECONDS",
        help="keep the trace of each run's last seconds of arrivals (default: 10)",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(args: argparse.Namespace) -> int:
    """Starts the engine, measures, writes the report; the last line is the capacity."""
    rates = _rates(args.rates)
    settings = parse_settings(args.set)
    if args.ttfa_target is not None:
        settings["ttfa_target_s"] = args.ttfa_target
    plan_of = _plan(args)
    workload = find(args.workload)

    from voxserve.bench.load_sweep import Sweep
    from voxserve.bench.report import capacity_line, save_report, sweep_report
    from voxserve.bench.runs import RunFolder
    from voxserve.bench.target import EngineTarget
    from voxserve.engine.engine import Engine

    with Engine(args.model, args.device, weights=args.weights, name="bench", **settings) as engine:
        target = EngineTarget(engine, args.weights)
        plan = plan_of(engine.settings.ttfa_target_s)
        folder = RunFolder(Path(args.output), _about(target, workload.name, plan))
        watch = Bars(args.quiet)
        keep = _trace_keeper(folder.folder, engine, args.traces) if args.traces else None
        sweep = Sweep(target, workload, folder, plan, watch, keep)
        try:
            measure(sweep, rates, args.start)
        finally:
            watch.close()
    report = sweep_report(sweep, shlex.join(["voxserve", *sys.argv[1:]]))
    print(f"report: {', '.join(map(str, save_report(report, folder.folder)))}")
    print(capacity_line(report))
    return 0


def measure(sweep: Sweep, rates: Sequence[float], start_rps: float) -> None:
    """The rates asked for, or the capacity where none are."""
    if rates:
        sweep.measure_all(rates)
    else:
        sweep.find_capacity(start_rps)


class Bars:
    """A progress bar per run, with what has been heard so far."""

    def __init__(self, is_quiet: bool) -> None:
        self._is_quiet = is_quiet
        self._bar: Any = None

    def __call__(self, label: str, seconds: float) -> Callable[[float, Sequence[Listener]], object]:
        """Starts a bar."""
        from tqdm import tqdm

        self.close()
        self._bar = bar = tqdm(
            total=seconds,
            desc=label,
            unit="s",
            disable=self._is_quiet,
            bar_format="{desc}: {percentage:3.0f}% {bar} {n:.0f}/{total:.0f} s {postfix}",
        )

        def update(at_s: float, sent: Sequence[Listener]) -> None:
            bar.update(max(0.0, min(at_s, seconds) - bar.n))
            ended = sum(listener.end_s is not None for listener in sent)
            bar.set_postfix_str(f"{len(sent)} sent, {ended} ended", refresh=False)

        return update

    def close(self) -> None:
        """Ends the bar that is shown."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _plan(args: argparse.Namespace) -> Callable[[float], SweepPlan]:
    """Checks the numbers now; the TTFA target is known when the engine has started."""
    for name in ("start", "step", "seconds", "seeds", "timeout"):
        if not 0 < getattr(args, name) < math.inf:
            raise InvalidInput(f"--{name} {getattr(args, name)} is not positive and finite")
    if args.traces is not None and not 0 < args.traces < math.inf:
        raise InvalidInput(f"--traces {args.traces} is not positive and finite")

    def plan(ttfa_target_s: float) -> SweepPlan:
        from voxserve.bench.load_sweep import SweepPlan

        return SweepPlan(
            seconds=args.seconds,
            seeds=tuple(range(args.seeds)),
            step_rps=args.step,
            ttfa_target_s=ttfa_target_s,
            timeout_s=args.timeout,
        )

    return plan


def _about(target: EngineTarget, workload: str, plan: SweepPlan) -> dict[str, Any]:
    return {
        **target.describe(),
        "workload": workload,
        "seconds": plan.seconds,
        "ttfa_target_s": plan.ttfa_target_s,
        "timeout_s": plan.timeout_s,
    }


def _rates(text: str | None) -> list[float]:
    if text is None:
        return []
    try:
        rates = [float(word) for word in text.replace(",", " ").split()]
    except ValueError:
        rates = []
    if not rates:
        raise InvalidInput(f'--rates {text!r} is not like "40 60 80"')
    if not all(0 < rate <= MAX_RATE_RPS for rate in rates):
        raise InvalidInput(f"--rates {text!r}: a rate is outside 0 to {MAX_RATE_RPS:g}")
    return rates


def _trace_keeper(
    folder: Path, engine: Any, seconds: float
) -> Callable[[float, int, LoadRun], object]:
    from voxserve.bench.observed import window

    def keep(rate_rps: float, seed: int, result: LoadRun) -> None:
        about = {
            "model": engine.model_name,
            "device": engine.device_name,
            "settings": {name: str(value) for name, value in asdict(engine.settings).items()},
            "rate_rps": rate_rps,
            "seed": seed,
            "start_s": result.start_s,
        }
        end_s = result.start_s + result.seconds
        records = window(result.records, end_s - seconds, end_s)
        saved = trace_file.SavedTrace(records, engine.frame_s, engine.sample_rate_hz, about)
        trace_file.save(saved, folder / f"{rate_rps:g}rps-seed{seed}.trace.jsonl.gz")

    return keep
