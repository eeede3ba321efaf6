"""Where to look for capacity next: pure decisions over attainment by rate, for real and simulated.

Capacity is bracketed first and then confirmed around the bracketed rate; when time may run out,
`next_point` puts the runs first that decide most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from voxserve.core.slo import capacity_rps

# Source: the sweep protocol: -4, -2, 0 and +2 requests/s around the bracketed capacity.
CONFIRM_STEPS = (-2, -1, 0, 1)
GROWTH = 1.25  # from one rate to the next while nothing has failed yet

Attainment = Mapping[float, float]


@dataclass(frozen=True, slots=True)
class Bracket:
    """Between which tested rates a capacity lies.

    Attributes:
        low: Highest rate that holds with nothing failing below it; 0 when none does.
        high: Lowest rate that fails; infinite when none does.
    """

    low: float = 0.0
    high: float = math.inf

    @classmethod
    def of(cls, attainment: Attainment, threshold: float) -> Bracket:
        """What tested rates say about a threshold."""
        failed = [rate for rate, share in attainment.items() if share < threshold]
        return cls(capacity_rps(attainment, threshold), min(failed, default=math.inf))

    def is_known(self, step_rps: float) -> bool:
        """Whether it is down to one step."""
        return self.high - max(self.low, 0.0) <= step_rps * 1.001


def on_grid(rate_rps: float, step_rps: float) -> float:
    """The nearest rate on the grid, at least one step."""
    return max(1, round(rate_rps / step_rps)) * step_rps


def probes(
    bracket: Bracket, start_rps: float, step_rps: float, count: int = 1, growth: float = GROWTH
) -> list[float]:
    """Rates to test next, ascending; none when the bracket is down to a step.

    Args:
        bracket: What is known.
        start_rps: The first rate of a search.
        step_rps: Resolution.
        count: How many are tested at a time.
        growth: Between rates while one side is open.
    """
    low, high = bracket.low, bracket.high
    if bracket.is_known(step_rps):
        return []
    if math.isinf(high):
        first = start_rps if low == 0.0 else max(low * growth, low + step_rps)
        wanted = [first * growth**i for i in range(count)]
    elif low == 0.0:
        # Attainment falls within a few steps below the first failure: look near it first.
        wanted = [high / growth ** (i + 1) for i in range(count)]
    else:
        wanted = [low + (high - low) * (i + 1) / (count + 1) for i in range(count)]
    lowest = on_grid(low, step_rps) + step_rps if low else step_rps
    stepped = {max(on_grid(rate, step_rps), lowest) for rate in wanted}
    inside = sorted(rate for rate in stepped if low < rate < high)
    return inside or [lowest if lowest < high else (low + high) / 2]


def find_bracket(
    measure: Callable[[Sequence[float]], Attainment],
    known: Attainment,
    threshold: float,
    start_rps: float,
    step_rps: float,
    count: int = 1,
) -> float:
    """Highest rate that holds, to a step.

    Args:
        measure: Tests rates and returns the attainment of all rates tested so far.
        known: Tested already.
        threshold: Attainment to keep.
        start_rps: The first rate.
        step_rps: Resolution.
        count: How many are tested at a time.
    """
    while rates := probes(Bracket.of(known, threshold), start_rps, step_rps, count):
        known = measure(rates)
    return Bracket.of(known, threshold).low


def confirm(
    measure: Callable[[Sequence[float]], Attainment],
    found_rps: float,
    threshold: float,
    step_rps: float,
) -> float:
    """Tests around the bracketed rate, and further down while nothing holds.

    Args:
        measure: Tests rates with all seeds and returns the pooled attainment of all such rates.
        found_rps: The bracketed capacity.
        threshold: Attainment to keep.
        step_rps: Resolution.

    Returns:
        The capacity; 0 when nothing holds.
    """
    centre = on_grid(found_rps, step_rps)
    while True:
        found = capacity_rps(measure(around(centre, step_rps)), threshold)
        if found > 0.0 or centre <= step_rps:
            return found
        centre = max(centre - 3 * step_rps, 0.0)


def around(centre_rps: float, step_rps: float) -> list[float]:
    """The rates that confirm a capacity."""
    rates = (centre_rps + k * step_rps for k in CONFIRM_STEPS)
    return [rate for rate in rates if rate > 0.0]


# How much a run decides: one seed first, then the others where it matters, then the rest.
ONE_SEED, DECIDING, COMPLETE = 1, 2, 3


def next_point(
    attainment: Attainment,
    seeds_of: Mapping[float, set[int]],
    guesses: Mapping[float, float],
    seeds: Sequence[int],
    step_rps: float,
    level: int,
) -> tuple[float, int] | None:
    """The (rate, seed) that decides most about the capacities; None when `level` is reached.

    Args:
        attainment: Pooled over the seeds tested, by rate.
        seeds_of: Seeds tested, by rate.
        guesses: Expected capacity by threshold; the first threshold is settled first.
        seeds: To pool.
        step_rps: Resolution.
        level: ONE_SEED: each capacity lies within a step for the first seed. DECIDING: the rates
            on both sides of it have all seeds. COMPLETE: so have all that confirm it.
    """
    brackets = {limit: Bracket.of(attainment, limit) for limit in guesses}
    for limit, guess in guesses.items():
        if (rate := _walked(brackets[limit], guess, step_rps)) is not None:
            return rate, seeds[0]
    wanted: list[tuple[float, int]] = []
    if level >= DECIDING:
        for seed in seeds[1:]:
            for bracket in brackets.values():
                wanted += [(bracket.low, seed), (bracket.high, seed)]
    if level >= COMPLETE:
        for bracket in brackets.values():
            rates = around(bracket.low, step_rps) if bracket.low else []
            wanted += [(rate, seed) for seed in seeds for rate in reversed(rates)]
    for rate, seed in wanted:
        if 0.0 < rate < math.inf and seed not in seeds_of.get(rate, set()):
            return rate, seed
    return None


def _walked(bracket: Bracket, guess_rps: float, step_rps: float) -> float | None:
    """From the guess in growing steps until one side fails and one holds, then halving."""
    low, high = bracket.low, bracket.high
    if bracket.is_known(step_rps):
        return None
    guess = on_grid(guess_rps, step_rps)
    if low < guess < high and (low == 0.0 or math.isinf(high)):
        return guess
    if math.isinf(high):
        rate = low + max(step_rps, low - guess)
    elif low == 0.0:
        rate = high - max(2 * step_rps, guess - high)
    else:
        rate = (low + high) / 2
    rate = on_grid(rate, step_rps)
    return rate if low < rate < high else low + step_rps
