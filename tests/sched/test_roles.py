"""Devices that only generate or only decode: codes travel per chunk, events tie them together."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np
import pytest

from tests.sched.stories import FIRST_S, PREFILL_S, STEP_S
from voxserve.core.jobs import (
    Arrival,
    Cancel,
    ChunkDelivered,
    ChunkHandedOff,
    ChunksDelivered,
    CodecDone,
    CodecJob,
    CodesArrived,
    Event,
    HeardElsewhere,
    Job,
    JobKind,
    LaneName,
    Notice,
    RequestEnded,
    Role,
    RowStatus,
    SlotReleased,
    StepDone,
)
from voxserve.core.request import FinishReason, RequestSpec, RequestState
from voxserve.core.settings import Settings
from voxserve.sched.scheduler import Scheduler
from voxserve.sim.fake import FAKE_PREPARED, TableCost

COST = TableCost()
COPY_S = 0.001


class Pair:
    """One LM device and one codec device behind a front end, in virtual time."""

    def __init__(self, *, delay_samples: int = 0, lookahead_frames: int = 0) -> None:
        self.schedulers = {
            role: Scheduler(
                FAKE_PREPARED,
                Settings(overload="off"),
                COST,
                0.08,
                24_000,
                codec_delay_samples=delay_samples,
                lookahead_frames=lookahead_frames,
                role=role,
            )
            for role in (Role.LM, Role.CODEC)
        }
        self.now_s = 0.0
        self.frames: dict[int, int] = {}
        self.made: dict[int, int] = {}
        self.jobs: list[tuple[Role, Job]] = []
        self.told: list[tuple[float, Role, object]] = []
        self._heap: list[tuple[float, int, Role, Event]] = []
        self._count = 0

    def send(self, at_s: float, role: Role, event: Event) -> None:
        heapq.heappush(self._heap, (at_s, self._count, role, event))
        self._count += 1

    def arrive(self, at_s: float, request_id: int, frames: int) -> None:
        self.frames[request_id] = frames
        self.made[request_id] = 0
        spec = RequestSpec(request_id, at_s, (20,), 1000, (10,))
        for role in self.schedulers:
            self.send(at_s, role, Arrival(spec))

    def run(self) -> None:
        while self._heap:
            self.now_s, _, role, event = heapq.heappop(self._heap)
            self.schedulers[role].on_event(self.now_s, event)
            for one in self.schedulers:
                self._decide(one)

    def of(self, kind: type) -> Iterator[tuple[float, Role, object]]:
        return ((at_s, role, n) for at_s, role, n in self.told if isinstance(n, kind))

    def _decide(self, role: Role) -> None:
        scheduler = self.schedulers[role]
        jobs = scheduler.next_jobs(self.now_s)
        for notice in scheduler.take_notices():
            parts = notice if isinstance(notice, ChunksDelivered) else (notice,)
            for part in parts:
                self._hear(role, part)
        for job in jobs:
            self.jobs.append((role, job))
            self._launch(role, job)

    def _hear(self, role: Role, notice: Notice | ChunkDelivered) -> None:
        self.told.append((self.now_s, role, notice))
        if isinstance(notice, ChunkHandedOff):
            codes = CodesArrived(notice.chunk.request_id, notice.num_frames, notice.reason)
            self.send(self.now_s, Role.CODEC, codes)
        elif isinstance(notice, ChunkDelivered):
            chunk = notice.chunk
            heard = HeardElsewhere(chunk.request_id, chunk.num_frames, notice.num_samples)
            self.send(self.now_s, Role.LM, heard)

    def _launch(self, role: Role, job: Job) -> None:
        if isinstance(job, CodecJob):
            seconds = COPY_S if job.kind is JobKind.HANDOFF else 0.002
            samples = tuple(c.num_frames * 1920 for c in job.chunks)
            end_s = self.now_s + seconds
            self.send(end_s, role, CodecDone(job.job_id, samples, self.now_s, end_s))
            return
        seconds = PREFILL_S if job.kind is JobKind.PREFILL else STEP_S
        owners = self.schedulers[role].board.table.request_id[np.asarray(job.slots)].tolist()
        status: list[RowStatus] = []
        for request_id in owners:
            is_over = self.made[request_id] >= self.frames[request_id]
            status.append(RowStatus.END if is_over else RowStatus.CONTINUE)
            self.made[request_id] += not is_over
        end_s = self.now_s + seconds
        flags = np.array(status, dtype=np.int8)
        self.send(end_s, role, StepDone(job.job_id, flags, self.now_s, end_s))


def test_each_device_does_its_part() -> None:
    pair = Pair()
    pair.arrive(0.0, 0, 25)
    pair.run()
    kinds = {role: {job.kind for r, job in pair.jobs if r is role} for role in Role}
    assert kinds[Role.LM] == {JobKind.PREFILL, JobKind.DECODE, JobKind.HANDOFF}
    assert kinds[Role.CODEC] == {JobKind.CODEC}
    first = next(pair.of(ChunkDelivered))
    assert first[:2] == (pytest.approx(FIRST_S + COPY_S + 0.002), Role.CODEC)
    lanes = [job.lane for role, job in pair.jobs if role is Role.CODEC]
    assert lanes[0] is LaneName.URGENT
    assert lanes[1:] == [LaneName.BACKGROUND] * 2


@pytest.mark.parametrize("frames", [1, 10, 13, 20, 25])
@pytest.mark.parametrize(("delay", "ahead"), [(0, 0), (720, 0), (0, 3)])
def test_the_chunks_add_up_and_both_devices_end(frames: int, delay: int, ahead: int) -> None:
    pair = Pair(delay_samples=delay, lookahead_frames=ahead)
    pair.arrive(0.0, 0, frames)
    pair.arrive(0.02, 1, frames + 1)
    pair.run()
    for request_id, total in ((0, frames), (1, frames + 1)):
        chunks = [
            n.chunk
            for _, _, n in pair.of(ChunkDelivered)
            if isinstance(n, ChunkDelivered) and n.chunk.request_id == request_id
        ]
        assert sum(chunk.num_frames for chunk in chunks) == total
        assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
        if delay == 0:
            assert all(chunk.num_frames > 0 for chunk in chunks)
    ends = [(role, n) for _, role, n in pair.of(RequestEnded)]
    assert len(ends) == 4
    for _, ended in ends:
        assert isinstance(ended, RequestEnded)
        assert (ended.state, ended.reason) == (RequestState.DONE, FinishReason.END)
    for scheduler in pair.schedulers.values():
        assert scheduler.num_free_slots == FAKE_PREPARED.num_slots
        assert scheduler.num_jobs == 0


def test_the_lm_device_keeps_the_same_clock() -> None:
    pair = Pair()
    pair.arrive(0.0, 0, 45)
    pair.run()
    first_s = next(pair.of(ChunkDelivered))[0]
    tables = [scheduler.board.table for scheduler in pair.schedulers.values()]
    assert tables[0].deadline_s[0] == pytest.approx(first_s + 45 * 0.08)
    assert tables[0].deadline_s[0] == tables[1].deadline_s[0]


def test_a_cancel_is_sent_to_both_and_frees_both() -> None:
    pair = Pair()
    pair.arrive(0.0, 0, 60)
    for role in pair.schedulers:
        pair.send(FIRST_S + 0.5 * COPY_S, role, Cancel(0))
    pair.run()
    assert len(list(pair.of(SlotReleased))) == 2
    assert not list(pair.of(ChunkDelivered))


def test_codes_that_come_before_a_slot_is_free_wait_with_their_request() -> None:
    scheduler = Scheduler(
        FAKE_PREPARED, Settings(max_running=1), COST, 0.08, 24_000, role=Role.CODEC
    )
    for request_id in (0, 1):
        spec = RequestSpec(request_id, 0.0, (20,), 1000, (10,))
        scheduler.on_event(0.0, Arrival(spec))
        scheduler.next_jobs(0.0)
    scheduler.on_event(0.1, CodesArrived(1, 10))
    assert scheduler.next_jobs(0.1) == []
    scheduler.on_event(0.2, Cancel(0))
    (job,) = scheduler.next_jobs(0.2)
    assert isinstance(job, CodecJob)
    assert [chunk.request_id for chunk in job.chunks] == [1]


def test_a_codec_device_holds_background_chunks_while_others_can_still_come() -> None:
    scheduler = Scheduler(FAKE_PREPARED, Settings(), COST, 0.08, 24_000, role=Role.CODEC)
    for request_id in (0, 1):
        spec = RequestSpec(request_id, 0.0, (20,), 1000, (10,))
        scheduler.on_event(0.0, Arrival(spec))
        scheduler.on_event(0.1, CodesArrived(request_id, 10))
    (job,) = scheduler.next_jobs(0.1)
    scheduler.on_event(0.102, CodecDone(job.job_id, (19_200, 19_200), 0.1, 0.102))
    scheduler.on_event(0.2, CodesArrived(0, 20))
    assert scheduler.next_jobs(0.2) == []  # request 1's second chunk can come in time
    assert scheduler.wakeup_s() == pytest.approx(0.102 + 0.8 - 0.1 - 0.002)
    scheduler.on_event(0.25, CodesArrived(1, 20))
    (job,) = scheduler.next_jobs(0.25)
    assert isinstance(job, CodecJob)
    assert len(job.chunks) == 2
