"""The simulated device: in-order lanes, contention while jobs overlap, exact ends."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from sim_profiles import round_profile

from voxserve.core.chunk import ChunkRef, Chunks
from voxserve.core.jobs import CodecJob, DecodeJob, LaneName, Partition, PrefillJob
from voxserve.core.profile import StageTime
from voxserve.core.settings import Split
from voxserve.sim.cost import ProfileCost
from voxserve.sim.gpu import Jitter, SimulatedGpu, chunk_samples, outcome

SPLIT = Split(100, 32)


def decode(job_id: int, rows: int = 16, partition: Partition = Partition.WHOLE) -> DecodeJob:
    return DecodeJob(job_id, np.arange(rows, dtype=np.int32), rows, 0.0, SPLIT, partition)


def codec(job_id: int, lane: LaneName, partition: Partition, is_last: bool = False) -> CodecJob:
    chunks = Chunks.of([ChunkRef(1, 0, 0, 0, 10, is_last)])
    return CodecJob(job_id, lane, chunks, 1, 10, 0.0, SPLIT, partition)


def device(**kwargs) -> SimulatedGpu:
    return SimulatedGpu(ProfileCost(round_profile(**kwargs)))


def test_a_lane_runs_its_jobs_in_order():
    gpu = device()
    assert gpu.next_end_s == math.inf
    gpu.launch(decode(1), 1.0)
    gpu.launch(decode(2), 1.001)
    assert gpu.next_end_s == pytest.approx(1.0116)
    ended = gpu.advance(2.0)
    assert [item.job.job_id for item in ended] == [1, 2]
    assert ended[1].start_s == ended[0].end_s
    assert ended[1].end_s == pytest.approx(1.0232)
    assert gpu.next_end_s == math.inf


def test_overlapping_jobs_slow_each_other_only_while_they_overlap():
    gpu = device()
    gpu.launch(decode(1, partition=Partition.LM), 0.0)
    alone_s = 0.0116 * (132 / 100) ** 0.5
    gpu.launch(codec(2, LaneName.URGENT, Partition.WHOLE), 0.002)
    first = gpu.advance(1.0)
    urgent_s = 0.0025 * 1.8
    assert [item.job.job_id for item in first] == [2, 1]
    assert first[0].end_s == pytest.approx(0.002 + urgent_s)
    lost_s = urgent_s * (1 - 1 / 2.25)
    assert first[1].end_s == pytest.approx(alone_s + lost_s)


def test_disjoint_partitions_hardly_disturb():
    gpu = device()
    gpu.launch(decode(1, partition=Partition.LM), 0.0)
    gpu.launch(codec(2, LaneName.BACKGROUND, Partition.CODEC), 0.0)
    ends = {item.job.job_id: item.end_s for item in gpu.advance(1.0)}
    assert ends[2] == pytest.approx(1.09 * 0.0025 * (132 / 32) ** 0.5)


def test_the_same_jobs_asked_for_in_small_steps_end_at_the_same_times():
    def ends(step_s: float) -> list[float]:
        gpu = device()
        found = []
        gpu.launch(decode(1), 0.0)
        gpu.launch(codec(2, LaneName.URGENT, Partition.WHOLE), 0.0)
        now_s = 0.0
        while gpu.next_end_s < math.inf:
            now_s += step_s
            found += gpu.advance(now_s)
        return [item.end_s for item in found]

    assert ends(0.0007) == pytest.approx(ends(1.0))


def test_launch_returns_what_ended_before_it():
    gpu = device()
    gpu.launch(decode(1), 0.0)
    assert [item.job.job_id for item in gpu.launch(decode(2), 0.5)] == [1]


def test_jitter_is_seeded_and_follows_the_profiled_spread():
    spread = StageTime("decode", 64, 0.0164, p10_s=0.015, p90_s=0.018)
    profile = round_profile()
    profile = replace(profile, times=(spread, *profile.times[1:]))
    first, second = (
        [jitter.factor("decode") for _ in range(500)]
        for jitter in (Jitter(profile, 1), Jitter(profile, 1))
    )
    assert first == second
    assert np.percentile(first, 90) / np.percentile(first, 10) == pytest.approx(1.2, abs=0.03)
    assert Jitter(profile, 1).factor("codec") == 1.0


def test_outcomes():
    gpu = device()
    prefill = PrefillJob(1, (7,), (0,), (0,), ((),), 20, 256, 0.0, SPLIT)
    gpu.launch(prefill, 0.0)
    gpu.launch(codec(2, LaneName.BACKGROUND, Partition.CODEC, is_last=True), 0.0)
    events = {item.job.job_id: outcome(item, 1920, 480) for item in gpu.advance(1.0)}
    assert events[1].status.tolist() == [0]
    assert events[2].num_samples == (19200,)


@pytest.mark.parametrize(
    ("first", "frames", "is_last", "samples"),
    [(0, 10, False, 18720), (10, 10, False, 19200), (10, 3, True, 6240), (0, 0, True, 0)],
)
def test_the_codec_delay_moves_samples_to_the_end(first, frames, is_last, samples):
    assert chunk_samples(first, frames, is_last, 1920, 480) == samples
