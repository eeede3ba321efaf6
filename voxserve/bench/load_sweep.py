"""The sweep protocol on a real target: rates one after the other, capacity bracketed and confirmed.

Every run is kept on disk when it ends: the same command again goes on where it was stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from voxserve.bench import machine
from voxserve.bench.client import TIMEOUT_S, Client, Hopeless, Listener, LoadRun
from voxserve.bench.observed import observed_figures
from voxserve.bench.runs import Run, RunFolder, pooled
from voxserve.bench.search import confirm, find_bracket
from voxserve.bench.target import Target
from voxserve.core.slo import capacity_rps
from voxserve.core.workload import SWEEP_BURST, WARMUP_REQUESTS, Burst, Offered, Workload, offered

_WARMUP_GAP_S = 0.2
_WARMUP_SEED = 9_999
_PACKAGES = ("torch", "triton", "numpy", "cuda-bindings")


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
        hopeless: Says when a run need not go on (see `Client.run`).
        made: About the runs, beside date and versions.
    """

    seconds: float = 60.0
    seeds: tuple[int, ...] = (0, 1, 2)
    thresholds: tuple[float, ...] = (0.9, 0.99)
    step_rps: float = 2.0
    ttfa_target_s: float = 0.2
    timeout_s: float = TIMEOUT_S
    hopeless: Hopeless | None = None
    made: dict[str, Any] = field(default_factory=dict[str, Any])


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
        is_warm: Leave out the burst before the first run.
    """

    target: Target
    workload: Workload
    folder: RunFolder
    plan: SweepPlan
    watch: Callable[[str, float], Callable[[float, Sequence[Listener]], object]]
    keep_trace: Callable[[float, int, LoadRun], object] | None = None
    sleep: Callable[[float], object] = time.sleep
    runs: dict[tuple[float, int], Run] = field(default_factory=dict[tuple[float, int], Run])
    is_warm: bool = False

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
            found = find_bracket(
                self._with_one_seed,
                self._with_one_seed(()),
                threshold,
                start_rps,
                self.plan.step_rps,
            )
            confirmed = confirm(self._with_all_seeds, found, threshold, self.plan.step_rps)
            start_rps = confirmed or found or start_rps

    def load_found(self) -> None:
        """Takes in all runs on disk."""
        for run in self.folder.all():
            self.runs[round(run.rate_rps, 6), run.seed] = run

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

    def _with_one_seed(self, rates: Sequence[float]) -> dict[float, float]:
        """Attainment by rate with the first seed, these rates included."""
        seed = self.plan.seeds[0]
        for rate_rps in rates:
            self.measure(rate_rps, seed)
        return {rate: run.attainment for (rate, s), run in self.runs.items() if s == seed}

    def _with_all_seeds(self, rates: Sequence[float]) -> dict[float, float]:
        self.measure_all(rates)
        return self.attainment()

    def _made(self, rate_rps: float, seed: int) -> Run:
        plan = self.plan
        client = Client(self.target, plan.timeout_s, self.sleep)
        self._warm_up(client)
        load = offered(self.workload, rate_rps, plan.seconds, seed)
        progress = self.watch(f"{rate_rps:g} req/s, seed {seed}", plan.seconds)
        result = client.run(load, plan.seconds, seed, hopeless=plan.hopeless, progress=progress)
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
            made=_made_with() | plan.made,
        )

    def _warm_up(self, client: Client) -> None:
        """A discarded burst before the sweep, and a few uncounted requests before each run."""
        if not self.is_warm:
            burst = offered(Burst(SWEEP_BURST), 1.0, 1e-3, _WARMUP_SEED)
            client.run(burst, 0.0, _WARMUP_SEED, gives_up=False)
            self.is_warm = True
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
