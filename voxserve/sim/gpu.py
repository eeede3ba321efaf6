"""A simulated device: three in-order lanes whose jobs slow each other down while they overlap.

Time is an argument: the simulator moves it in virtual time, the real-time executor by the clock.
A job is an amount of work (its seconds alone); the jobs at the heads of the lanes progress at
speeds that depend on which of them run together.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from voxserve.core.jobs import (
    CodecDone,
    CodecJob,
    DecodeJob,
    Job,
    JobKind,
    LaneName,
    StepDone,
)
from voxserve.core.profile import Profile
from voxserve.sim.contention import Work, speeds
from voxserve.sim.cost import ProfileCost

_LANES = (LaneName.LM, LaneName.BACKGROUND, LaneName.URGENT)
_LANE_INDEX = {lane: index for index, lane in enumerate(_LANES)}
_P10_TO_P90_SIGMAS = 2.563  # a normal distribution's distance between its 10 % and 90 % points


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that ended, in the order of ending."""

    job: Job
    start_s: float
    end_s: float


class Jitter:
    """Seeded log-normal factors with each stage's profiled spread (1 where it is unknown)."""

    def __init__(self, profile: Profile, seed: int) -> None:
        self._rng = np.random.default_rng([seed, 3])
        self._sigma = {stage: _sigma(profile, stage) for stage in ("decode", "prefill", "codec")}

    def factor(self, stage: str) -> float:
        """The next factor for this stage; its median is 1."""
        sigma = self._sigma[stage]
        return math.exp(sigma * float(self._rng.standard_normal())) if sigma else 1.0


def _sigma(profile: Profile, stage: str) -> float:
    spreads = [
        math.log(time.p90_s / time.p10_s) / _P10_TO_P90_SIGMAS
        for time in profile.times
        if time.stage == stage and time.p10_s and time.p90_s
    ]
    return float(np.median(spreads)) if spreads else 0.0


class SimulatedGpu:
    """Runs jobs on three lanes: `launch` them, `advance` time.

    Attributes:
        next_end_s: When the next job will end if nothing is launched before; infinite when idle.
    """

    def __init__(self, cost: ProfileCost, jitter: Jitter | None = None) -> None:
        self._cost = cost
        self._jitter = jitter
        self._waiting: tuple[deque[Job], ...] = tuple(deque[Job]() for _ in _LANES)
        self._running: list[Job | None] = [None, None, None]
        self._work: list[Work | None] = [None, None, None]
        self._left_s = [0.0, 0.0, 0.0]
        self._start_s = [0.0, 0.0, 0.0]
        self._speed = [0.0, 0.0, 0.0]
        self._speeds: dict[tuple[Work | None, ...], list[float]] = {}
        self._next_lane = 0
        self._now_s = 0.0  # up to here `_left_s` is accounted for
        self.next_end_s = math.inf

    def launch(self, job: Job, now_s: float) -> list[Ended]:
        """Queues a job on its lane at `now_s`; returns what ended until then."""
        ended = self.advance(now_s) if self.next_end_s <= now_s else []
        lane = _LANE_INDEX[job.lane]
        if self._running[lane] is None:
            self._progress(now_s)
            self._start(lane, job)
            self._set_speeds()
        else:
            self._waiting[lane].append(job)
        return ended

    def advance(self, now_s: float) -> list[Ended]:
        """Moves to `now_s` and returns the jobs that ended at or before it."""
        ended: list[Ended] = []
        while self.next_end_s <= now_s:
            end_s = self.next_end_s
            self._progress(end_s)
            ended.append(self._end(self._next_lane, end_s))
        return ended

    def _progress(self, now_s: float) -> None:
        passed_s = now_s - self._now_s
        left_s, speed = self._left_s, self._speed
        left_s[0] -= passed_s * speed[0]
        left_s[1] -= passed_s * speed[1]
        left_s[2] -= passed_s * speed[2]
        self._now_s = now_s

    def _end(self, lane: int, end_s: float) -> Ended:
        job = self._running[lane]
        assert job is not None, "a lane without a job cannot end one"
        ended = Ended(job, self._start_s[lane], end_s)
        if self._waiting[lane]:
            self._start(lane, self._waiting[lane].popleft())
        else:
            self._running[lane] = self._work[lane] = None
            self._left_s[lane] = 0.0
        self._set_speeds()
        return ended

    def _start(self, lane: int, job: Job) -> None:
        self._running[lane] = job
        self._start_s[lane] = self._now_s
        sms = self._cost.sms(job.split, job.partition)
        if isinstance(job, DecodeJob):
            stage, work_s = "decode", self._cost.work_s("decode", job.bucket, sms)
        elif isinstance(job, CodecJob):
            stage, work_s = "codec", self._cost.work_s("codec", job.bucket, sms, job.num_frames)
        else:
            rows = len(job.request_ids)
            stage, work_s = "prefill", self._cost.work_s("prefill", rows, 0, job.num_tokens)
        kind = job.lane.value if job.kind is JobKind.CODEC else stage
        self._work[lane] = Work(kind, sms != 0)
        self._left_s[lane] = work_s * (self._jitter.factor(stage) if self._jitter else 1.0)

    def _set_speeds(self) -> None:
        key = tuple(self._work)
        found = self._speeds.get(key)
        if found is None:
            at = [lane for lane in (0, 1, 2) if key[lane] is not None]
            together = speeds(self._cost.contention, [work for work in key if work is not None])
            found = [0.0, 0.0, 0.0]
            for lane, speed in zip(at, together, strict=True):
                found[lane] = speed
            self._speeds[key] = found
        self._speed = found
        best_s = math.inf
        for lane in (0, 1, 2):
            speed = found[lane]
            if speed and self._left_s[lane] < best_s * speed:
                best_s = self._left_s[lane] / speed
                self._next_lane = lane
        self.next_end_s = self._now_s + max(best_s, 0.0)


def chunk_samples(
    first_frame: int, num_frames: int, is_last: bool, frame_samples: int, delay_samples: int
) -> int:
    """Samples a codec gives for a chunk: the first short by its delay, the last long by it."""
    samples = num_frames * frame_samples
    if delay_samples and first_frame == 0:
        samples -= min(delay_samples, samples)
    if delay_samples and is_last:
        samples += min(delay_samples, (first_frame + num_frames) * frame_samples)
    return samples


@cache
def _all_went_on(rows: int) -> NDArray[np.int8]:
    status = np.zeros(rows, np.int8)
    status.flags.writeable = False
    return status


def outcome(ended: Ended, frame_samples: int, delay_samples: int) -> StepDone | CodecDone:
    """The event that tells the scheduler: every row made its frame, every chunk its samples."""
    job = ended.job
    if isinstance(job, CodecJob):
        samples = job.chunks.num_frames * frame_samples
        if delay_samples:
            each = (
                chunk_samples(c.first_frame, c.num_frames, c.is_last, frame_samples, delay_samples)
                for c in job.chunks
            )
            samples = np.fromiter(each, np.int64, len(job.chunks))
        return CodecDone(job.job_id, samples, ended.start_s, ended.end_s)
    return StepDone(job.job_id, _all_went_on(len(job.slots)), ended.start_s, ended.end_s)
