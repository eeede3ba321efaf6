"""Text that arrives while it is spoken: a request pauses alone when its text is missing."""

from __future__ import annotations

import pytest

from tests.sched.stories import PREFILL_S, STEP_S, chunk, entered, spans, world
from voxserve.core.events import RequestChange
from voxserve.core.jobs import Cancel, DecodeJob, LaneName, TextArrived
from voxserve.core.request import FinishReason, RequestState
from voxserve.sim.fake import FakeWorld


def _states(told: FakeWorld, request_id: int) -> list[RequestState]:
    found: list[RequestChange] = told.records(RequestChange)
    return [r.state for r in found if r.request_id == request_id]


def _streaming(frames: int = 33, **prepared: int) -> FakeWorld:
    told = world(prepared=prepared)
    told.arrive(0.0, 0, frames, text_complete=False)
    return told


def test_each_frame_after_the_first_takes_a_text_token() -> None:
    told = _streaming()
    told.send(0.0, TextArrived(0, 5, False))
    told.send(1.0, TextArrived(0, 0, True))
    told.run()
    starved = entered(told, 0, RequestState.STARVED)
    assert starved.time_s == pytest.approx(PREFILL_S + 5 * STEP_S)
    assert _states(told, 0) == [
        RequestState.WAITING,
        RequestState.PREFILLING,
        RequestState.RUNNING,
        RequestState.STARVED,
        RequestState.RUNNING,
        RequestState.DRAINING,
        RequestState.DONE,
    ]
    steps = [job.queued_s for job in told.jobs if isinstance(job, DecodeJob)]
    assert [s for s in steps if starved.time_s <= s < 1.0] == []
    assert 1.0 in steps


def test_text_in_good_time_never_starves() -> None:
    told = _streaming()
    told.send(0.0, TextArrived(0, 10, False))
    told.send(0.05, TextArrived(0, 10, False))
    told.send(0.15, TextArrived(0, 20, False))
    told.send(0.2, TextArrived(0, 0, True))
    told.run()
    assert RequestState.STARVED not in _states(told, 0)
    assert entered(told, 0, RequestState.DONE).reason is FinishReason.END


def test_only_the_starved_request_pauses() -> None:
    told = _streaming()
    told.arrive(0.0, 1, 30)
    told.send(0.9, TextArrived(0, 0, True))
    told.run()
    rows = [span.rows for span in spans(told, LaneName.LM) if span.start_s < 0.25]
    assert rows[1:] == [(1,)] * (len(rows) - 1)
    assert chunk(told, 1, 0).ready_s == pytest.approx(PREFILL_S + 9 * STEP_S)


def test_a_chunk_with_all_its_frames_does_not_wait_for_text() -> None:
    told = _streaming()
    told.send(0.0, TextArrived(0, 9, False))
    told.send(2.0, TextArrived(0, 0, True))
    told.run()
    assert chunk(told, 0, 0).delivered_s == pytest.approx(PREFILL_S + 9 * STEP_S + 0.002)
    assert chunk(told, 0, 1).stall_s > 0.5


def test_the_step_in_flight_uses_no_text_that_is_not_there() -> None:
    told = _streaming(lm_depth=2)
    told.send(0.0, TextArrived(0, 3, False))
    told.send(1.0, TextArrived(0, 2, False))
    told.send(2.0, TextArrived(0, 0, True))
    told.run()
    before = [s for s in spans(told, LaneName.LM) if s.start_s < 1.0]
    assert len(before) == 4  # the prefill and three tokens
    between = [s for s in spans(told, LaneName.LM) if 1.0 <= s.start_s < 2.0]
    assert len(between) == 2


def test_a_starved_request_can_be_cancelled_and_text_for_it_is_ignored_afterwards() -> None:
    told = _streaming()
    told.send(0.5, Cancel(0))
    told.send(0.6, TextArrived(0, 5, False))
    told.send(0.7, TextArrived(99, 5, False))
    told.run()
    assert _states(told, 0)[-1] is RequestState.CANCELLED
    assert told.scheduler.num_free_slots == told.prepared.num_slots


def test_text_that_comes_before_a_slot_is_kept() -> None:
    told = world(max_running=1)
    told.arrive(0.0, 0, 12)
    told.arrive(0.0, 1, 12, text_complete=False)
    told.send(0.05, TextArrived(1, 4, False))
    told.send(0.06, TextArrived(1, 0, True))
    told.run()
    assert RequestState.STARVED not in _states(told, 1)
    assert entered(told, 1, RequestState.DONE)
