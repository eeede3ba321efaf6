"""The sweep protocol on a real target: rates one after the other, capacity bracketed and confirmed.

Every run is kept on disk when it ends: the same command again goes on where it was stopped.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from voxserve.bench import machine
from voxserve.bench.client import TIMEOUT_S, Client, Listener, LoadRun
from voxserve.bench.observed import observed_figures
from voxserve.bench.runs import Run, RunFolder, pooled
from voxserve.bench.target import Target
from voxserve.core.slo import capacity_rps
from voxserve.core.workload import SWEEP_BURST, WARMUP_REQUESTS, Burst, Offered, Workload, offered

# Source: the sweep protocol: confirmed around the bracketed capacity, in steps of the rate.
CONFIRM_STEPS = (-2, -1, 0, 1)
_GROWTH = 1.25  # from one rate to the next while nothing has failed yet
_WARMUP_GAP_S = 0.2
_WARMUP_SEED = 9_999
_PACKAGES = ("torch", "triton", "numpy", "flashinfer-python", "cuda-bindings")


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """How capacity is looked for.

    Attributes:
        seconds: Arrival window of each run.
        seeds: The first brackets, all are pooled when confirming.
        thresholds: Attainment to keep.
        step_rps: Resolution of the rate.
        ttfa_target_s: The SLO's.
        timeout_s: How long after its window a run may go on.
    """

    seconds: float = 60.0
    seeds: tuple[int, ...] = (0, 1, 2)
    thresholds: tuple[float, ...] = (0.9, 0.99)
    step_rps: float = 2.0
    ttfa_target_s: float = 0.2
    timeout_s: float = TIMEOUT_S


@dataclass(slots=True)
class Sweep:
    """Runs by (rate, seed), measured or found on disk.

    Args:
        target: What is measured.
        workload: What is asked of it.
        folder: Where runs are kept.
        plan: How.
        watch: Gets the label of each new run and returns what to call with its progress.
        keep_trace: Called with each new run's load result.
        sleep: Waits so many seconds of the target's clock.
    """

    target: Target
    workload: Workload
    folder: RunFolder
    plan: SweepPlan
    watch: Callable[[str, float], Callable[[float, Sequence[Listener]], object]]
    keep_trace: Callable[[float, int, LoadRun], object] | None = None
    sleep: Callable[[float], object] = time.sleep
    runs: dict[tuple[float, int], Run] = field(default_factory=dict[tuple[float, int], Run])
    _is_warm: bool = False

    def measure(self, rate_rps: float, seed: int) -> Run:
        """The run of this rate and seed; made now unless it exists."""
        key = (round(rate_rps, 6), seed)
        if key not in self.runs:
            run = self.folder.find(*key)
            if run is None:
                run = self._made(*key)
                self.folder.add(run)
            self.runs[key] = run
        return self.runs[key]

    def measure_all(self, rates: Sequence[float]) -> None:
        """All seeds of all rates, ascending; stops above a rate where hardly anything got audio."""
        for rate_rps in sorted(rates):
            runs = [self.measure(rate_rps, seed) for seed in self.plan.seeds]
            if any(run.stopped for run in runs):
                return

    def find_capacity(self, start_rps: float) -> None:
        """Brackets each threshold with the first seed, then confirms with all.

        Args:
            start_rps: Where to start looking.
        """
        for threshold in sorted(self.plan.thresholds):
            found = self._bracket(threshold, start_rps)
            start_rps = self._confirm(threshold, found) or found or start_rps

    def attainment(self) -> dict[float, float]:
        """Pooled attainment by tested rate."""
        return {rate: pooled(runs).attainment for rate, runs in self.by_rate().items()}

    def by_rate(self) -> dict[float, list[Run]]:
        """All runs by rate, ascending."""
        rates: dict[float, list[Run]] = {}
        for (rate, _), run in sorted(self.runs.items()):
            rates.setdefault(rate, []).append(run)
        return rates

    def capacities(self) -> dict[float, float]:
        """Capacity by threshold, over everything tested."""
        attainment = self.attainment()
        return {limit: capacity_rps(attainment, limit) for limit in self.plan.thresholds}

    def _bracket(self, threshold: float, start_rps: float) -> float:
        """Highest rate that holds with the first seed, to a step."""
        seed, step = self.plan.seeds[0], self.plan.step_rps
        low, high = 0.0, math.inf
        for (rate, run_seed), run in self.runs.items():  # what is known already
            if run_seed == seed:
                holds = run.attainment >= threshold
                low, high = (max(low, rate), high) if holds else (low, min(high, rate))
        low = low if low < high else 0.0
        rate = self._stepped(start_rps)
        while high - low > step * 1.001 and high > step * 1.001:
            rate = self._inside(rate, low, high)
            holds = self.measure(rate, seed).attainment >= threshold
            low, high = (rate, high) if holds else (low, rate)
            rate = rate * _GROWTH if math.isinf(high) else self._next_inside(low, high)
        return low

    def _next_inside(self, low: float, high: float) -> float:
        # Attainment falls within a few steps below the first failure: look near it first.
        return high / _GROWTH if low == 0.0 else (low + high) / 2

    def _inside(self, rate: float, low: float, high: float) -> float:
        """The rate on the grid, strictly inside what is still open."""
        step = self.plan.step_rps
        rate = max(self._stepped(rate), self._stepped(low) + step)
        return rate if math.isinf(high) else min(rate, self._stepped(high) - step)

    def _confirm(self, threshold: float, found_rps: float) -> float:
        """Pools all seeds around the bracketed rate, and further down while nothing holds."""
        centre, step = self._stepped(found_rps), self.plan.step_rps
        while True:
            rates = [centre + k * step for k in CONFIRM_STEPS if centre + k * step > 0.0]
            self.measure_all(rates)
            capacity = capacity_rps(self.attainment(), threshold)
            if capacity > 0.0 or centre <= step:
                return capacity
            centre = max(centre - 3 * step, 0.0)

    def _stepped(self, rate_rps: float) -> float:
        step = self.plan.step_rps
        return max(1, round(rate_rps / step)) * step

    def _made(self, rate_rps: float, seed: int) -> Run:
        plan = self.plan
        client = Client(self.target, plan.timeout_s, self.sleep)
        self._warm_up(client)
        load = offered(self.workload, rate_rps, plan.seconds, seed)
        progress = self.watch(f"{rate_rps:g} req/s, seed {seed}", plan.seconds)
        result = client.run(load, plan.seconds, seed, progress=progress)
        if self.keep_trace is not None:
            self.keep_trace(rate_rps, seed, result)
        late_s = result.sent_late_s
        return Run(
            rate_rps=rate_rps,
            seed=seed,
            seconds=plan.seconds,
            ttfa_target_s=plan.ttfa_target_s,
            outcomes=result.outcomes,
            observed=observed_figures(result.records, result.turns, result.start_s, plan.seconds),
            sent_late_p99_ms=float(np.percentile(late_s, 99)) * 1e3 if len(late_s) else 0.0,
            stopped=result.stopped,
            made=_made_with(),
        )

    def _warm_up(self, client: Client) -> None:
        """A discarded burst before the sweep, and a few uncounted requests before each run."""
        if not self._is_warm:
            burst = offered(Burst(SWEEP_BURST), 1.0, 1e-3, _WARMUP_SEED)
            client.run(burst, 0.0, _WARMUP_SEED, gives_up=False)
            self._is_warm = True
        few = list(_first(self.workload, WARMUP_REQUESTS))
        client.run(few, 0.0, _WARMUP_SEED, gives_up=False)


def _first(workload: Workload, count: int) -> Iterator[Offered]:
    for index, utterance in zip(range(count), workload.utterances(_WARMUP_SEED), strict=False):
        yield Offered(index * _WARMUP_GAP_S, utterance)


def _made_with() -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": machine.cpu_name(),
        "versions": machine.versions(*_PACKAGES),
        **machine.revision(),
    }
