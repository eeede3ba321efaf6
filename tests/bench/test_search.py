"""Where the search for capacity looks next."""

import math

import pytest

from voxserve.bench.search import (
    COMPLETE,
    DECIDING,
    ONE_SEED,
    Bracket,
    confirm,
    find_bracket,
    next_point,
    probes,
)

LIMITS = (0.9, 0.99)


def served(rate_rps: float, capacity: float) -> float:
    """Attainment that crosses 90 % at the capacity, and 99 % two requests/s below it."""
    return 1.0 - min(1.0, max(0.0, (rate_rps - capacity) * 0.045 + 0.1))


def test_a_bracket_lies_between_what_holds_and_the_first_failure():
    found = Bracket.of({10.0: 1.0, 20.0: 0.95, 30.0: 0.5, 40.0: 0.95}, 0.9)
    assert found == Bracket(20.0, 30.0)
    assert Bracket.of({}, 0.9) == Bracket(0.0, math.inf)
    assert Bracket.of({8.0: 0.1}, 0.9) == Bracket(0.0, 8.0)


@pytest.mark.parametrize(
    ("bracket", "count", "expected"),
    [
        (Bracket(), 1, [64.0]),
        (Bracket(64.0), 1, [80.0]),
        (Bracket(64.0, 80.0), 1, [72.0]),
        (Bracket(64.0, 80.0), 3, [68.0, 72.0, 76.0]),
        (Bracket(0.0, 64.0), 1, [52.0]),
        (Bracket(64.0, 66.0), 1, []),
        (Bracket(0.0, 2.0), 1, []),
    ],
)
def test_probes_close_in(bracket: Bracket, count: int, expected: list[float]):
    assert probes(bracket, 64.0, 2.0, count) == expected


@pytest.mark.parametrize("capacity", [1.0, 7.0, 96.0, 333.0])
@pytest.mark.parametrize("count", [1, 2])
def test_a_bracket_is_found_wherever_the_search_starts(capacity: float, count: int):
    known: dict[float, float] = {}

    def measure(rates: list[float]) -> dict[float, float]:
        known.update({rate: float(rate <= capacity) for rate in rates})
        return known

    found = find_bracket(measure, {}, 0.9, 100.0, 2.0, count)
    assert found <= capacity < found + 2.001


def test_confirming_goes_further_down_while_nothing_holds():
    tested: dict[float, float] = {}

    def measure(rates: list[float]) -> dict[float, float]:
        tested.update({rate: float(rate <= 40.0) for rate in rates})
        return tested

    assert confirm(measure, 50.0, 0.9, 2.0) == 40.0
    assert max(tested) == 52.0


def walk(capacity: float, guess: float, level: int, runs: int = 60) -> list[tuple[float, int]]:
    """The points of a search with three equal seeds."""
    points: list[tuple[float, int]] = []
    guesses = dict.fromkeys(LIMITS, guess)
    for _ in range(runs):
        seeds_of: dict[float, set[int]] = {}
        for rate, seed in points:
            seeds_of.setdefault(rate, set()).add(seed)
        attainment = {rate: served(rate, capacity) for rate in seeds_of}
        point = next_point(attainment, seeds_of, guesses, (0, 1, 2), 2.0, level)
        if point is None:
            return points
        points.append(point)
    raise AssertionError("the search does not end")


@pytest.mark.parametrize("guess", [2.0, 90.0, 100.0, 104.0, 130.0])
def test_one_seed_first_settles_both_thresholds(guess: float):
    points = walk(101.0, guess, ONE_SEED)
    assert {seed for _, seed in points} == {0}
    rates = {rate for rate, _ in points}
    assert {100.0, 102.0, 98.0} <= rates  # 90 % lies between the first two, 99 % at 98


def test_a_good_guess_needs_few_runs():
    assert len(walk(101.0, 100.0, ONE_SEED)) == 4


def test_the_other_seeds_come_first_where_they_decide():
    one = walk(101.0, 100.0, ONE_SEED)
    deciding = walk(101.0, 100.0, DECIDING)
    assert deciding[: len(one)] == one
    assert deciding[len(one) :][:2] == [(100.0, 1), (102.0, 1)]
    complete = walk(101.0, 100.0, COMPLETE)
    assert {(rate, seed) for rate in (96.0, 98.0, 100.0, 102.0) for seed in (0, 1, 2)} <= set(
        complete
    )


def test_a_device_that_holds_nothing_ends_the_search():
    assert walk(-100.0, 8.0, COMPLETE)[-1] == (2.0, 2)
