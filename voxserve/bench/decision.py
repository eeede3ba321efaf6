"""Measures the scheduler's own cost: microseconds per decision with many running requests.

A decision is one `on_event` with the `next_jobs` that follows it, in a steady state: every
request speaks, decode steps of the largest batch follow each other, chunks fill both codec lanes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from voxserve.core.jobs import (
    Arrival,
    CodecDone,
    CodecJob,
    DecodeJob,
    Event,
    Job,
    PrefillJob,
    StepDone,
)
from voxserve.core.request import RequestSpec
from voxserve.core.settings import Prepared, Settings, Split
from voxserve.sim.fake import FakeWorld, TableCost

_FRAME_S = 0.08
_SAMPLE_RATE_HZ = 24_000
_COST = TableCost(
    decode=(0.004, 2e-5), prefill=(0.003, 1e-6), codec=(0.001, 5e-5), partition_factor=2.0
)


@dataclass(frozen=True, slots=True)
class DecisionTimes:
    """Seconds of the measured decisions.

    Attributes:
        num_running: Requests that were running.
        seconds: [decisions] float64.
    """

    num_running: int
    seconds: np.ndarray[tuple[int], np.dtype[np.float64]]

    def microseconds(self, percentile: float) -> float:
        """A percentile of the decisions, in µs."""
        return float(np.percentile(self.seconds, percentile)) * 1e6

    @property
    def mean_us(self) -> float:
        """Mean of the decisions, in µs."""
        return float(self.seconds.mean()) * 1e6


def measure_decisions(
    num_running: int, num_decisions: int = 3000, num_waiting: int = 0
) -> DecisionTimes:
    """Times decisions of the default policy with the trace on.

    Args:
        num_running: Requests that run throughout.
        num_decisions: Decisions to time, after a third as many to warm up.
        num_waiting: Prompts that wait for a slot throughout, so that admission and overload
            control have work, too.
    """
    loop = _Loop(num_running, num_waiting)
    warm_up = num_decisions // 3
    while loop.num_running < num_running:
        loop.turn()
    seconds = [loop.turn() for _ in range(warm_up + num_decisions)][warm_up:]
    return DecisionTimes(num_running, np.array(seconds))


class _Loop:
    """The smallest event loop: ends the job that ends first, and times the decision after it."""

    def __init__(self, num_running: int, num_waiting: int) -> None:
        prepared = _prepared(num_running)
        settings = Settings(
            sm_split=Split(100, 32), max_decode_batch=256, max_running=prepared.num_slots
        )
        world = FakeWorld(settings, prepared, _COST, is_checked=False)
        self._scheduler = world.scheduler
        self._now_s = 0.0
        self._ends: list[tuple[float, Job]] = []
        for request_id in range(num_running + num_waiting):
            ramp = (1 + request_id % 10, 10)  # so that not all chunks are ready at once
            spec = RequestSpec(request_id, 0.0, (20,), 10**9, ramp)
            self._scheduler.on_event(0.0, Arrival(spec))
        self._launch(self._scheduler.next_jobs(0.0))

    @property
    def num_running(self) -> int:
        return self._scheduler.num_running

    def turn(self) -> float:
        """One event and its decision; returns their seconds."""
        end_s, job = min(self._ends, key=lambda item: item[0])
        wake_s = self._scheduler.wakeup_s()
        if wake_s is not None and wake_s < end_s:
            self._now_s = max(wake_s, self._now_s)
            begin = time.perf_counter()
            jobs = self._scheduler.next_jobs(self._now_s)
        else:
            self._ends.remove((end_s, job))
            self._now_s = max(end_s, self._now_s)
            event = _answer(job, end_s)
            begin = time.perf_counter()
            self._scheduler.on_event(self._now_s, event)
            jobs = self._scheduler.next_jobs(self._now_s)
            self._scheduler.take_notices()
        seconds = time.perf_counter() - begin
        self._launch(jobs)
        return seconds

    def _launch(self, jobs: list[Job]) -> None:
        for job in jobs:
            self._ends.append((self._now_s + _duration_s(job), job))


def _prepared(num_running: int) -> Prepared:
    return Prepared(
        splits=(Split(), Split(100, 32)),
        decode_buckets=(1, 2, 4, 8, 16, 32, 64, 96, 128, 160, 192, 224, 256),
        codec_buckets=(1, 2, 4, 8, 16, 32, 64),
        urgent_buckets=(1, 2, 4, 8),
        prefill_buckets=(256, 512, 1024, 2048),
        chunk_frames=tuple(range(1, 11)),
        num_slots=num_running,
        max_context_tokens=10**9,
        max_request_frames=10**9,
        lm_depth=2,
    )


def _duration_s(job: Job) -> float:
    if isinstance(job, CodecJob):
        return _COST.codec_s(job.bucket, job.num_frames, job.split, job.partition)
    if isinstance(job, DecodeJob):
        return _COST.decode_s(job.bucket, job.split, job.partition)
    return _COST.prefill_s(job.num_tokens, len(job.slots), job.split)


def _answer(job: Job, end_s: float) -> Event:
    if isinstance(job, CodecJob):
        samples = tuple((job.chunks.num_frames * round(_FRAME_S * _SAMPLE_RATE_HZ)).tolist())
        return CodecDone(job.job_id, samples, job.queued_s, end_s)
    assert isinstance(job, PrefillJob | DecodeJob), f"unknown job {job!r}"
    return StepDone(job.job_id, np.zeros(len(job.slots), dtype=np.int8), job.queued_s, end_s)
