"""Of a load that was too much it is told how much would not have been."""

from __future__ import annotations

from typing import Any

import pytest

from voxserve.core import profile as profiles
from voxserve.core.profile import Profile
from voxserve.sim.api import simulate
from voxserve.sim.device import prepared_of
from voxserve.sim.possible import PROMISE, possible
from voxserve.sim.rerun import Past, past_of
from voxserve.sim.what_if import Change, single_changes

END_S = 3.0


@pytest.fixture(scope="module")
def profile() -> Profile:
    return profiles.load("h100")


def _past(profile: Profile, rate_rps: float, **settings: Any) -> Past:
    told = simulate(profile, rate_rps=rate_rps, seconds=END_S, trace=True, **settings)
    return past_of(
        told.records,
        told.settings,
        prepared_of(profile),
        frame_s=0.08,
        sample_rate_hz=24_000,
        from_s=0.5,
        until_s=END_S,
    )


def test_a_load_that_can_be_served_is_not_searched(profile: Profile) -> None:
    shares: list[float] = []
    found = possible(_past(profile, 10.0), profile, [Change("", 0, 0)], shares.append)
    assert found.is_kept
    assert found.cure is None
    assert len(shares) == 1


def test_a_setting_that_keeps_the_promise_is_found(profile: Profile) -> None:
    past = _past(profile, 10.0, max_running=2)
    settings = past.settings[-1][1]
    changes = list(single_changes(settings, past.prepared, past.prepared.splits.__contains__, 1))
    found = possible(past, profile, changes)
    assert found.attainment < PROMISE
    assert found.cure is not None
    assert found.cure.name == "max_running"


def test_the_rate_that_could_be_served_is_found_by_leaving_arrivals_out(profile: Profile) -> None:
    past = _past(profile, 300.0)
    change = Change("background_batch", 8, 4)
    found = possible(past, profile, [change])
    assert found.attainment < PROMISE
    assert found.cure is None
    assert found.num_tried == 1
    assert found.rate_rps is not None
    # More than the 50 requests/s of a minute: what was generated ahead hides a short deficit.
    assert 50.0 < found.rate_rps < 200.0 < found.offered_rps


def test_a_target_out_of_reach_has_no_rate(profile: Profile) -> None:
    past = _past(profile, 40.0, ttfa_target_s=0.05)
    assert possible(past, profile, []).rate_rps is None
