"""A recorded load served again: the same settings do the same, and lengths are known or guessed."""

from __future__ import annotations

import pytest

from voxserve.core import profile as profiles
from voxserve.core.errors import InvalidInput, InvalidSetting
from voxserve.core.events import ChunkLife, Record, RequestChange, SettingChange
from voxserve.core.request import RequestState
from voxserve.core.settings import Settings
from voxserve.sim.device import prepared_of
from voxserve.sim.fake import FAKE_PREPARED, FakeWorld
from voxserve.sim.rerun import Past, past_of, rerun, so_far
from voxserve.sim.what_if import FittedCost

FRAME = {"frame_s": 0.08, "sample_rate_hz": 24_000}


def _told(until_s: float = 4.0) -> FakeWorld:
    told = FakeWorld(Settings(sm_split=FAKE_PREPARED.splits[1]))
    for i in range(6):
        told.arrive(0.3 * i, i, 40)
    told.run(until_s=until_s)
    return told


def _past(told: FakeWorld, from_s: float, until_s: float) -> Past:
    records, settings = told.trace.records(), told.scheduler.settings
    return past_of(records, settings, FAKE_PREPARED, from_s=from_s, until_s=until_s, **FRAME)


def test_the_same_settings_do_the_same() -> None:
    told = _told()
    past = _past(told, 0.0, 4.0)
    assert [r.num_frames for r in past.requests] == [40] * 6
    again: list[Record] = []
    rerun(past, FittedCost(told.trace.records()), {}, again.append)
    first = so_far(told.trace.records(), 0.0, 4.0, 0.2)
    second = so_far(again, 0.0, 4.0, 0.2)
    assert first.num_requests == second.num_requests == 6
    assert first.ttfa_p90_s == pytest.approx(second.ttfa_p90_s, abs=1e-6)


def test_lengths_of_requests_that_go_on_are_guessed_from_those_that_got_as_far() -> None:
    told = _told(until_s=1.2)
    past = _past(told, 0.0, 1.2)
    assert past.num_guessed == sum(r.is_guessed for r in past.requests) > 0
    ended = [r for r in past.requests if not r.is_guessed]
    assert all(r.num_frames == 40 for r in ended)


def test_settings_are_what_they_were_then_and_overrides_hold_throughout() -> None:
    told = _told()
    records = [*told.trace.records(), SettingChange(3.0, "background_batch", "8", "2")]
    settings = told.scheduler.settings.changed(FAKE_PREPARED, background_batch=2)
    past = past_of(records, settings, FAKE_PREPARED, from_s=1.0, until_s=4.0, **FRAME)
    assert [(at_s, s.background_batch) for at_s, s in past.settings] == [(-7.0, 8), (3.0, 2)]
    with pytest.raises(InvalidSetting, match="nothing ran on it"):
        rerun(past, FittedCost(records), {"sm_split": "76/56"}, lambda record: None)


def test_a_profiled_device_is_simulated_with_its_profile() -> None:
    profile = profiles.load("h200")
    prepared = prepared_of(profile)
    told = _told()
    settings = Settings(sm_split=prepared.splits[1])
    past = past_of(told.trace.records(), settings, prepared, from_s=0.0, until_s=4.0, **FRAME)
    made: list[Record] = []
    rerun(past, profile, {"lane_mode": "time_sharing"}, made.append)
    assert sum(isinstance(record, ChunkLife) for record in made) >= 6


def test_a_window_counts_refusals_and_waits_as_misses_and_cancels_not_at_all() -> None:
    records: list[Record] = [
        RequestChange(1, RequestState.WAITING, 1.0),
        RequestChange(2, RequestState.REJECTED, 1.1),
        RequestChange(3, RequestState.WAITING, 1.2),
        RequestChange(3, RequestState.CANCELLED, 1.3),
    ]
    seen = so_far(records, 0.0, 3.0, 0.2)
    assert (seen.num_requests, seen.attainment) == (2, 0.0)
    assert seen.ttfa_p90_s == pytest.approx(2.0)
    assert so_far([], 0.0, 3.0, 0.2).attainment is None


def test_nothing_that_arrived_is_refused() -> None:
    with pytest.raises(InvalidInput, match="speak a text or set a load"):
        _past(_told(), 3.0, 4.0)


def test_a_request_before_which_nothing_ran_cannot_be_served_again() -> None:
    records: list[Record] = [RequestChange(time_s=1.0, request_id=0, state=RequestState.WAITING)]
    past = past_of(
        records,
        Settings(),
        FAKE_PREPARED,
        frame_s=0.08,
        sample_rate_hz=24_000,
        from_s=0.5,
        until_s=3.0,
    )
    with pytest.raises(InvalidInput, match="no stage times are known"):
        rerun(past, FittedCost(records), {}, lambda _: None)
