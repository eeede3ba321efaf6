"""A quick look for capacity with one seed and short runs, also while other code competes.

Short runs overstate capacity, because buffered audio hides a deficit: the figures that are kept
come from the sweep protocol (`bench.load_sweep`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from voxserve.bench.load_sweep import Sweep, SweepPlan
from voxserve.bench.runs import RunFolder
from voxserve.bench.search import Bracket, probes
from voxserve.bench.target import EngineTarget
from voxserve.core import workload as workloads
from voxserve.engine.engine import Engine

HOLDS = 0.9  # attainment that counts as served
_GROWTH = 1.3
_RESOLUTION_RPS = 4.0
_DISPLAY_S = 0.1
_DRAIN_S = 20.0


def quick_sweep(
    engine: Engine, weights: str | None, workload: str, seconds: float, folder: Path
) -> Sweep:
    """A sweep of short runs with one seed on a running engine.

    Args:
        engine: Its settings are those measured.
        weights: What it was started with.
        workload: By name.
        seconds: Arrivals per run.
        folder: For its runs.
    """
    target = EngineTarget(engine, weights)
    plan = SweepPlan(
        seconds=seconds,
        seeds=(0,),
        ttfa_target_s=engine.settings.ttfa_target_s,
        timeout_s=_DRAIN_S,
    )
    return Sweep(
        target=target,
        workload=workloads.find(workload),
        folder=RunFolder(folder, target.describe()),
        plan=plan,
        watch=lambda _label, _seconds: lambda _at, _sent: None,
    )


def next_rate(attainment: Mapping[float, float], start: float) -> float:
    """The next rate of a search for 90 %: up until one fails, then between; 0 when it is known.

    Args:
        attainment: By rate, of what was measured.
        start: The first rate.
    """
    step_rps = min(_RESOLUTION_RPS, start / 8)
    rates = probes(Bracket.of(attainment, HOLDS), start, step_rps, growth=_GROWTH)
    return rates[0] if rates else 0.0


def compute_until(is_over: Callable[[], bool]) -> None:
    """Computes in pure Python, as a notebook cell may while an engine serves."""
    total = 0
    while not is_over():
        total += sum(i * i for i in range(1000))


class Display:
    """Reads an engine ten times a second, as a widget does, in a `with` block."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Display:
        self._thread.start()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._is_over.set()
        self._thread.join()

    def _read(self) -> None:
        position = self._engine.trace.total
        while not self._is_over.wait(_DISPLAY_S):
            self._engine.stats()
            _, position = self._engine.trace.since(position)
