"""One short run that shows whether a GPU serves: starts, speaks, bears load, frees its memory.

`python -m voxserve.bench.gpu_smoke` prints one JSON object on standard output, whatever happens,
and what it is doing on standard error. It ends within its budget: the load takes what time is left.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from voxserve.bench import machine
from voxserve.bench.idle import TEXT, idle_ttfa
from voxserve.bench.load_sweep import Sweep
from voxserve.bench.quick_search import HOLDS, Display, compute_until, next_rate, quick_sweep
from voxserve.bench.runs import figures
from voxserve.core.slo import capacity_rps
from voxserve.engine.engine import Engine

# What a run needs beyond its arrivals: warm-up, making requests, draining.
_RUN_OVERHEAD_S = 12.0


@dataclass(slots=True)
class Report:
    """What is known so far; printed at the end, complete or not.

    Attributes:
        values: JSON-ready.
        started_s: When the script started.
    """

    values: dict[str, Any] = field(default_factory=dict[str, Any])
    started_s: float = field(default_factory=time.monotonic)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started_s

    def part(self, name: str, measure: Callable[[], Any]) -> Any:
        """Measures one part; an error is noted, and the next part goes on."""
        print(f"[{self.elapsed_s:6.1f} s] {name}", file=sys.stderr, flush=True)  # noqa: T201
        begun_s = time.monotonic()
        try:
            self.values[name] = measure()
        except Exception:  # border: the other figures must survive
            self.values[name] = {"error": traceback.format_exc()[-3000:]}
        self.values.setdefault("seconds", {})[name] = round(time.monotonic() - begun_s, 2)
        return self.values[name]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs everything."""
    args = _parser().parse_args(argv)
    report = Report()
    report.values["made"] = {"versions": machine.versions("torch", "triton"), **machine.revision()}
    report.values["device"] = machine.device_name(args.device)
    before = _allocated_bytes()
    try:
        engine = _started(args, report)
        if engine is not None:
            _measured(args, report, engine)
            report.part("stop", engine.stop)
            del engine
        gc.collect()
        report.values["allocated_bytes"] = {"before": before, "after": _allocated_bytes()}
    finally:
        report.values["seconds_in_all"] = round(report.elapsed_s, 1)
        text = json.dumps(_rounded(report.values), default=str)
        print(text, flush=True)  # noqa: T201
        if args.output:
            Path(args.output).write_text(text + "\n", encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="qwen3-tts-1.7b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--weights", default="random")
    parser.add_argument("--split", default="100/32")
    parser.add_argument("--ramp", default="10", help="chunk_ramp of the load")
    parser.add_argument("--workload", default="libritts")
    parser.add_argument("--rates", help='like "64 96"; default: looks for the capacity')
    parser.add_argument("--start", type=float, default=64.0, help="first rate of the search")
    parser.add_argument("--seconds", type=float, default=20.0, help="arrivals per rate")
    parser.add_argument("--budget", type=float, default=330.0, help="seconds for everything")
    parser.add_argument("--output", help="also write the JSON there")
    return parser


def _started(args: argparse.Namespace, report: Report) -> Engine | None:
    """An engine with the split asked for, or without one where the split does not work."""
    for split in dict.fromkeys((args.split, "none")):
        made: list[Engine] = []

        def start(split: str = split, made: list[Engine] = made) -> dict[str, Any]:
            engine = Engine(
                args.model, args.device, weights=args.weights or None, name="smoke", sm_split=split
            )
            made.append(engine)
            return engine.start_report | {"settings": repr(engine.settings)}

        report.part(f"start with sm_split {split}", start)
        if made:
            return made[0]
    return None


