"""The GPU executor's logic over a driver that computes on the CPU: jobs in, one event for each."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from eager_driver import EagerDriver
from fake_model import BROKEN_STEP, FRAME_SAMPLES, NOT_A_NUMBER, FakeModel, code_of

from voxserve.core.chunk import ChunkRef, Chunks
from voxserve.core.errors import EngineFailed
from voxserve.core.jobs import (
    CodecDone,
    CodecJob,
    DecodeJob,
    JobFailed,
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
from voxserve.runtime.cuda import Capacity, CudaExecutor
from voxserve.runtime.executables import Sizes

SPLIT = Split(8, 4)
SIZES = Sizes(decode=(1, 4), prefill=(32, 64), codec=(1, 4), urgent=(1, 2), chunk_frames=(2, 10))


def make_executor(**options) -> tuple[CudaExecutor, EagerDriver]:
    clock = MonotonicClock()
    driver = EagerDriver(clock)
    options = {"splits": (SPLIT, Split()), "cuts_silence": False, **options}
    executor = CudaExecutor(
        FakeModel(), driver, clock, sizes=SIZES, capacity=Capacity(8, 0, 256), **options
    )
    return executor, driver


@pytest.fixture
def executor() -> CudaExecutor:
    return make_executor()[0]


def open_slots(executor: CudaExecutor, *texts: str) -> None:
    for slot, text in enumerate(texts):
        request = FakeModel().preprocess(text, SpeechOptions(seed=slot))
        executor.open_slot(slot, slot, request)


def prefill(*slots: int, job_id: int = 0, tokens: int = 2) -> PrefillJob:
    none = ((),) * len(slots)
    total = tokens * len(slots)
    return PrefillJob(job_id, slots, slots, (0,) * len(slots), none, total, 32, 0.0, SPLIT)


def decode(*slots: int, job_id: int = 1, split: Split = SPLIT) -> DecodeJob:
    partition = Partition.WHOLE if split.is_none else Partition.LM
    return DecodeJob(job_id, np.array(slots, np.int32), 4, 0.0, split, partition)


def codec(*chunks: ChunkRef, job_id: int = 2, lane: LaneName = LaneName.BACKGROUND) -> CodecJob:
    is_urgent = lane is LaneName.URGENT
    partition = Partition.WHOLE if is_urgent else Partition.CODEC
    bucket = 2 if is_urgent else 4
    return CodecJob(job_id, lane, Chunks.of(chunks), bucket, 2, 0.0, SPLIT, partition)


def run(executor: CudaExecutor, job: PrefillJob | DecodeJob | CodecJob) -> JobResult:
    executor.launch(job)
    (result,) = executor.results(1.0)
    return result


def assert_all_buffers_are_back(executor: CudaExecutor) -> None:
    for pool in executor._buffers.pools:
        assert pool.num_free == pool.num_buffers


def test_every_size_is_captured_on_its_partition():
    _, driver = make_executor()
    by_place: dict[tuple[LaneName, Partition], int] = {}
    for lane, _, partition in driver.captured:
        by_place[lane, partition] = by_place.get((lane, partition), 0) + 1
    assert by_place == {
        (LaneName.LM, Partition.WHOLE): 2 + 2,  # prefills and decode steps
        (LaneName.LM, Partition.LM): 2,
        (LaneName.BACKGROUND, Partition.WHOLE): 2,
        (LaneName.BACKGROUND, Partition.CODEC): 2,
        (LaneName.URGENT, Partition.WHOLE): 4,
    }


def test_a_request_from_prompt_to_samples(executor: CudaExecutor):
    open_slots(executor, "one two")
    event = run(executor, prefill(0)).event
    assert isinstance(event, StepDone)
    assert event.status.tolist() == [RowStatus.CONTINUE]
    assert event.start_s <= event.end_s
    run(executor, decode(0))
    result = run(executor, codec(ChunkRef(0, 0, 0, 0, 2, True)))
    assert isinstance(result.event, CodecDone)
    assert result.event.num_samples == (2 * FRAME_SAMPLES,)
    levels = result.pcm[0].reshape(2, FRAME_SAMPLES)
    assert (levels == levels[:, :1]).all()
    assert levels[0, 0] < levels[1, 0]  # code_of(0, 0) < code_of(0, 1)
    assert code_of(0, 0) < code_of(0, 1)
    assert_all_buffers_are_back(executor)


def test_the_end_of_a_sequence_is_told_per_row(executor: CudaExecutor):
    open_slots(executor, "one", "one two three")
    run(executor, prefill(0, 1))
    flags = [run(executor, decode(0, 1)).event.status.tolist() for _ in range(3)]
    going, end = RowStatus.CONTINUE, RowStatus.END
    assert flags == [[going, going], [going, going], [end, going]]


def test_the_next_step_is_launched_before_the_last_ones_flags_are_read():
    executor, driver = make_executor()
    assert executor.prepared.lm_depth == 2
    open_slots(executor, "one two three")
    driver.holds = True
    executor.launch(prefill(0))
    executor.launch(decode(0, job_id=1))
    assert executor.results(0.0) == []
    driver.release(LaneName.LM)
    (first,) = executor.results(1.0)
    assert first.event.job_id == 0
    executor.launch(decode(0, job_id=2))
    driver.release(LaneName.LM)
    driver.release(LaneName.LM)
    assert [result.event.job_id for result in executor.results(1.0)] == [1, 2]
    assert_all_buffers_are_back(executor)


def test_lanes_end_independently():
    executor, driver = make_executor()
    open_slots(executor, "one two three")
    run(executor, prefill(0))
    driver.holds = True
    executor.launch(decode(0, job_id=1))
    executor.launch(codec(ChunkRef(0, 0, 0, 0, 1, False), job_id=2, lane=LaneName.URGENT))
    driver.release(LaneName.URGENT)
    assert [result.event.job_id for result in executor.results(1.0)] == [2]
    driver.release(LaneName.LM)
    assert [result.event.job_id for result in executor.results(1.0)] == [1]


def test_samples_outlive_the_buffers_they_came_in(executor: CudaExecutor):
    open_slots(executor, "one two three", "one two three")
    run(executor, prefill(0, 1))
    first = run(executor, codec(ChunkRef(0, 0, 0, 0, 1, False))).pcm[0]
    before = first.copy()
    run(executor, codec(ChunkRef(1, 1, 0, 0, 1, False)))
    assert np.array_equal(first, before)


def test_many_short_prompts_run_as_several_replays(executor: CudaExecutor):
    open_slots(executor, *["one"] * 7)
    event = run(executor, prefill(*range(7), tokens=1)).event
    assert isinstance(event, StepDone)
    assert event.status.tolist() == [RowStatus.CONTINUE] * 7
    assert_all_buffers_are_back(executor)


def test_without_a_split_the_whole_device_is_used(executor: CudaExecutor):
    open_slots(executor, "one two")
    run(executor, prefill(0))
    assert isinstance(run(executor, decode(0, split=Split())).event, StepDone)


def test_a_job_that_cannot_be_launched_fails_alone(executor: CudaExecutor):
    open_slots(executor, f"one {BROKEN_STEP}", "one two")
    run(executor, prefill(0, 1))
    event = run(executor, decode(0)).event
    assert isinstance(event, JobFailed)
    assert BROKEN_STEP in event.error
    assert isinstance(run(executor, decode(1)).event, StepDone)
    assert_all_buffers_are_back(executor)


def test_samples_that_are_no_numbers_fail_their_row_alone(executor: CudaExecutor):
    open_slots(executor, "one two", f"one {NOT_A_NUMBER}")
    run(executor, prefill(0, 1))
    chunks = [ChunkRef(slot, slot, 0, 0, 1, False) for slot in (0, 1)]
    event = run(executor, codec(*chunks)).event
    assert isinstance(event, CodecDone)
    assert list(event.failed) == [1]
    assert event.num_samples == (FRAME_SAMPLES, 0)


@pytest.mark.parametrize("is_launching", [True, False])
def test_a_device_error_ends_the_engine(is_launching: bool):
    executor, driver = make_executor()
    open_slots(executor, "one two")
    run(executor, prefill(0))
    driver.holds = True
    executor.launch(decode(0))
    driver.error = RuntimeError("CUDA error: an illegal memory access was encountered")
    meet = partial(executor.launch, decode(0)) if is_launching else partial(executor.results, 1.0)
    with pytest.raises(EngineFailed, match="illegal memory access"):
        meet()


def test_another_split_can_be_captured_later():
    executor, driver = make_executor()
    before = len(driver.captured)
    prepared = executor.add_split(Split(10, 2))
    assert prepared.splits == (SPLIT, Split(), Split(10, 2))
    assert executor.prepared is prepared
    assert {(split, partition) for _, split, partition in driver.captured[before:]} == {
        (Split(10, 2), Partition.LM),
        (Split(10, 2), Partition.CODEC),
    }
    open_slots(executor, "one two")
    run(executor, prefill(0))
    assert isinstance(run(executor, decode(0, split=Split(10, 2))).event, StepDone)


def test_closing_lets_go_of_everything():
    executor, driver = make_executor()
    open_slots(executor, "one two")
    run(executor, prefill(0))
    executor.close()
    assert driver.is_closed
    assert executor._model is None
    assert not list(executor._executables.items())


def test_estimates_follow_what_jobs_take(executor: CudaExecutor):
    before = executor.cost.decode_s(1, SPLIT, Partition.LM)
    assert before > 0.0
    job = decode(0)
    for _ in range(200):
        executor._timings.observe(job, 10.0 * before)
    assert executor.cost.decode_s(1, SPLIT, Partition.LM) > 2.0 * before
