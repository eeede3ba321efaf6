"""Checks any policy, built in or a user's: names the law it broke, the event, and the chunk.

`CheckedScheduler` has the scheduler's methods and raises `LawBroken` as soon as a decision breaks
a law. The laws look at what goes in and comes out, plus the classes that the policy gave.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from voxserve.core.chunk import ChunkRef
from voxserve.core.errors import VoxserveError
from voxserve.core.jobs import (
    Arrival,
    ChunksDelivered,
    CodecDone,
    CodecJob,
    DecodeJob,
    Event,
    Job,
    JobFailed,
    JobKind,
    LaneName,
    Notice,
    PrefillJob,
    RequestEnded,
    RowStatus,
    SlotReleased,
    StepDone,
)
from voxserve.core.settings import MAX_STEPS_PER_PREFILL
from voxserve.sched.scheduler import Scheduler

LAWS = {
    "order": "a request's chunks are decoded in order, each once, without gaps",
    "one in flight": "a request has at most one chunk on the codec lanes",
    "frames": "a chunk is decoded only when its frames and look-ahead exist, or the stream ended",
    "slot": "a slot belongs to one request from its first job until its last job has ended",
    "pages": "a KV page belongs to one request until the last step that uses it has ended",
    "lane": "a lane has no more jobs in flight than it may, and one loop takes turns",
    "size": "a batch fits its bucket, the bucket is prepared and within the settings",
    "running": "no more requests hold a slot than max_running allowed when they were admitted",
    "prefills": "a decode step comes between two prefills wherever one is possible",
    "urgent": "an urgent chunk waits for the urgent lane only, never for a background batch",
    "silence": "nothing is delivered to a request after it ended",
    "delivery": "a chunk is delivered once, after the batch that holds it",
    "progress": "where work is left, a job is in flight or a timer is set",
}


class LawBroken(VoxserveError):  # noqa: N818 - named by what happened, as the other errors are
    """A decision broke a law of scheduling.

    Attributes:
        law: Key of `LAWS`.
        event: The last event before the decision, or None.
        chunk: The chunk concerned, or None.
    """

    def __init__(self, law: str, detail: str, event: Event | None, chunk: ChunkRef | None) -> None:
        self.law = law
        self.event = event
        self.chunk = chunk
        after = "at the start" if event is None else f"after {event!r}"
        super().__init__(f'law "{law}" ({LAWS[law]}) broken {after}: {detail}')


@dataclass(slots=True)
class _Stream:
    """What a request's jobs have shown so far."""

    request_id: int
    prompt_tokens: tuple[int, ...]
    max_frames: int
    piece: int = 0
    piece_first_frame: int = 0
    frames: int = 0
    num_chunks: int = 0
    decoded_frames: int = 0
    num_delivered: int = 0
    in_flight: ChunkRef | None = None
    is_flushed: bool = False
    has_ended: bool = False


@dataclass(slots=True)
class _Seen:
    slots: dict[int, int] = field(default_factory=lambda: {})
    pages: dict[int, int] = field(default_factory=lambda: {})
    jobs: dict[int, Job] = field(default_factory=lambda: {})
    streams: dict[int, _Stream] = field(default_factory=lambda: {})
    ended: set[int] = field(default_factory=lambda: set())
    deliverable: dict[tuple[int, int], ChunkRef] = field(default_factory=lambda: {})