def _measured(args: argparse.Namespace, report: Report, engine: Engine) -> None:
    report.values["allocated_gb_while_serving"] = round(_allocated_bytes() / 1e9, 2)
    report.part("parity", lambda: _parity(engine))
    ramps = [ramp for ramp in ((2, 10), (4, 10), (10,)) if _is_prepared(engine, ramp)]
    for ramp in ramps:
        report.part(f"idle ttfa, chunk_ramp {ramp}", lambda ramp=ramp: idle_ttfa(engine, ramp))
    engine.set(chunk_ramp=args.ramp)
    with tempfile.TemporaryDirectory() as folder:
        weights = args.weights or None
        sweep = quick_sweep(engine, weights, args.workload, args.seconds, Path(folder))
        report.part("load", lambda: _load(args, report, sweep))
        held = [rate for rate, share in sweep.attainment().items() if share >= HOLDS]
        if held and _has_time(args, report):
            beside = partial(_beside_a_busy_loop, sweep, engine, max(held))
            report.part("load beside a busy loop", beside)


def _is_prepared(engine: Engine, ramp: tuple[int, ...]) -> bool:
    return set(ramp) <= set(engine.prepared.chunk_frames)


def _parity(engine: Engine) -> dict[str, float]:
    """The same request streamed in small chunks, whole in large ones, and in a crowd."""
    options: dict[str, Any] = {"seed": 11, "min_frames": 44, "max_frames": 44}
    frames = engine.prepared.chunk_frames
    engine.set(chunk_ramp=(frames[0], frames[-1]))
    whole = engine.say(TEXT, **options).pcm
    streamed = engine.stream(TEXT, **options).read().pcm
    rest = {name: value for name, value in options.items() if name != "seed"}
    others = [engine.stream(TEXT, listener=True, seed=seed, **rest) for seed in range(7)]
    crowd = engine.stream(TEXT, **options).read().pcm
    for other in others:
        other.read()
    return {
        "samples": len(whole),
        "largest_sample": int(np.abs(whole.astype(np.int32)).max(initial=0)),
        "streamed_error": _error(streamed, whole),
        # Another batch size may round a logit otherwise and draw another code.
        "crowd_error": _error(crowd, whole),
    }


def _error(heard: NDArray[np.int16], expected: NDArray[np.int16]) -> float:
    """Largest difference over the largest sample; infinite when the lengths differ."""
    if len(heard) != len(expected) or not len(expected):
        return float("inf")
    wide = expected.astype(np.float64)
    return float(np.abs(heard - wide).max() / max(np.abs(wide).max(), 1.0))


def _has_time(args: argparse.Namespace, report: Report) -> bool:
    return report.elapsed_s + args.seconds + _RUN_OVERHEAD_S < args.budget


def _load(args: argparse.Namespace, report: Report, sweep: Sweep) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    found = {"settings": sweep.target.describe()["settings"], "rates": rows}
    given = [float(word) for word in (args.rates or "").replace(",", " ").split()]
    while _has_time(args, report):
        rate = next_rate(sweep.attainment(), args.start)
        if args.rates:
            rate = given.pop(0) if given else 0.0
        if not rate:
            break
        rows.append(figures([sweep.measure(rate, seed=0)]))
        print(_line(rows[-1]), file=sys.stderr, flush=True)  # noqa: T201
    for threshold in (HOLDS, 0.99):
        if rows:
            found[f"capacity_{threshold:g}_rps"] = capacity_rps(sweep.attainment(), threshold)
    return found


def _beside_a_busy_loop(sweep: Sweep, engine: Engine, rate_rps: float) -> dict[str, Any]:
    """The load that held, while a thread computes in pure Python and a display reads at 10 Hz."""
    is_over = threading.Event()
    thread = threading.Thread(target=compute_until, args=(is_over.is_set,), daemon=True)
    thread.start()
    try:
        with Display(engine):
            return figures([sweep.measure(rate_rps, seed=1)])
    finally:
        is_over.set()
        thread.join()


def _rounded(value: Any) -> Any:
    """Five digits are enough, and keep the output short."""
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in cast("dict[str, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(part) for part in cast("list[Any]", value)]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def _line(row: dict[str, Any]) -> str:
    names = ("rate_rps", "attainment", "completed_rps", "ttfa_p90_ms", "stalled_share")
    return ", ".join(f"{name} {row[name]}" for name in names)


def _allocated_bytes() -> int:
    import torch

    return torch.cuda.memory_allocated() if torch.cuda.is_available() else 0


if __name__ == "__main__":
    sys.exit(main())
