"""The CPU executor alone: jobs in, one event for each out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from fake_model import BROKEN_STEP, FRAME_SAMPLES, FakeModel, code_of
from waiting import voxserve_threads

from voxserve.core.chunk import ChunkRef, Chunks
from voxserve.core.errors import EngineFailed
from voxserve.core.jobs import (
    CodecDone,
    CodecJob,
    DecodeJob,
    LaneName,
    Partition,
    PrefillJob,
    RowStatus,
    StepDone,
)
from voxserve.core.protocols import JobResult
from voxserve.core.settings import Split
from voxserve.engine.clock import MonotonicClock
from voxserve.models.request import SpeechOptions
from voxserve.runtime.cpu import CpuExecutor

SPLIT = Split(1, 1)


@pytest.fixture
def executor() -> Iterator[CpuExecutor]:
    executor = CpuExecutor(FakeModel(), MonotonicClock(), "test")
    yield executor
    executor.close()
    assert not voxserve_threads()


def open_slots(executor: CpuExecutor, *texts: str) -> None:
    for slot, text in enumerate(texts):
        request = executor._model.preprocess(text, SpeechOptions(seed=slot))
        executor.open_slot(slot, slot, request)


def prefill(*slots: int, piece: int = 0, job_id: int = 0) -> PrefillJob:
    pieces = (piece,) * len(slots)
    pages = ((),) * len(slots)
    return PrefillJob(job_id, slots, slots, pieces, pages, 2 * len(slots), 128, 0.0, SPLIT)


def decode(*slots: int, job_id: int = 1) -> DecodeJob:
    return DecodeJob(job_id, np.array(slots, np.int32), 8, 0.0, SPLIT, Partition.LM)


def codec(*chunks: ChunkRef, job_id: int = 2, lane: LaneName = LaneName.URGENT) -> CodecJob:
    return CodecJob(job_id, lane, Chunks.of(chunks), 8, 10, 0.0, SPLIT, Partition.WHOLE)


def result_of(executor: CpuExecutor, job) -> JobResult:
    executor.launch(job)
    results: list[JobResult] = []
    while not results:
        results = executor.results(1.0)
    assert len(results) == 1
    assert results[0].event.job_id == job.job_id
    assert 0 <= results[0].event.start_s <= results[0].event.end_s
    return results[0]


def test_rows_make_frames_until_their_own_end(executor):
    open_slots(executor, "one", "one two")
    event = result_of(executor, prefill(0, 1)).event
    assert isinstance(event, StepDone)
    assert event.status.tolist() == [RowStatus.CONTINUE] * 2
    statuses = [result_of(executor, decode(0, 1)).event.status.tolist() for _ in range(4)]
    assert [first for first, _ in statuses] == [0, 0, RowStatus.END, RowStatus.END]
    assert [second for _, second in statuses] == [RowStatus.CONTINUE] * 4


def test_a_codec_batch_of_different_lengths(executor):
    open_slots(executor, "one", "one two")
    result_of(executor, prefill(0, 1))
    for _ in range(2):
        result_of(executor, decode(0, 1))
    short, long = ChunkRef(0, 0, 0, 0, 1, False), ChunkRef(1, 1, 0, 0, 3, True)
    result = result_of(executor, codec(long, short))
    assert isinstance(result.event, CodecDone)
    assert result.event.num_samples == (3 * FRAME_SAMPLES, FRAME_SAMPLES)
    assert [len(pcm) for pcm in result.pcm] == [3 * FRAME_SAMPLES, FRAME_SAMPLES]
    assert len(set(result.pcm[0].tolist())) == len({code_of(1, frame) for frame in range(3)})


def test_a_broken_row_fails_alone(executor):
    open_slots(executor, "one", f"one {BROKEN_STEP}", "one")
    result_of(executor, prefill(0, 1, 2))
    event = result_of(executor, decode(0, 1, 2)).event
    assert isinstance(event, StepDone)
    assert list(event.failed) == [1]
    assert "RuntimeError: the fake model met" in event.failed[1]
    assert event.status.tolist() == [RowStatus.CONTINUE, RowStatus.END, RowStatus.CONTINUE]


def test_a_job_of_an_unknown_slot_fails_and_the_lane_lives(executor):
    event = result_of(executor, decode(9)).event
    assert isinstance(event, StepDone)
    assert "KeyError" in event.failed[0]
    open_slots(executor, "one")
    assert isinstance(result_of(executor, prefill(0)).event, StepDone)


def test_text_that_is_refused_fails_its_own_request(executor):
    open_slots(executor, "one", "one")
    result_of(executor, prefill(0, 1))
    executor.append_text(0, 0, np.zeros(1, np.int32), True)  # the fake takes whole texts only
    event = result_of(executor, decode(0, 1)).event
    assert isinstance(event, StepDone)
    assert "whole texts only" in event.failed.pop(0)
    assert not event.failed


def test_lanes_do_not_wait_for_each_other():
    model = FakeModel()
    executor = CpuExecutor(model, MonotonicClock(), "test")
    open_slots(executor, "one two three")
    result_of(executor, prefill(0))
    model.codec_s = 0.3
    executor.launch(codec(ChunkRef(0, 0, 0, 0, 1, False), lane=LaneName.BACKGROUND))
    assert isinstance(result_of(executor, decode(0)).event, StepDone)
    executor.close()


@pytest.mark.parametrize("cores", [1, 2])
def test_time_in_which_a_jobs_thread_could_not_run_is_told(
    monkeypatch: pytest.MonkeyPatch, cores: int
):
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    model = FakeModel()
    executor = CpuExecutor(model, MonotonicClock(), "test")
    open_slots(executor, "one two three")
    result_of(executor, prefill(0))
    model.codec_s = 0.3  # asleep, as one that waits for the interpreter
    result = result_of(executor, codec(ChunkRef(0, 0, 0, 0, 1, False)))
    if cores == 1:  # the lanes take turns, which is no host's delay
        assert result.stolen_s == 0.0
    else:
        assert 0.3 <= result.stolen_s <= result.event.end_s - result.event.start_s
    executor.close()


def test_waiting_ends_with_time_or_a_wake(executor):
    assert executor.results(0.0) == []
    executor.wake()
    assert executor.results(60.0) == []


def test_a_lane_that_ended_is_told(executor):
    executor._lanes[LaneName.LM].put(lambda: 1 / 0)
    with pytest.raises(EngineFailed, match="ZeroDivisionError"):
        executor.results(5.0)


def test_no_split_gives_every_lane_all_cores(executor):
    job = decode(0)
    assert executor._threads(job) == 1
    assert executor._threads(DecodeJob(0, job.slots, 1, 0.0, Split(), Partition.WHOLE)) >= 1
    assert executor.defaults.sm_split == SPLIT
    assert executor.defaults.changed(executor.prepared, sm_split="none").sm_split.is_none
