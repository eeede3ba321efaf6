"""The parts of the CPU executor: lanes, measured cost, leading silence, samples."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from voxserve.core.chunk import ChunkRef, Chunks
from voxserve.core.jobs import CodecJob, DecodeJob, LaneName, Partition
from voxserve.core.playback import AUDIBLE_LEVEL
from voxserve.core.settings import Prepared, Split
from voxserve.runtime.cpu import thread_splits
from voxserve.runtime.lane import CpuLane, use_threads
from voxserve.runtime.leading_silence import LeadingSilence
from voxserve.runtime.measured_cost import NOTICED, MeasuredCost
from voxserve.runtime.pcm import to_int16
from voxserve.sched.estimates import Estimates

RATE_HZ = 1000  # so that a sample is a millisecond


def test_a_lane_runs_in_order_and_ends():
    ran: list[int] = []
    lane = CpuLane("test-lane", pytest.fail)
    for i in range(100):
        lane.put(lambda i=i: ran.append(i))
    assert lane.close(20)
    assert ran == list(range(100))


def test_a_lane_that_crashes_says_so():
    crashes: list[BaseException] = []
    lane = CpuLane("test-lane", crashes.append)
    lane.put(lambda: 1 / 0)
    assert lane.close(20)
    assert isinstance(crashes[0], ZeroDivisionError)


def test_a_lane_that_does_not_end_is_reported():
    hold = threading.Event()
    lane = CpuLane("test-lane", pytest.fail)
    lane.put(hold.wait)
    assert not lane.close(0.01)
    hold.set()


def test_thread_counts_are_per_lane_and_leave_the_process_as_it_was():
    before = torch.get_num_threads()
    counts: list[int] = []

    def in_thread(call) -> None:
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()

    in_thread(lambda: counts.append(torch.get_num_threads()))
    in_thread(lambda: (use_threads(before + 2), counts.append(torch.get_num_threads())))
    in_thread(lambda: counts.append(torch.get_num_threads()))
    assert counts == [counts[0], before + 2, counts[0]]
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("cores", "splits"),
    [
        (1, ["1/1", "none"]),
        (2, ["1/1", "none"]),
        (4, ["1/1", "1/2", "1/3", "2/1", "2/2", "3/1", "none"]),
    ],
)
def test_splits_depend_on_the_cores(cores, splits):
    assert [str(split) for split in thread_splits(cores)] == splits


def make_cost() -> MeasuredCost:
    return MeasuredCost(
        decode_s={1: 0.010, 5: 0.018},
        prefill_s={50: 0.020},
        codec_s={2: {1: 0.004, 4: 0.010}, 10: {1: 0.012, 4: 0.030}},
    )


def test_cost_is_linear_between_and_beyond_measured_points():
    cost, split, whole = make_cost(), Split(1, 1), Partition.WHOLE
    assert cost.decode_s(1, split, whole) == pytest.approx(0.010)
    assert cost.decode_s(3, split, whole) == pytest.approx(0.014)
    assert cost.decode_s(9, split, whole) == pytest.approx(0.026)
    assert cost.prefill_s(500, 10, split) == pytest.approx(0.020)
    assert cost.codec_s(1, 6, split, whole) == pytest.approx(0.008)
    assert cost.codec_s(4, 20, split, whole) == pytest.approx(0.055)


def test_noisy_measurements_never_make_more_work_cheaper():
    cost = MeasuredCost({1: 0.010, 4: 0.009}, {1: 0.01}, {2: {1: 0.01}})
    assert cost.decode_s(8, Split(), Partition.WHOLE) == pytest.approx(0.010)


def test_cost_follows_what_jobs_take_and_stays_bounded():
    cost, split = make_cost(), Split(1, 1)
    job = DecodeJob(0, np.zeros(1, np.int32), 1, 0.0, split, Partition.WHOLE)
    for _ in range(100):
        cost.observe(job, 0.020)
    assert cost.decode_s(1, split, Partition.WHOLE) == pytest.approx(0.020, rel=NOTICED)
    assert cost.codec_s(1, 2, split, Partition.WHOLE) == pytest.approx(0.004)
    chunk = ChunkRef(0, 0, 0, 0, 2, False)
    codec = CodecJob(1, LaneName.URGENT, Chunks.of([chunk]), 1, 2, 0.0, split, Partition.WHOLE)
    for _ in range(1000):
        cost.observe(codec, 100.0)
    assert cost.codec_s(1, 2, split, Partition.WHOLE) <= 0.004 * 8


def test_the_schedulers_estimates_follow_corrections_and_stand_still_without():
    cost, split = make_cost(), Split(1, 1)
    prepared = Prepared(
        splits=(split,),
        decode_buckets=(1, 4),
        codec_buckets=(1, 4),
        urgent_buckets=(1,),
        prefill_buckets=(128,),
        chunk_frames=(2, 10),
        num_slots=4,
    )
    estimates = Estimates(cost, prepared)
    alone = estimates.alone_s(split, Partition.CODEC)
    assert estimates.decode_s(1, split, Partition.LM) == pytest.approx(0.010)
    job = DecodeJob(0, np.zeros(1, np.int32), 1, 0.0, split, Partition.LM)
    cost.observe(job, 0.0101)  # too little to matter
    assert cost.revision == 0
    assert estimates.alone_s(split, Partition.CODEC) is alone
    for _ in range(100):
        cost.observe(job, 0.020)
    assert estimates.decode_s(1, split, Partition.LM) == pytest.approx(0.020, rel=NOTICED)
    chunk = ChunkRef(0, 0, 0, 0, 2, False)
    codec = CodecJob(1, LaneName.URGENT, Chunks.of([chunk]), 1, 2, 0.0, split, Partition.WHOLE)
    for _ in range(100):
        cost.observe(codec, 0.008)
    assert estimates.codec_s(1, 2, split, Partition.CODEC) == pytest.approx(0.008, rel=NOTICED)
    assert estimates.alone_s(split, Partition.CODEC)[2] == pytest.approx(0.008, rel=NOTICED)


def tone(milliseconds: int) -> np.ndarray:
    return np.full(milliseconds, 1000, np.int16)


def quiet(milliseconds: int) -> np.ndarray:
    return np.full(milliseconds, AUDIBLE_LEVEL, np.int16)


def test_silence_is_cut_to_twenty_milliseconds():
    silence = LeadingSilence(RATE_HZ)
    assert len(silence.cut(quiet(300), is_last=False)) == 0
    out = silence.cut(np.concatenate([quiet(50), tone(150)]), is_last=False)
    assert np.array_equal(out, np.concatenate([quiet(20), tone(150)]))
    assert np.array_equal(silence.cut(quiet(80), is_last=False), quiet(80))


def test_the_kept_silence_may_come_from_the_chunk_before():
    silence = LeadingSilence(RATE_HZ)
    silence.cut(quiet(100), is_last=False)
    out = silence.cut(np.concatenate([quiet(5), tone(150)]), is_last=False)
    assert np.array_equal(out, np.concatenate([quiet(20), tone(150)]))


def test_too_short_a_start_waits_for_the_next_chunk():
    silence = LeadingSilence(RATE_HZ)
    assert len(silence.cut(np.concatenate([quiet(120), tone(79)]), is_last=False)) == 0
    out = silence.cut(tone(100), is_last=False)
    assert np.array_equal(out, np.concatenate([quiet(20), tone(179)]))


def test_the_last_chunk_holds_nothing_back():
    silence = LeadingSilence(RATE_HZ)
    silence.cut(np.concatenate([quiet(120), tone(40)]), is_last=False)
    assert np.array_equal(silence.cut(tone(5), is_last=True), np.concatenate([quiet(20), tone(45)]))


@given(
    st.lists(st.integers(1, 120), min_size=1, max_size=12),
    st.integers(0, 700),
)
def test_any_chunking_delivers_the_same_samples(sizes: list[int], silent: int):
    whole = np.concatenate([quiet(min(silent, sum(sizes))), tone(sum(sizes))])[: sum(sizes)]
    cutter, start, delivered = LeadingSilence(RATE_HZ), 0, []
    for i, size in enumerate(sizes):
        delivered.append(cutter.cut(whole[start : start + size], i == len(sizes) - 1))
        start += size
    audible = np.flatnonzero(whole > AUDIBLE_LEVEL)
    expected = whole[max(audible[0] - 20, 0) :] if audible.size else whole[:0]
    assert np.array_equal(np.concatenate(delivered), expected)


def test_samples_are_clipped_and_rounded():
    samples = torch.tensor([[-2.0, -1.0, 0.0, 0.5, 1.0, 1.5]])
    assert to_int16(samples).tolist() == [[-32767, -32767, 0, 16384, 32767, 32767]]
