"""The real scheduler on a simulated device in virtual time: a minute of load in about a second.

Deterministic: the same profile, workload, settings, rate and seed give the same decisions and the
same trace, byte for byte. Every request's length is fixed by the workload.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from voxserve.core.events import Packed, Record, unpacked
from voxserve.core.jobs import (
    Arrival,
    ChunksDelivered,
    CodecJob,
    DecodeJob,
    Event,
    Job,
    RequestEnded,
    SettingsChanged,
)
from voxserve.core.playback import STALL_LIMIT_S
from voxserve.core.profile import Profile
from voxserve.core.request import RequestState
from voxserve.core.settings import Prepared, Settings
from voxserve.core.slo import Outcome, Summary, summarise
from voxserve.core.trace_file import SavedTrace
from voxserve.core.workload import Offered
from voxserve.sched.scheduler import Scheduler
from voxserve.sim.cost import ProfileCost
from voxserve.sim.gpu import Ended, Jitter, SimulatedGpu, outcome

TIMEOUT_S = 900.0  # after the arrival window; what has not ended by then is a miss


@dataclass(frozen=True, slots=True)
class LaneUse:
    """How a lane spent the run.

    Attributes:
        busy_share: Time with a job running over the whole run.
        mean_batch: Rows per job.
        num_jobs: Jobs ended.
    """

    busy_share: float
    mean_batch: float
    num_jobs: int


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """One simulated run.

    Attributes:
        rate_rps, seconds, seed: The load that was offered.
        summary: Over all offered requests; of a run given up early, a lower bound of the misses.
        lanes: By "prefill", "decode", "background", "urgent".
        was_given_up: Attainment could no longer reach what was asked for.
        notes: Where the profile was continued or a default was used.
        records: The trace, empty unless asked for.
    """

    profile: str
    workload: str
    settings: Settings
    rate_rps: float
    seconds: float
    seed: int
    end_s: float
    summary: Summary
    outcomes: tuple[Outcome, ...]
    lanes: dict[str, LaneUse]
    was_given_up: bool
    notes: tuple[str, ...]
    records: tuple[Record, ...] = field(default=(), repr=False)
    frame_s: float = 0.08
    sample_rate_hz: int = 24000

    def trace(self) -> SavedTrace:
        """The trace, ready to be saved."""
        about: dict[str, Any] = {
            "device": f"sim:{self.profile}",
            "workload": self.workload,
            "rate_rps": self.rate_rps,
            "seconds": self.seconds,
            "seed": self.seed,
            "settings": asdict(self.settings) | {"sm_split": str(self.settings.sm_split)},
            "notes": list(self.notes),
        }
        return SavedTrace(self.records, self.frame_s, self.sample_rate_hz, about)


@dataclass(slots=True)
class _Tally:
    arrival_s: float
    ttfa_s: float | None = None
    stall_s: float = 0.0
    num_late: int = 0
    num_chunks: int = 0
    num_samples: int = 0
    end_s: float | None = None
    state: str = "unfinished"

    def outcome(self, sample_rate_hz: int) -> Outcome:
        return Outcome(
            arrival_s=self.arrival_s,
            is_done=self.state == RequestState.DONE,
            ttfa_s=self.ttfa_s,
            stall_s=self.stall_s,
            num_late=self.num_late,
            num_chunks=self.num_chunks,
            audio_s=self.num_samples / sample_rate_hz,
            end_s=self.end_s,
            state=self.state,
        )


class Simulator:
    """One run: events into the scheduler, its jobs onto the device, its notices into tallies."""

    def __init__(
        self,
        profile: Profile,
        prepared: Prepared,
        settings: Settings,
        *,
        jitter_seed: int | None = None,
        record: Callable[[Record | Packed], None] | None = None,
        policy: Any = None,
        side_by_side: bool = True,
    ) -> None:
        self.cost = ProfileCost(profile, prepared, side_by_side)
        self._host_s = profile.host.seconds
        self._frame_s = profile.frame_s
        self._sample_rate_hz = profile.sample_rate_hz
        self._frame_samples = round(profile.frame_s * profile.sample_rate_hz)
        self._delay_samples = profile.codec_delay_samples
        self._settings = settings
        jitter = None if jitter_seed is None else Jitter(profile, jitter_seed)
        self._gpu = SimulatedGpu(self.cost, jitter)
        self._scheduler = Scheduler(
            prepared,
            settings,
            self.cost,
            profile.frame_s,
            profile.sample_rate_hz,
            codec_delay_samples=profile.codec_delay_samples,
            lookahead_frames=profile.lookahead_frames,
            record=record,
            policy=policy,
        )
        self._tallies: dict[int, _Tally] = {}
        self._num_open = 0
        self._num_missed = 0
        kinds = ("prefill", "decode", "background", "urgent")
        self._use = {kind: [0.0, 0, 0] for kind in kinds}  # seconds, rows, jobs
        self.now_s = 0.0

    def run(
        self,
        load: Sequence[Offered],
        until_s: float,
        *,
        max_misses: int | None = None,
        changes: Sequence[tuple[float, Settings]] = (),
    ) -> bool:
        """Serves a load until every request has ended.

        Args:
            load: Arrivals in ascending order.
            until_s: Latest virtual time.
            max_misses: Give up once more requests than this have missed the SLO.
            changes: Settings that take effect at given times, ascending.

        Returns:
            Whether the run was given up.
        """
        seen: deque[tuple[float, Event]] = deque()  # ended jobs, when the host has read them
        arrivals = deque(enumerate(load))
        pending = deque(changes)
        wakeup_s = self._scheduler.wakeup_s()
        while self.now_s < until_s:
            now_s = self._gpu.next_end_s
            if arrivals and arrivals[0][1].at_s < now_s:
                now_s = arrivals[0][1].at_s
            if seen and seen[0][0] < now_s:
                now_s = seen[0][0]
            if pending and pending[0][0] < now_s:
                now_s = pending[0][0]
            if wakeup_s is not None and wakeup_s < now_s:
                now_s = wakeup_s
            if now_s == math.inf:
                break
            self.now_s = now_s = max(now_s, self.now_s)
            if self._gpu.next_end_s <= now_s:
                for ended in self._gpu.advance(now_s):
                    self._note_end(seen, ended)
            must_decide = wakeup_s is not None and wakeup_s <= now_s
            while seen and seen[0][0] <= now_s:
                self._scheduler.on_event(now_s, seen.popleft()[1])
                must_decide = True
            while pending and pending[0][0] <= now_s:
                self._settings = pending.popleft()[1]
                self._scheduler.on_event(now_s, SettingsChanged(self._settings))
                must_decide = True
            while arrivals and arrivals[0][1].at_s <= now_s:
                self._arrive(now_s, *arrivals.popleft())
                must_decide = True
            if must_decide:
                self._schedule(now_s)
                wakeup_s = self._scheduler.wakeup_s()
            if max_misses is not None and self._num_missed > max_misses:
                return True
            if not arrivals and not pending and self._num_open == 0:
                break
        return False

    def _schedule(self, now_s: float) -> None:
        for job in self._scheduler.next_jobs(now_s):
            self._gpu.launch(job, now_s)
        for notice in self._scheduler.take_notices():
            if isinstance(notice, ChunksDelivered):
                self._take_chunks(now_s, notice)
            elif isinstance(notice, RequestEnded):
                self._take_end(now_s, notice)

    def _arrive(self, now_s: float, request_id: int, offered: Offered) -> None:
        self._tallies[request_id] = _Tally(offered.at_s)
        self._num_open += 1
        spec = offered.utterance.spec(
            request_id,
            offered.at_s,
            self._frame_s,
            self._settings.chunk_ramp,
            self._settings.ttfa_target_s,
        )
        self._scheduler.on_event(now_s, Arrival(spec))

    def _note_end(self, seen: deque[tuple[float, Event]], ended: Ended) -> None:
        event = outcome(ended, self._frame_samples, self._delay_samples)
        seen.append((ended.end_s + self._host_s, event))
        kind, rows = _kind_and_rows(ended.job)
        use = self._use[kind]
        use[0] += ended.end_s - ended.start_s
        use[1] += rows
        use[2] += 1

    def _take_chunks(self, now_s: float, notice: ChunksDelivered) -> None:
        columns = (notice.chunks.request_id, notice.num_samples, notice.stall_s)
        for request_id, num_samples, stall_s in zip(*(c.tolist() for c in columns), strict=True):
            tally = self._tallies[request_id]
            tally.num_chunks += 1
            tally.num_samples += num_samples
            if tally.ttfa_s is None and num_samples:
                tally.ttfa_s = now_s - tally.arrival_s
                self._num_missed += tally.ttfa_s > self._settings.ttfa_target_s
            elif stall_s > 0.0:
                self._take_stall(tally, stall_s)

    def _take_stall(self, tally: _Tally, stall_s: float) -> None:
        tally.num_late += 1
        was_smooth = tally.stall_s < STALL_LIMIT_S
        tally.stall_s += stall_s
        crossed = was_smooth and tally.stall_s >= STALL_LIMIT_S
        in_time = (tally.ttfa_s or 0.0) <= self._settings.ttfa_target_s
        self._num_missed += crossed and in_time

    def _take_end(self, now_s: float, notice: RequestEnded) -> None:
        tally = self._tallies[notice.request_id]
        tally.end_s = now_s
        tally.state = notice.state.value
        self._num_open -= 1
        self._num_missed += notice.state is not RequestState.DONE

    def outcomes(self) -> tuple[Outcome, ...]:
        """What every request that arrived has experienced so far, in order of arrival."""
        return tuple(tally.outcome(self._sample_rate_hz) for tally in self._tallies.values())

    def lanes(self) -> dict[str, LaneUse]:
        """How the lanes spent their time so far."""
        span_s = max(self.now_s, 1e-9)
        return {
            kind: LaneUse(busy_s / span_s, rows / max(1, jobs), int(jobs))
            for kind, (busy_s, rows, jobs) in self._use.items()
        }


def _kind_and_rows(job: Job) -> tuple[str, int]:
    if isinstance(job, DecodeJob):
        return "decode", len(job.slots)
    if isinstance(job, CodecJob):
        return job.lane.value, len(job.chunks)
    return "prefill", len(job.request_ids)


def simulate_load(
    profile: Profile,
    prepared: Prepared,
    settings: Settings,
    load: Sequence[Offered],
    *,
    rate_rps: float,
    seconds: float,
    seed: int,
    workload_name: str = "load",
    jitter: bool = False,
    with_trace: bool = False,
    give_up_below: float | None = None,
    changes: Sequence[tuple[float, Settings]] = (),
    policy: Any = None,
    side_by_side: bool = True,
) -> SimulationResult:
    """Runs one given load through the scheduler in virtual time.

    Args:
        profile: Stage times.
        prepared: What the simulated device has executables for.
        settings: Valid for `prepared`.
        load: Arrivals, ascending.
        rate_rps: What the load was made with; kept in the result.
        seconds: Arrival window; kept in the result.
        seed: Of the load, and of the jitter; kept in the result.
        workload_name: Kept in the result.
        jitter: Vary stage times by the profile's spread, seeded by `seed`.
        with_trace: Keep every record.
        give_up_below: Stop as soon as attainment is certain to end below this share.
        changes: Settings that take effect at given times.
        policy: A scheduling policy object in place of the setting's.
        side_by_side: False gives every lane a device of its own.
    """
    records: list[Record | Packed] = []
    simulator = Simulator(
        profile,
        prepared,
        settings,
        jitter_seed=seed if jitter else None,
        record=records.append if with_trace else None,
        policy=policy,
        side_by_side=side_by_side,
    )
    max_misses = None
    if give_up_below is not None:
        max_misses = math.floor((1.0 - give_up_below) * len(load) + 1e-9)
    given_up = simulator.run(load, seconds + TIMEOUT_S, max_misses=max_misses, changes=changes)
    outcomes = simulator.outcomes()
    return SimulationResult(
        profile=profile.name,
        workload=workload_name,
        settings=settings,
        rate_rps=rate_rps,
        seconds=seconds,
        seed=seed,
        end_s=simulator.now_s,
        summary=summarise(outcomes, seconds, settings.ttfa_target_s),
        outcomes=outcomes,
        lanes=simulator.lanes(),
        was_given_up=given_up,
        notes=simulator.cost.notes,
        records=tuple(unpacked(records)),
        frame_s=profile.frame_s,
        sample_rate_hz=profile.sample_rate_hz,
    )
