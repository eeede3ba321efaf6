"""SLO capacity of a simulated configuration: bracketed with one seed, confirmed with several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from voxserve.bench.search import confirm, find_bracket
from voxserve.bench.workers import Pool
from voxserve.core import profile as profiles
from voxserve.core.errors import InvalidInput
from voxserve.core.profile import Profile
from voxserve.core.slo import Outcome, summarise
from voxserve.core.workload import Workload
from voxserve.sim.placing import expected_load, split_of
from voxserve.sim.simulator import SimulationResult

Tell = Callable[[str], object]
RATE_STEP_RPS = 2.0


@dataclass(frozen=True, slots=True)
class Capacity:
    """SLO capacity of one configuration.

    Attributes:
        rps: Highest tested rate that keeps the threshold there and at every lower tested rate, by
            threshold.
        attainment: Pooled attainment of the confirmed rates, by rate; with one seed, of all rates.
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

    def __init__(self, pool: Pool, call: dict[str, Any], give_up_below: float, tell: Tell) -> None:
        self._pool = pool
        self._call = call
        self._give_up_below = give_up_below
        self._tell = tell
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
        for point, future in futures.items():
            run = self.runs[point] = future.result()
            share = f"{run.summary.attainment:.1%} in time"
            if run.was_given_up:
                share = f"under {self._give_up_below:.0%} in time whatever comes, ended early"
            self._tell(f"{point[0]:g} requests/s, seed {point[1]}: {share}")

    def shares(self, seed: int) -> dict[float, float]:
        """Attainment of one seed's runs by rate; none where a run was given up."""
        return {
            rate: 0.0 if run.was_given_up else run.summary.attainment
            for (rate, run_seed), run in self.runs.items()
            if run_seed == seed
        }

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
    step_rps: float = RATE_STEP_RPS,
    tell: Tell = lambda _: None,
    **settings: Any,
) -> Capacity:
    """SLO capacity by bracketing with the first seed, confirmed around there with all.

    With one seed the bracket is the answer: testing around it again would tell nothing new.

    Args:
        profile: Name, file or profile.
        workload: Name or workload.
        thresholds: Attainment to keep, such as 0.9 and 0.99.
        seconds: Arrival window of each run.
        seeds: Pooled when confirming.
        workers: Processes; all cores when None.
        start_rps: Where to start; estimated from the profile when None.
        step_rps: Resolution; confirmed at -2, -1, 0 and +1 steps.
        tell: Called with a line about each run that has ended.
        settings: By name.
    """
    if not seeds or not thresholds:
        raise InvalidInput("at least one seed and one threshold are needed")
    call: dict[str, Any] = {**settings, "profile": profile, "workload": workload}
    call["seconds"] = seconds
    start = start_rps or expected_rps(profile, settings)
    with Pool(workers) as pool:
        search = _Search(pool, call, min(thresholds), tell)
        rps: dict[float, float] = {}
        attainment: dict[float, float] = {}

        def one_seed(rates: Sequence[float]) -> dict[float, float]:
            search.run((rate, seeds[0]) for rate in rates)
            return search.shares(seeds[0])

        def all_seeds(rates: Sequence[float]) -> dict[float, float]:
            search.run((rate, seed) for rate in rates for seed in seeds)
            attainment.update({rate: search.pooled(rate, seeds) for rate in rates})
            return attainment

        for threshold in sorted(thresholds):
            found = find_bracket(
                one_seed, one_seed(()), threshold, start, step_rps, max(2, pool.workers)
            )
            if len(seeds) > 1:
                found = confirm(all_seeds, found, threshold, step_rps)
            rps[threshold] = found
            start = max(found, step_rps)
        bracket = {
            rate: run.summary.attainment
            for (rate, seed), run in sorted(search.runs.items())
            if seed == seeds[0]
        }
        attainment = dict(sorted(attainment.items())) or bracket
        return Capacity(rps, attainment, bracket, len(search.runs))
