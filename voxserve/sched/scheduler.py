"""The scheduler: a pure state machine of events in, jobs out.

It reads no clock and does no I/O: time is an argument, so the same events give the same decisions
under the engine and under the simulator. The rules live beside it: `lm_lane` and `admission`
(what the backbone does), `codec_lanes` and the policy (what the codec does), `progress` and
`delivery` (what ended jobs mean), `life` (how requests start and end).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import numpy as np

from voxserve.core.events import Packed, Record, SettingChange
from voxserve.core.jobs import (
    Arrival,
    Cancel,
    CodecDone,
    CodecJob,
    CodesArrived,
    Event,
    Fail,
    HeardElsewhere,
    Job,
    JobFailed,
    LaneName,
    ListenerReport,
    Notice,
    PolicyChanged,
    Role,
    SettingsChanged,
    StepDone,
    TextArrived,
)
from voxserve.core.protocols import CostModel
from voxserve.core.request import RequestState
from voxserve.core.settings import Prepared, Settings
from voxserve.sched.board import Board
from voxserve.sched.codec_lanes import CodecLanes
from voxserve.sched.codec_role import codes_arrived, open_streams
from voxserve.sched.delivery import codec_done, codec_failed, heard_elsewhere
from voxserve.sched.life import arrive, end
from voxserve.sched.listener import listener_report
from voxserve.sched.lm_lane import LmLane
from voxserve.sched.overload import Overload
from voxserve.sched.policies import make_policy
from voxserve.sched.policy import Policy
from voxserve.sched.progress import step_done, step_failed, text_arrived


class Scheduler:
    """Decides what runs next on each lane.

    Args:
        prepared: What the device has executables for.
        settings: Settings in force at the start.
        cost: Estimated seconds of each stage.
        frame_s: Seconds of audio per frame.
        sample_rate_hz: Of the samples that codec jobs report.
        codec_delay_samples: Samples the codec holds back until its flush.
        lookahead_frames: Frames after a chunk that its decode needs.
        record: Takes trace records, or None.
        role: Whether this device generates, decodes, or both.
        policy: Used instead of the one that `settings.policy` names, until that setting changes.

    Attributes:
        board: Its state, for checkers and displays; only the scheduler changes it.
    """

    def __init__(
        self,
        prepared: Prepared,
        settings: Settings,
        cost: CostModel,
        frame_s: float,
        sample_rate_hz: int,
        *,
        codec_delay_samples: int = 0,
        lookahead_frames: int = 0,
        record: Callable[[Record | Packed], None] | None = None,
        policy: Policy | None = None,
        role: Role = Role.BOTH,
    ) -> None:
        self.board = Board(
            prepared,
            settings,
            cost,
            frame_s,
            sample_rate_hz,
            codec_delay_samples,
            lookahead_frames,
            record,
            policy,
            role,
        )
        self._lm = LmLane(self.board)
        self._overload = Overload(self.board)
        self._codec = CodecLanes(self.board, self._overload)
        self._codec_had_turn = True

    def on_event(self, now_s: float, event: Event) -> None:
        """Takes one event; decisions follow in `next_jobs`."""
        board = self.board
        if isinstance(event, StepDone):
            step_done(board, now_s, event)
        elif isinstance(event, CodecDone):
            codec_done(board, now_s, event)
        elif isinstance(event, Arrival):
            self._overload.update(now_s)
            arrive(board, now_s, event.spec, self._overload.refusal(now_s, event.spec))
        elif isinstance(event, Cancel):
            self._end(now_s, event.request_id, RequestState.CANCELLED, "")
        elif isinstance(event, Fail):
            self._end(now_s, event.request_id, RequestState.FAILED, event.error)
        elif isinstance(event, JobFailed):
            self._job_failed(now_s, event)
        elif isinstance(event, SettingsChanged):
            self._change_settings(now_s, event.settings)
        elif isinstance(event, PolicyChanged):
            self._change_policy(now_s, event.policy)
        elif isinstance(event, TextArrived):
            text_arrived(board, now_s, event.request_id, event.num_tokens, event.complete)
        elif isinstance(event, CodesArrived):
            codes_arrived(board, now_s, event)
        elif isinstance(event, HeardElsewhere):
            heard_elsewhere(board, now_s, event)
        else:
            assert isinstance(event, ListenerReport), f"unknown event {event!r}"
            listener_report(board, now_s, event)

    def next_jobs(self, now_s: float) -> list[Job]:
        """Jobs to launch now, urgent work first; call it after each batch of events and timer."""
        board = self.board
        board.wake_s = np.inf
        self._overload.update(now_s)
        if board.role is Role.CODEC:
            open_streams(board, now_s)
            return [*self._codec.next_jobs(now_s, not board.table.is_active.any())]
        if board.role is Role.LM:
            return [*self._codec.next_jobs(now_s, lm_is_idle=False), *self._lm_jobs(now_s)]
        if board.settings.lane_mode == "time_sharing":
            return self._take_turns(now_s)
        if board.settings.lane_mode == "two_streams" and board.jobs:
            return []
        lm_jobs = self._lm_jobs(now_s)
        return [*self._codec.next_jobs(now_s, board.is_idle(LaneName.LM)), *lm_jobs]

    def wakeup_s(self) -> float | None:
        """When `next_jobs` must be called even if no event comes; None: only events matter."""
        wake_s = self.board.wake_s
        return None if wake_s == np.inf else float(wake_s)

    def take_notices(self) -> list[Notice]:
        """What happened since the last call, in order."""
        notices, self.board.notices = self.board.notices, []
        return notices

    @property
    def settings(self) -> Settings:
        """Settings in force."""
        return self.board.settings

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self.board.policy

    @property
    def is_overloaded(self) -> bool:
        """Whether more is offered than can be served in time."""
        return self.board.is_overloaded

    @property
    def num_waiting(self) -> int:
        """Requests without a slot."""
        return len(self.board.waiting)

    @property
    def num_running(self) -> int:
        """Requests whose backbone has more to generate."""
        table = self.board.table
        return int(np.count_nonzero(table.is_active | table.is_pending))

    @property
    def num_ready_chunks(self) -> int:
        """Chunks that are ready and undelivered, those in flight included; from any thread."""
        return self.board.table.num_undelivered()

    @property
    def num_free_slots(self) -> int:
        """Slots without an owner."""
        return len(self.board.table.free)

    @property
    def num_free_pages(self) -> int:
        """KV pages without an owner."""
        return self.board.pages.num_free

    @property
    def num_jobs(self) -> int:
        """Jobs in flight."""
        return len(self.board.jobs)

    def _lm_jobs(self, now_s: float) -> list[Job]:
        """As many as the LM lane may have in flight."""
        board = self.board
        jobs: list[Job] = []
        depth = board.prepared.lm_depth if board.has_partitions else 1
        while len(board.lanes[LaneName.LM]) < depth:
            job = self._lm.next_job(now_s)
            if job is None:
                break
            jobs.append(job)
        return jobs

    def _take_turns(self, now_s: float) -> list[Job]:
        """One loop: an LM job, then whatever chunks are ready, each on the whole device."""
        if self.board.jobs:
            return []
        for is_codec_turn in (not self._codec_had_turn, self._codec_had_turn):
            if is_codec_turn:
                jobs: list[Job] = [*self._codec.next_jobs(now_s, lm_is_idle=False)]
            else:
                job = self._lm.next_job(now_s)
                jobs = [] if job is None else [job]
            if jobs:
                self._codec_had_turn = is_codec_turn
                return jobs
        return []

    def _end(self, now_s: float, request_id: int, state: RequestState, error: str) -> None:
        request = self.board.requests.get(request_id)
        if request is not None:
            end(self.board, now_s, request, state, error)

    def _job_failed(self, now_s: float, event: JobFailed) -> None:
        entry = self.board.finish(event.job_id, event.start_s, event.end_s, failed=True)
        if isinstance(entry.job, CodecJob):
            codec_failed(self.board, now_s, entry, event.error)
        else:
            step_failed(self.board, now_s, entry, event.error)

    def _change_policy(self, now_s: float, policy: object | None) -> None:
        board = self.board
        old = board.policy
        new = make_policy(board.settings.policy) if policy is None else policy
        assert isinstance(new, Policy), f"{new!r} is not a Policy"
        if policy is None and type(new) is type(old):
            return
        board.policy = new
        if board.record is not None:
            board.record(SettingChange(now_s, "policy", old.name, board.policy.name))

    def _change_settings(self, now_s: float, settings: Settings) -> None:
        board = self.board
        old = board.settings
        board.adopt(settings)
        if settings.policy != old.policy:
            board.policy = make_policy(settings.policy)
        if board.record is None:
            return
        for field in fields(settings):
            before, after = getattr(old, field.name), getattr(settings, field.name)
            if before != after:
                board.record(SettingChange(now_s, field.name, str(before), str(after)))
