"""SLO capacity of a simulated configuration: bracketed with one seed, confirmed with several."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from voxserve.bench.workers import Pool
from voxserve.core import profile as profiles
from voxserve.core.errors import InvalidInput
from voxserve.core.profile import Profile
from voxserve.core.slo import Outcome, capacity_rps, summarise
from voxserve.core.workload import Workload
from voxserve.sim.placing import expected_load, split_of
from voxserve.sim.simulator import SimulationResult

CONFIRM_STEPS_RPS = (-4.0, -2.0, 0.0, 2.0)
RATE_STEP_RPS = 2.0


@dataclass(frozen=True, slots=True)
class Capacity:
    """SLO capacity of one configuration.

    Attributes:
        rps: Highest tested rate that keeps the threshold there and at every lower tested rate, by
            threshold.
        attainment: Pooled attainment of the confirmed rates, by rate.
        bracket: Attainment of the single-seed runs, by rate (an upper bound where given up).
        num_runs: Simulated runs in all.
    """

    rps: dict[float, float]
    attainment: dict[float, float]
    bracket: dict[float, float]
    num_runs: int

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def expected_rps(profile: Profile | str | Path, settings: dict[str, Any] | None = None) -> float:
    """Where to start looking for capacity: the common rate of the best split's sides."""
    found = profile if isinstance(profile, Profile) else profiles.load(profile)
    rows = (settings or {}).get("max_decode_batch")
    choice = split_of(found, expected_load(found, "libritts", decode_rows=rows))
    return max(item.rate_rps for item in choice.estimates)


class _Search:
    """Runs of one configuration by (rate, seed), several at a time."""

    def __init__(self, pool: Pool, call: dict[str, Any], give_up_below: float) -> None:
        self._pool = pool
        self._call = call
        self._give_up_below = give_up_below
        self.runs: dict[tuple[float, int], SimulationResult] = {}

    def run(self, points: Iterable[tuple[float, int]]) -> None:
        """Makes sure that these runs exist."""
        missing = [point for point in dict.fromkeys(points) if point not in self.runs]
        futures = {
            point: self._pool.submit(
                {
                    **self._call,
                    "rate_rps": point[0],
                    "seed": point[1],
                    "give_up_below": self._give_up_below,
                }
            )
            for point in missing
        }
        self.runs |= {point: future.result() for point, future in futures.items()}

    def holds(self, rate_rps: float, seed: int, threshold: float) -> bool:
        """Whether one run kept the threshold."""
        run = self.runs[rate_rps, seed]
        return not run.was_given_up and run.summary.attainment >= threshold

    def pooled(self, rate_rps: float, seeds: Sequence[int]) -> float:
        """Attainment over all seeds; a run that was given up counts what it reached."""
        outcomes: list[Outcome] = []
        for seed in seeds:
            outcomes += self.runs[rate_rps, seed].outcomes
        target_s = self.runs[rate_rps, seeds[0]].settings.ttfa_target_s
        return summarise(outcomes, 1.0, target_s).attainment


def find_capacity(
    profile: Profile | str | Path = "h200",
    workload: Workload | str = "libritts",
    *,
    thresholds: Sequence[float] = (0.9,),
    seconds: float = 60.0,
    seeds: Sequence[int] = (0, 1, 2),
    workers: int | None = None,
    start_rps: float | None = None,
    **settings: Any,
) -> Capacity:
    """SLO capacity by bracketing with the first seed, confirmed at -4, -2, 0 and +2 with all.

    Args:
        profile: Name, file or profile.
        workload: Name or workload.
        thresholds: Attainment to keep, such as 0.9 and 0.99.
        seconds: Arrival window of each run.
        seeds: Pooled when confirming.
        workers: Processes; all cores when None.
        start_rps: Where to start; estimated from the profile when None.
        settings: By name.
    """
    if not seeds or not thresholds:
        raise InvalidInput("at least one seed and one threshold are needed")
    call: dict[str, Any] = {**settings, "profile": profile, "workload": workload}
    call["seconds"] = seconds
    start = start_rps or expected_rps(profile, settings)
    with Pool(workers) as pool:
        search = _Search(pool, call, min(thresholds))
        rps: dict[float, float] = {}
        attainment: dict[float, float] = {}
        for threshold in sorted(thresholds):
            found = _bracket(search, seeds[0], threshold, start, pool.workers)
            rps[threshold] = _confirm(search, seeds, threshold, found, attainment)
            start = max(rps[threshold], RATE_STEP_RPS)
        bracket = {
            rate: run.summary.attainment
            for (rate, seed), run in sorted(search.runs.items())
            if seed == seeds[0]
        }
        return Capacity(rps, dict(sorted(attainment.items())), bracket, len(search.runs))


def _bracket(
    search: _Search, seed: int, threshold: float, start_rps: float, at_a_time: int
) -> float:
    """Highest rate that holds with one seed, to a step, testing several rates at a time."""
    low, high = 0.0, math.inf
    for run_rate, run_seed in search.runs:  # what is known already
        if run_seed == seed:
            holds = search.holds(run_rate, seed, threshold)
            low, high = (max(low, run_rate), high) if holds else (low, min(high, run_rate))
    while high - low > RATE_STEP_RPS and (high > RATE_STEP_RPS or low > 0.0):
        rates = _probes(low, high, start_rps, max(2, at_a_time))
        search.run((rate, seed) for rate in rates)
        for rate in rates:
            if not search.holds(rate, seed, threshold):
                high = min(high, rate)
                break
            low = rate
        start_rps = max(start_rps, low)
    return low


def _probes(low: float, high: float, start_rps: float, count: int) -> list[float]:
    """Rates to test next, ascending: around the start, then evenly inside the bracket."""
    if math.isinf(high):
        factors = (0.9, 1.15) if low == 0.0 else (1.15, 1.4)
        rates = [start_rps * factor for factor in factors]
    else:
        # Attainment falls within a few requests/s, so an open lower end is closed in steps.
        floor = low if low > 0.0 else 0.6 * high
        rates = [floor + (high - floor) * i / (count + 1) for i in range(1, count + 1)]
        rates = [floor, *rates] if low == 0.0 else rates
    stepped = {max(RATE_STEP_RPS, RATE_STEP_RPS * round(rate / RATE_STEP_RPS)) for rate in rates}
    inside = sorted(rate for rate in stepped if low < rate < high)
    return inside or [low + RATE_STEP_RPS]


def _confirm(
    search: _Search,
    seeds: Sequence[int],
    threshold: float,
    found_rps: float,
    attainment: dict[float, float],
) -> float:
    """Pools all seeds around the bracketed rate, and further down while nothing holds."""
    centre = found_rps
    while True:
        rates = [centre + step for step in CONFIRM_STEPS_RPS if centre + step > 0.0]
        search.run((rate, seed) for rate in rates for seed in seeds)
        attainment |= {rate: search.pooled(rate, seeds) for rate in rates}
        rps = capacity_rps(attainment, threshold)
        if rps > 0.0 or centre <= RATE_STEP_RPS:
            return rps
        centre -= 6.0
