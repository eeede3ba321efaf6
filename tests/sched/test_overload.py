"""Overload: when it is entered and left, and what happens while it lasts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sched.stories import PREFILL_S, STEP_S, entered, world
from voxserve.core.events import OverloadChange, RequestChange
from voxserve.core.jobs import JobKind, SettingsChanged
from voxserve.core.request import RequestState
from voxserve.sim.fake import FakeWorld, TableCost

SERVICE_S = PREFILL_S + 9 * STEP_S + 0.002  # prefill, nine more frames, decode


def _blocked(**settings: Any) -> FakeWorld:
    """One slot, held by a long request; request 1 waits for it from 0.1 s on."""
    told = world(max_running=1, **settings)
    told.arrive(0.0, 0, 400)
    told.arrive(0.1, 1, 20)
    return told


def _changes(told: FakeWorld) -> list[OverloadChange]:
    return told.records(OverloadChange)


def test_overload_is_entered_when_the_oldest_prediction_is_late_for_a_second() -> None:
    told = _blocked(overload="shed")
    told.run(until_s=3.0)
    (change,) = _changes(told)
    late_s = 0.1 + 0.2 - SERVICE_S  # from here on waiting and service exceed the target
    assert change.active
    assert 0.0 <= change.time_s - (late_s + 1.0) < 2 * STEP_S
    assert "predicted TTFA" in change.why


def test_nine_tenths_of_a_second_is_not_enough() -> None:
    told = _blocked(overload="shed")
    told.run(until_s=0.1 + 0.2 - SERVICE_S + 0.9)
    more = told.settings.changed(told.prepared, max_running=8)
    told.send(told.clock.now_s(), SettingsChanged(more))
    told.run(until_s=3.0)
    assert _changes(told) == []


def test_hopeless_requests_are_refused_at_arrival_with_the_reason() -> None:
    told = _blocked(overload="shed")
    told.arrive(2.0, 2, 20)
    told.arrive(2.1, 3, 20, has_listener=False)
    told.run(until_s=3.0)
    refused = entered(told, 2, RequestState.REJECTED)
    assert refused.time_s == 2.0
    assert refused.detail.startswith("overloaded: first audio is predicted after")
    assert "the target is 200 ms" in refused.detail
    assert entered(told, 3, RequestState.WAITING)  # a file has all the time


def test_nothing_is_refused_before_overload_or_when_it_is_off() -> None:
    for overload, at_s in (("shed", 0.5), ("off", 2.0), ("prefill_first", 2.0)):
        told = _blocked(overload=overload)
        told.arrive(at_s, 2, 20)
        told.run(until_s=3.0)
        states = {r.state for r in told.records(RequestChange) if r.request_id == 2}
        assert states == {RequestState.WAITING}
    told = _blocked(overload="off")
    told.run(until_s=3.0)
    assert _changes(told) == []


def test_turning_it_off_leaves_at_once() -> None:
    told = _blocked(overload="shed")
    told.send(2.0, SettingsChanged(told.settings.changed(told.prepared, overload="off")))
    told.run(until_s=3.0)
    assert [(c.active, c.why) for c in _changes(told)][1:] == [(False, "turned off")]
    assert _changes(told)[1].time_s == 2.0


def test_overload_is_left_after_two_calm_seconds() -> None:
    told = world(max_running=1, overload="shed")
    told.arrive(0.0, 0, 200)
    told.arrive(0.1, 1, 300)  # gets the slot at about 2 s
    told.run()
    entry, leave = _changes(told)
    assert entry.active
    assert not leave.active
    calm_s = entered(told, 1, RequestState.PREFILLING).time_s
    # It was late itself until it got its slot; a quarter of a second without a queue counts.
    assert 0.0 <= leave.time_s - (calm_s + 2.0) < 0.25 + 2 * STEP_S


def _hardly_in_time(**settings: Any) -> FakeWorld:
    """Twelve streams at 75 ms per frame of 80 ms: every chunk is urgent at a margin of 1 s."""
    told = world(urgency_margin_s=1.0, ttfa_target_s=5.0, **settings)
    told.cost = TableCost(decode=(0.075, 0.0), prefill=(2.0, 0.0))
    told.__post_init__()
    told.executor.duration_s = lambda job, estimate_s: (
        PREFILL_S if job.kind is JobKind.PREFILL else estimate_s
    )
    for request_id in range(12):
        told.arrive(0.0, request_id, 400)
    return told


def test_overload_is_entered_when_a_fifth_of_the_continuation_chunks_are_urgent() -> None:
    told = _hardly_in_time(overload="shed")
    told.run(until_s=4.0)
    (change,) = _changes(told)
    second_s = PREFILL_S + 19 * 0.075  # the first continuation chunks leave
    assert change.why == "over 20% of continuation chunks are urgent"
    # A whole window of a second has been seen, at the first decision after it.
    assert 0.0 <= change.time_s - (second_s + 1.0) < 0.076


def test_a_ramp_of_small_chunks_is_not_overload() -> None:
    told = world(overload="shed", chunk_ramp=(2, 4, 10))
    for request_id in range(40):
        told.arrive(0.1 * request_id, request_id, 16)
    told.run()
    assert _changes(told) == []


def test_prefill_first_takes_over_while_overload_lasts() -> None:
    waits_s = {}
    for overload in ("prefill_first", "off"):
        told = _hardly_in_time(overload=overload, max_prefill_defer_s=1.0)
        told.arrive(4.0, 12, 20)
        told.run(until_s=6.0)
        waits_s[overload] = entered(told, 12, RequestState.PREFILLING).time_s - 4.0
    assert waits_s["prefill_first"] < 0.076
    assert waits_s["off"] > 1.0


def test_streams_served_at_hardly_the_speed_of_speech_refuse_another() -> None:
    told = _hardly_in_time(overload="shed")
    told.arrive(4.0, 12, 20)
    told.run(until_s=6.0)
    refused = entered(told, 12, RequestState.REJECTED)
    assert "times the speed of speech" in refused.detail


@pytest.mark.parametrize("overload", ["shed", "prefill_first", "off"])
def test_a_quiet_server_never_notices_overload(overload: str) -> None:
    told = world(overload=overload)
    for request_id in range(20):
        told.arrive(0.3 * request_id, request_id, 40)
    told.run()
    assert _changes(told) == []


@pytest.mark.parametrize("settings", [{"overload": "off"}, {"policy": "throughput"}])
def test_nothing_piles_up_while_nobody_watches(settings: dict[str, str]) -> None:
    told = _hardly_in_time(**settings)
    told.run(until_s=6.0)
    urgent = told.scheduler._overload._urgent
    assert 0 < len(urgent) < 30  # batches of a second


def _later_than_thought(**settings: Any) -> FakeWorld:
    """Every stage takes 1.8 times its estimate: first audio is late, predictions are not."""
    told = world(**settings)
    told.executor.duration_s = lambda _job, estimate_s: 1.8 * estimate_s
    for request_id in range(200):
        told.arrive(0.05 * request_id, request_id, 20)
    return told


def test_overload_is_entered_when_a_fifth_of_the_first_chunks_are_late() -> None:
    told = _later_than_thought(overload="shed", ttfa_target_s=1.5 * SERVICE_S)
    told.run(until_s=4.0)
    (change,) = _changes(told)
    assert change.active
    assert change.why == "over 20% of first chunks are late"
    # A whole window of two seconds has been seen since the first chunk.
    assert 2.0 <= change.time_s < 2.0 + 3 * SERVICE_S
    refused = next(r for r in told.records(RequestChange) if r.state is RequestState.REJECTED)
    assert refused.time_s >= change.time_s
    assert refused.detail.startswith("overloaded: first audio is predicted after")


def test_first_chunks_in_time_are_no_overload() -> None:
    told = _later_than_thought(overload="shed", ttfa_target_s=3 * SERVICE_S)
    told.run(until_s=6.0)
    assert _changes(told) == []


def test_files_are_never_late() -> None:
    told = world(overload="shed")
    told.executor.duration_s = lambda _job, estimate_s: 10 * estimate_s
    for request_id in range(100):
        told.arrive(0.05 * request_id, request_id, 20, has_listener=False)
    told.run(until_s=6.0)
    assert _changes(told) == []


def test_a_request_alone_is_served_however_slow_the_last_ones_were() -> None:
    told = world(max_running=1, overload="shed")
    told.cost = TableCost(prefill=(0.3, 0.0))  # expected to be longer than the target
    told.__post_init__()
    told.executor.duration_s = lambda job, estimate_s: (
        PREFILL_S if job.kind is JobKind.PREFILL else estimate_s
    )
    told.arrive(0.0, 0, 300)
    told.arrive(0.1, 1, 10)  # ends before the spell does
    told.arrive(2.0, 2, 20)
    told.arrive(60.0, 3, 20)
    told.run()
    (change,) = _changes(told)
    assert change.active
    assert entered(told, 2, RequestState.REJECTED)
    assert entered(told, 3, RequestState.DONE)
