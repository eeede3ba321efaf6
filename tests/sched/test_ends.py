"""How streams and requests end, and when slots and pages come back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.sched.stories import FIRST_S, PREFILL_S, STEP_S, URGENT_S, chunk, entered, spans, world
from voxserve.core.events import ChunkLife
from voxserve.core.jobs import (
    Cancel,
    ChunkDelivered,
    CodecDone,
    CodecJob,
    Fail,
    JobEnded,
    JobFailed,
    LaneName,
    RequestEnded,
    RowStatus,
    SlotReleased,
    StepDone,
)
from voxserve.core.protocols import JobResult
from voxserve.core.request import FinishReason, RequestState
from voxserve.sim.fake import FakeWorld


def _released_s(told: FakeWorld, request_id: int) -> float:
    (at_s,) = (
        at_s
        for at_s, n in told.notices
        if isinstance(n, SlotReleased) and n.request_id == request_id
    )
    return at_s


def _ended(told: FakeWorld, request_id: int) -> RequestEnded:
    (notice,) = (
        n for _, n in told.notices if isinstance(n, RequestEnded) and n.request_id == request_id
    )
    return notice


def _chunks(told: FakeWorld, request_id: int = 0) -> list[tuple[int, bool]]:
    """(frames, is_last) of the chunks decoded."""
    jobs = [job for job in told.jobs if isinstance(job, CodecJob)]
    found = [c for job in jobs for c in job.chunks if c.request_id == request_id]
    return [(c.num_frames, c.is_last) for c in found]


def test_the_short_last_chunk_uses_the_fixed_size_executable() -> None:
    told = world()
    told.arrive(0.0, 0, 23)
    told.run()
    assert _chunks(told) == [(10, False), (10, False), (3, True)]
    assert [job.num_frames for job in told.jobs if isinstance(job, CodecJob)] == [10, 10, 4]
    assert _ended(told, 0).reason is FinishReason.END


def test_an_end_on_a_chunk_border_makes_no_empty_chunk() -> None:
    told = world()
    told.arrive(0.0, 0, 20)
    told.run()
    assert [frames for frames, _ in _chunks(told)] == [10, 10]
    end_s = PREFILL_S + 20 * STEP_S  # the end token's step, after the last chunk's delivery
    assert entered(told, 0, RequestState.DONE).time_s == pytest.approx(end_s)


def test_an_end_on_a_border_flushes_a_codec_that_holds_samples_back() -> None:
    told = world()
    told.codec_delay_samples = 720
    told.__post_init__()
    told.arrive(0.0, 0, 20)
    told.run()
    assert _chunks(told) == [(10, False), (10, False), (0, True)]
    samples = [n.num_samples for _, n in told.notices if isinstance(n, ChunkDelivered)]
    assert samples == [10 * 1920 - 720, 10 * 1920, 720]


def test_a_last_chunk_that_has_not_left_yet_carries_the_flush_itself() -> None:
    told = world()
    told.codec_delay_samples = 720
    told.__post_init__()
    told.arrive(0.0, 0, 20, max_frames=20)  # the budget ends it with its last frame
    told.run()
    assert _chunks(told) == [(10, False), (10, True)]
    assert _ended(told, 0).reason is FinishReason.LENGTH


def test_the_frame_budget_ends_a_runaway() -> None:
    told = world(prepared={"lm_depth": 2})
    told.arrive(0.0, 0, 1000, max_frames=33)
    told.run()
    assert _ended(told, 0) == RequestEnded(0, RequestState.DONE, FinishReason.LENGTH, None, 33)
    assert sum(frames for frames, _ in _chunks(told)) == 33


def test_a_full_context_ends_a_runaway() -> None:
    told = world(prepared={"max_context_tokens": 50})
    told.arrive(0.0, 0, 1000)
    told.run()
    assert _ended(told, 0) == RequestEnded(0, RequestState.DONE, FinishReason.LENGTH, None, 30)


def test_an_end_as_first_token_finishes_with_no_audio() -> None:
    told = world()
    told.arrive(0.0, 0, 0)
    told.run()
    assert _ended(told, 0) == RequestEnded(0, RequestState.DONE, FinishReason.NO_AUDIO, None, 0)
    assert _chunks(told) == []


def test_only_silence_is_no_audio_either() -> None:
    told = world()
    told.executor.chunk_samples = lambda c: 0
    told.arrive(0.0, 0, 12)
    told.run()
    assert _ended(told, 0).reason is FinishReason.NO_AUDIO


def test_the_watchdog_ends_the_whole_request() -> None:
    told = world()
    _answer_with(told, lambda event: _flag(event, 3, RowStatus.WATCHDOG))
    told.arrive(0.0, 0, (20, 20))
    told.run()
    assert _ended(told, 0) == RequestEnded(0, RequestState.DONE, FinishReason.WATCHDOG, None, 3)


def test_the_end_is_read_one_step_late_and_the_extra_row_discarded() -> None:
    told = world(prepared={"lm_depth": 2, "num_kv_pages": 64, "kv_page_tokens": 16})
    told.arrive(0.0, 0, 12)
    told.run()
    end_s = PREFILL_S + 12 * STEP_S  # eleven more frames, then the end token
    assert entered(told, 0, RequestState.DRAINING).time_s == pytest.approx(end_s)
    assert spans(told, LaneName.LM)[-1].end_s == pytest.approx(end_s + STEP_S)
    assert _ended(told, 0).num_frames == 12
    assert _released_s(told, 0) == pytest.approx(end_s + STEP_S)
    assert told.scheduler.num_free_pages == 64


def test_the_next_piece_survives_the_extra_row_of_the_last_one() -> None:
    told = world(prepared={"lm_depth": 2})
    told.arrive(0.0, 0, (12, 13))
    told.run()
    assert _ended(told, 0) == RequestEnded(0, RequestState.DONE, FinishReason.END, None, 25)


def test_pages_return_when_the_launched_step_has_ended_and_the_slot_with_the_last_chunk() -> None:
    told = world(prepared={"lm_depth": 2, "num_kv_pages": 64, "kv_page_tokens": 16})
    told.executor.duration_s = lambda job, estimate_s: (
        0.5 if isinstance(job, CodecJob) else estimate_s
    )
    told.arrive(0.0, 0, 12)
    end_s = PREFILL_S + 12 * STEP_S
    told.run(until_s=end_s + 0.5 * STEP_S)
    assert told.scheduler.num_free_pages < 64
    told.run(until_s=end_s + 1.5 * STEP_S)
    assert told.scheduler.num_free_pages == 64
    assert told.scheduler.num_free_slots == told.prepared.num_slots - 1
    told.run()
    assert _released_s(told, 0) == chunk(told, 0, 1).delivered_s


def test_cancelled_is_told_at_once_and_nothing_is_delivered_after_it() -> None:
    told = world()
    told.arrive(0.0, 0, 60)
    cancel_s = FIRST_S + 0.5 * URGENT_S  # its first chunk is on the urgent lane
    told.send(cancel_s, Cancel(0))
    told.run()
    assert entered(told, 0, RequestState.CANCELLED).time_s == cancel_s
    assert not any(isinstance(n, ChunkDelivered) for _, n in told.notices)
    dropped = chunk(told, 0, 0)
    assert dropped.delivered_s is None
    assert dropped.launched_s == pytest.approx(FIRST_S)
    # The codec batch ends first, the decode step that was in flight last.
    assert _released_s(told, 0) == pytest.approx(FIRST_S + STEP_S)
    assert len(spans(told, LaneName.LM)) == 11


def test_unknown_and_ended_ids_are_ignored() -> None:
    told = world()
    told.arrive(0.0, 0, 5)
    for at_s in (0.01, 1.0):
        told.send(at_s, Cancel(99))
    told.send(1.0, Cancel(0))
    told.send(1.0, Fail(0, "too late"))
    told.run()
    assert _ended(told, 0).state is RequestState.DONE


def test_a_request_can_fail_by_itself() -> None:
    told = world()
    told.arrive(0.0, 0, 60)
    told.arrive(0.0, 1, 12)
    told.send(0.050, Fail(0, "its consumer is gone"))
    told.run()
    assert _ended(told, 0) == RequestEnded(0, RequestState.FAILED, None, "its consumer is gone", 5)
    assert _ended(told, 1).state is RequestState.DONE


def _answer_with(told: FakeWorld, change: Any) -> None:
    """Lets a test alter the events that end jobs."""
    ended = told.executor.ended
    told.executor.ended = lambda: [JobResult(change(result.event)) for result in ended()]


def _flag(event: JobEnded, job_id: int, status: RowStatus) -> JobEnded:
    if event.job_id != job_id:
        return event
    assert isinstance(event, StepDone)
    return StepDone(job_id, np.full(len(event.status), status, dtype=np.int8), 0.0, 0.0)


@pytest.mark.parametrize("first_job", [0, 3])
def test_a_failed_row_fails_its_request_only(first_job: int) -> None:
    told = world(prepared={"lm_depth": 2})

    def change(event: JobEnded) -> JobEnded:
        if isinstance(event, StepDone) and event.job_id == first_job:
            return StepDone(event.job_id, event.status, 0.0, 0.0, {1: "row broke"})
        return event

    _answer_with(told, change)
    told.arrive(0.0, 0, 12)
    told.arrive(0.0, 1, 12)
    told.run()
    assert (_ended(told, 1).state, _ended(told, 1).error) == (RequestState.FAILED, "row broke")
    assert _ended(told, 0).state is RequestState.DONE


def test_a_failed_chunk_fails_its_request_only() -> None:
    told = world()

    def change(event: JobEnded) -> JobEnded:
        if isinstance(event, CodecDone) and len(event.num_samples) == 2:
            return CodecDone(event.job_id, event.num_samples, 0.0, 0.0, {0: "bad codes"})
        return event

    _answer_with(told, change)
    told.arrive(0.0, 0, 12)
    told.arrive(0.0, 1, 12)
    told.run()
    assert _ended(told, 0).error == "bad codes"
    assert _ended(told, 1).state is RequestState.DONE
    assert len([c for c in told.records(ChunkLife) if c.request_id == 1]) == 2


@pytest.mark.parametrize("job_id", [0, 2, 11])
def test_a_failed_job_fails_its_requests_and_the_engine_goes_on(job_id: int) -> None:
    told = world(prepared={"lm_depth": 2})

    def change(event: JobEnded) -> JobEnded:
        is_hit = event.job_id == job_id
        return JobFailed(job_id, "out of memory", 0.0, 0.0) if is_hit else event

    _answer_with(told, change)
    told.arrive(0.0, 0, 12)
    told.arrive(0.5, 1, 12)
    told.run()
    assert (_ended(told, 0).state, _ended(told, 0).error) == (
        RequestState.FAILED,
        "out of memory",
    )
    assert _ended(told, 1).state is RequestState.DONE
    assert told.scheduler.num_free_slots == told.prepared.num_slots
