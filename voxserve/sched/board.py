"""The scheduler's shared state: requests, lanes, settings, and the records and notices to come.

The parts of the scheduler (LM lane, codec lanes, request life) each own their decisions and share
this board; it holds no rule of its own beyond which partition a lane runs on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from voxserve.core.events import Packed, PackedChunks, PackedSpan, Record
from voxserve.core.jobs import Job, LaneName, Notice, Partition, Role
from voxserve.core.protocols import CostModel
from voxserve.core.settings import MAX_RAMP, Prepared, Settings, Split
from voxserve.sched.estimates import Estimates
from voxserve.sched.pages import PageAllocator
from voxserve.sched.policies import make_policy
from voxserve.sched.policy import Policy
from voxserve.sched.recent import FirstAudio, Share
from voxserve.sched.state import ActiveRequest, IntArray, SlotTable

LATE_WINDOW_S = 2.0  # of first chunks


@dataclass(slots=True, eq=False)
class InFlight:
    """A job that an executor has and has not answered.

    Attributes:
        slots: [rows] int64, in row order.
        estimate_s, ends_s: Estimated duration and end.
        request_id: [rows] int64, in row order.
        is_row: [width] int64 of 0 and 1, for steps: adding it to a column is faster than
            indexing with `slots`.
        lives: Of a codec job's chunks, when a trace is kept.
    """

    job: Job
    slots: IntArray
    request_id: IntArray
    estimate_s: float
    ends_s: float
    is_row: IntArray | None = None
    lives: PackedChunks | None = None


class Board:
    """See the module docstring.

    Attributes:
        waiting: Requests without a slot, oldest first.
        continuing: Requests whose next piece needs a prefill, oldest first.
        requests: By id, until the request has ended.
        jobs: In flight, by job id; `lanes` lists their ids per lane, oldest first.
        settings: In force; `adopt` changes them.
        has_partitions: Lanes run beside each other, each on its part of the split.
        has_urgent_lane: Urgent chunks have a lane of their own.
        lm_split, codec_split: The split each lane runs on (they follow the setting one by one).
        released_s: When the last slots came back.
        first_audio, late_firsts: How soon the last requests got it, and how many of them late.
        delivered: (time, frames) of the last codec batches.
        is_overloaded: See `overload`.
        wake_s: The earliest timer that the last decision left.
    """

    def __init__(
        self,
        prepared: Prepared,
        settings: Settings,
        cost: CostModel,
        frame_s: float,
        sample_rate_hz: int,
        codec_delay_samples: int,
        lookahead_frames: int,
        record: Callable[[Record | Packed], None] | None,
        policy: Policy | None,
        role: Role = Role.BOTH,
    ) -> None:
        self.role = role
        self.prepared = prepared
        self.adopt(settings)
        self.estimates = Estimates(cost, prepared)
        self.frame_s = frame_s
        self.sample_rate_hz = sample_rate_hz
        self.codec_delay_samples = codec_delay_samples
        self.lookahead_frames = lookahead_frames
        self.record = record
        self.policy = policy if policy is not None else make_policy(settings.policy)
        self.table = SlotTable(prepared.num_slots, MAX_RAMP)
        if role is Role.LM:
            self.table.heard_elsewhere()
        self.pages = PageAllocator(prepared.num_kv_pages)
        self.waiting: deque[ActiveRequest] = deque()
        self.continuing: deque[ActiveRequest] = deque()
        self.requests: dict[int, ActiveRequest] = {}
        self.jobs: dict[int, InFlight] = {}
        self.lanes: dict[LaneName, list[int]] = {lane: [] for lane in LaneName}
        self.lm_split = self.codec_split = settings.sm_split
        self.notices: list[Notice] = []
        self.released_s: deque[float] = deque(maxlen=32)
        self.first_audio = FirstAudio()
        self.late_firsts = Share(LATE_WINDOW_S)
        self.delivered: deque[tuple[float, int]] = deque(maxlen=4096)
        self.is_overloaded = False
        self.wake_s = np.inf
        self._next_job_id = 0

    def adopt(self, settings: Settings) -> None:
        """Takes settings that are in force from now on."""
        self.settings = settings
        self.has_urgent_lane = settings.lane_mode == "partitioned_urgent"
        self.has_partitions = self.has_urgent_lane or settings.lane_mode == "partitioned"

    @property
    def admission(self) -> str:
        """The admission in force: overload can put `prefill_first` in its place."""
        if self.is_overloaded and self.settings.overload == "prefill_first":
            return "prefill_first"
        return self.settings.admission

    def lm_partition(self, split: Split) -> Partition:
        """Where a decode step runs."""
        return Partition.LM if self.has_partitions and split.lm_sms else Partition.WHOLE

    def codec_partition(self, split: Split) -> Partition:
        """Where a background batch runs."""
        return Partition.CODEC if self.has_partitions and split.lm_sms else Partition.WHOLE

    def step_s(self) -> float:
        """Estimated time of a decode step with the requests that run now."""
        return self._step_s(int(np.count_nonzero(self.table.is_active)))

    def pace_s(self) -> float:
        """Estimated time per frame of each request once those that wait run too."""
        rows = int(np.count_nonzero(self.table.is_active)) + len(self.waiting)
        return self._step_s(rows) * max(1.0, rows / self.settings.max_decode_batch)

    def _step_s(self, rows: int) -> float:
        rows = max(1, min(rows, self.settings.max_decode_batch))
        split = self.lm_split
        return self.estimates.decode_s(rows, split, self.lm_partition(split))

    def is_idle(self, lane: LaneName) -> bool:
        """Whether the lane has no job in flight."""
        return not self.lanes[lane]

    def new_job_id(self) -> int:
        """Unique, ascending in order of decision."""
        self._next_job_id += 1
        return self._next_job_id - 1

    def start(self, now_s: float, job: Job, slots: IntArray, estimate_s: float) -> InFlight:
        """Books a job on its lane, behind what is there."""
        in_lane = self.lanes[job.lane]
        start_s = max(now_s, self.jobs[in_lane[-1]].ends_s) if in_lane else now_s
        owners = self.table.request_id[slots]
        entry = InFlight(job, slots, owners, estimate_s, start_s + estimate_s)
        self.jobs[job.job_id] = entry
        in_lane.append(job.job_id)
        return entry

    def finish(self, job_id: int, start_s: float, end_s: float, failed: bool) -> InFlight:
        """Takes an answered job off its lane and records its span."""
        assert job_id in self.jobs, f"job {job_id} was answered twice or never handed out"
        entry = self.jobs.pop(job_id)
        in_lane = self.lanes[entry.job.lane]
        in_lane.remove(job_id)
        if in_lane:  # the next one starts now, whatever had been estimated
            following = self.jobs[in_lane[0]]
            following.ends_s = end_s + following.estimate_s
        if self.record is not None:
            self.record(PackedSpan(entry.job, entry.request_id, start_s, end_s, failed))
        return entry

    def wake_at(self, time_s: float) -> None:
        """Asks for a decision at `time_s` at the latest."""
        self.wake_s = min(self.wake_s, time_s)