class CheckedScheduler:
    """Wraps a scheduler and checks every law at every decision.

    Args:
        scheduler: The one to check; use it through this wrapper only.
        lookahead_frames: As given to the scheduler.
    """

    def __init__(self, scheduler: Scheduler, lookahead_frames: int = 0) -> None:
        self._inner = scheduler
        self._lookahead_frames = lookahead_frames
        self._seen = _Seen()
        self._event: Event | None = None
        self._steps = MAX_STEPS_PER_PREFILL  # since the last prefill
        self._notices: list[Notice] = []

    def on_event(self, now_s: float, event: Event) -> None:
        """Passes the event on, then checks what it brought about."""
        self._event = event
        if isinstance(event, Arrival):
            spec = event.spec
            self._seen.streams[spec.request_id] = _Stream(
                spec.request_id, spec.prompt_tokens, spec.max_frames
            )
        self._take_result(event)
        self._inner.on_event(now_s, event)
        self._check_notices()

    def next_jobs(self, now_s: float) -> list[Job]:
        """Passes the decision on after checking it."""
        decodable = bool(self._inner.board.table.is_decodable().any())
        jobs = self._inner.next_jobs(now_s)
        self._check_notices()
        for job in jobs:
            self._check_job(job, decodable)
        self._check_lanes(jobs)
        self._check_urgent()
        self._check_progress()
        return jobs

    def wakeup_s(self) -> float | None:
        """As the scheduler's."""
        return self._inner.wakeup_s()

    def take_notices(self) -> list[Notice]:
        """As the scheduler's."""
        notices, self._notices = self._notices, []
        return notices

    @property
    def inner(self) -> Scheduler:
        """The scheduler under test."""
        return self._inner

    def _broken(self, law: str, detail: str, chunk: ChunkRef | None = None) -> LawBroken:
        return LawBroken(law, detail, self._event, chunk)

    def _take_result(self, event: Event) -> None:
        if not isinstance(event, StepDone | CodecDone | JobFailed):
            return
        job = self._seen.jobs.pop(event.job_id)
        if isinstance(job, CodecJob):
            for row, chunk in enumerate(job.chunks):
                self._seen.streams[chunk.request_id].in_flight = None
                if isinstance(event, CodecDone) and row not in event.failed:
                    self._seen.deliverable[chunk.request_id, chunk.index] = chunk
        elif isinstance(event, StepDone):
            self._take_step(job, event)

    def _take_step(self, job: PrefillJob | DecodeJob, event: StepDone) -> None:
        for row, slot in enumerate(job.slots):
            stream = self._seen.streams[self._seen.slots[int(slot)]]
            if isinstance(job, PrefillJob):
                stream.piece, stream.piece_first_frame = job.pieces[row], stream.frames
            if event.status[row] == RowStatus.CONTINUE:
                stream.frames += not stream.has_ended
                stream.has_ended |= stream.frames >= self._frame_limit(stream)
            else:
                is_last_piece = stream.piece + 1 == len(stream.prompt_tokens)
                stream.has_ended |= event.status[row] == RowStatus.WATCHDOG or is_last_piece

    def _frame_limit(self, stream: _Stream) -> int:
        context = self._inner.board.prepared.max_context_tokens
        room = context - stream.prompt_tokens[stream.piece]
        return min(stream.max_frames, stream.piece_first_frame + room)

    def _check_notices(self) -> None:
        for notice in self._inner.take_notices():
            self._notices.append(notice)
            if isinstance(notice, ChunksDelivered):
                for chunk in notice.chunks:
                    self._check_delivery(chunk)
            elif isinstance(notice, RequestEnded):
                self._seen.ended.add(notice.request_id)
            elif isinstance(notice, SlotReleased):
                self._check_release(notice)

    def _check_delivery(self, chunk: ChunkRef) -> None:
        where = f"request {chunk.request_id} chunk {chunk.index}"
        if chunk.request_id in self._seen.ended:
            raise self._broken("silence", where, chunk)
        if self._seen.deliverable.pop((chunk.request_id, chunk.index), None) is None:
            raise self._broken("delivery", where, chunk)
        stream = self._seen.streams[chunk.request_id]
        if stream.num_delivered != chunk.index:
            raise self._broken("order", f"{where} delivered after {stream.num_delivered}", chunk)
        stream.num_delivered += 1

    def _check_release(self, notice: SlotReleased) -> None:
        if self._seen.slots.get(notice.slot) != notice.request_id:
            raise self._broken("slot", f"slot {notice.slot} is not request {notice.request_id}'s")
        for job in self._seen.jobs.values():
            if notice.slot in _slots(job):
                raise self._broken("slot", f"slot {notice.slot} released under job {job.job_id}")
        del self._seen.slots[notice.slot]
        self._seen.pages = {
            page: owner for page, owner in self._seen.pages.items() if owner != notice.request_id
        }

    def _check_job(self, job: Job, was_decodable: bool) -> None:
        self._check_size(job)
        if isinstance(job, CodecJob):
            for chunk in job.chunks:
                self._check_chunk(job, chunk)
        elif isinstance(job, PrefillJob):
            least = self._inner.settings.decode_steps_per_prefill
            if self._steps < least and was_decodable:
                what = f"job {job.job_id} comes {self._steps} steps after a prefill"
                raise self._broken("prefills", f"{what}, not {least}")
            self._check_prefill(job)
        else:
            for slot in job.slots.tolist():
                if slot not in self._seen.slots:
                    raise self._broken("slot", f"decode of free slot {slot}")
        if job.lane is LaneName.LM:
            self._steps = 0 if job.kind is JobKind.PREFILL else self._steps + 1
        self._seen.jobs[job.job_id] = job

    def _check_size(self, job: Job) -> None:
        settings, prepared = self._inner.settings, self._inner.board.prepared
        rows = job.num_tokens if isinstance(job, PrefillJob) else len(_slots(job))
        if isinstance(job, PrefillJob):
            buckets, largest = prepared.prefill_buckets, prepared.prefill_buckets[-1]
        elif isinstance(job, DecodeJob):
            buckets, largest = prepared.decode_buckets, settings.max_decode_batch
        elif job.lane is LaneName.URGENT:
            buckets, largest = prepared.urgent_buckets, settings.urgent_batch
        else:
            buckets, largest = prepared.codec_buckets, settings.max_background_batch
        if not rows <= job.bucket <= max(largest, 1) or job.bucket not in buckets:
            raise self._broken("size", f"{rows} in bucket {job.bucket} of {buckets}")

    def _check_prefill(self, job: PrefillJob) -> None:
        seen = self._seen
        for slot, request_id, pages in zip(job.slots, job.request_ids, job.kv_pages, strict=True):
            if seen.slots.get(slot, request_id) != request_id or request_id in seen.ended:
                raise self._broken("slot", f"slot {slot} prefilled for request {request_id}")
            if slot not in seen.slots and len(seen.slots) >= self._inner.settings.max_running:
                raise self._broken("running", f"request {request_id}")
            seen.slots[slot] = request_id
            for page in pages:
                owner = seen.pages.get(page, request_id)
                if owner != request_id and self._uses_pages(owner):
                    raise self._broken("pages", f"page {page} given to request {request_id}")
                seen.pages[page] = request_id

    def _uses_pages(self, request_id: int) -> bool:
        if not (self._seen.streams[request_id].has_ended or request_id in self._seen.ended):
            return True
        steps = [job for job in self._seen.jobs.values() if not isinstance(job, CodecJob)]
        return any(self._seen.slots.get(s) == request_id for job in steps for s in _slots(job))

    def _check_chunk(self, job: CodecJob, chunk: ChunkRef) -> None:
        stream = self._seen.streams[chunk.request_id]
        where = f"request {chunk.request_id} chunk {chunk.index} in job {job.job_id}"
        if stream.in_flight is not None:
            raise self._broken("one in flight", where, chunk)
        expected = (stream.num_chunks, stream.decoded_frames)
        if (chunk.index, chunk.first_frame) != expected or stream.is_flushed:
            raise self._broken("order", f"{where}: expected chunk, frame {expected}", chunk)
        end = chunk.first_frame + chunk.num_frames
        ahead = 0 if stream.has_ended else self._lookahead_frames
        if end + ahead > stream.frames or (chunk.is_last and not stream.has_ended):
            raise self._broken("frames", f"{where}: {stream.frames} frames exist", chunk)
        if self._seen.slots.get(chunk.slot) != chunk.request_id:
            raise self._broken("slot", where, chunk)
        stream.in_flight = chunk
        stream.num_chunks += 1
        stream.decoded_frames = end
        stream.is_flushed = chunk.is_last

    def _check_lanes(self, new: list[Job]) -> None:
        mode = self._inner.settings.lane_mode
        in_lane = [job.lane for job in self._seen.jobs.values()]
        depth = self._inner.board.prepared.lm_depth
        for lane, most in (
            (LaneName.LM, depth),
            (LaneName.BACKGROUND, 1),
            (LaneName.URGENT, 1),
        ):
            if in_lane.count(lane) > most:
                raise self._broken("lane", f"{in_lane.count(lane)} jobs on {lane}")
        if new and mode == "time_sharing" and len(in_lane) > 1:
            raise self._broken("lane", f"{len(in_lane)} jobs at once while time sharing")
        if new and mode == "two_streams" and len(in_lane) > len(new):
            raise self._broken("lane", "a new round before the last one ended")

    def _check_urgent(self) -> None:
        board = self._inner.board
        if not board.has_urgent_lane or any(
            job.lane is LaneName.URGENT for job in self._seen.jobs.values()
        ):
            return
        table = board.table
        for slot in np.flatnonzero(table.is_head & table.is_urgent).tolist():
            request_id = int(table.request_id[slot])
            raise self._broken("urgent", f"request {request_id}'s chunk waits, the lane is idle")

    def _check_progress(self) -> None:
        board = self._inner.board
        if self._seen.jobs or self._inner.wakeup_s() is not None:
            return
        table = board.table
        if table.is_head.any():
            raise self._broken("progress", f"{int(table.is_head.sum())} head chunks wait")
        if table.is_decodable().any() or board.continuing:
            raise self._broken("progress", "the backbone has rows to generate")
        if board.waiting and table.num_held == 0:
            raise self._broken("progress", f"{len(board.waiting)} prompts wait")


def _slots(job: Job) -> tuple[int, ...]:
    if isinstance(job, CodecJob):
        return tuple(job.chunks.slot.tolist())
    return tuple(int(slot) for slot in job.slots)
