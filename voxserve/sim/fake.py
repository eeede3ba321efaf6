"""A fake executor in virtual time, shared by tests and notebooks: costs from a table, no model.

It runs each lane in order, without contention, and is strict: a job that breaks the contract of
`core.jobs` (a chunk before its frames, out of order or twice, a slot of another's) raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from voxserve.core.chunk import ChunkRef
from voxserve.core.clock import VirtualClock
from voxserve.core.events import Packed, Record, Trace
from voxserve.core.jobs import (
    Arrival,
    ChunkDelivered,
    ChunksDelivered,
    CodecDone,
    CodecJob,
    Event,
    Job,
    JobEnded,
    LaneName,
    Notice,
    Partition,
    PrefillJob,
    RowStatus,
    SlotReleased,
    StepDone,
)
from voxserve.core.protocols import CostModel, JobResult
from voxserve.core.request import RequestSpec
from voxserve.core.settings import Prepared, Settings, Split
from voxserve.sched.invariants import CheckedScheduler
from voxserve.sched.policy import Policy
from voxserve.sched.scheduler import Scheduler

FAKE_PREPARED = Prepared(
    splits=(Split(), Split(100, 32), Split(76, 56)),
    decode_buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
    codec_buckets=(1, 2, 4, 8, 16, 32, 64),
    urgent_buckets=(1, 2, 4, 8),
    prefill_buckets=(256, 512, 1024, 2048),
    chunk_frames=(2, 4, 10),
    num_slots=64,
)


@dataclass(frozen=True, slots=True)
class TableCost:
    """Seconds of each stage: a constant plus so much per row (or prompt token).

    Attributes:
        partition_factor: What the codec's partition costs compared with the whole device.
    """

    decode: tuple[float, float] = (0.010, 0.0)
    prefill: tuple[float, float] = (0.005, 0.0)
    codec: tuple[float, float] = (0.002, 0.0)
    partition_factor: float = 4.0

    @property
    def revision(self) -> int:
        """A table is never corrected."""
        return 0

    def decode_s(self, rows: int, split: Split, partition: Partition) -> float:
        """One decode step."""
        return self.decode[0] + self.decode[1] * rows

    def prefill_s(self, num_tokens: int, num_prompts: int, split: Split) -> float:
        """One prefill."""
        return self.prefill[0] + self.prefill[1] * num_tokens

    def codec_s(self, rows: int, num_frames: int, split: Split, partition: Partition) -> float:
        """One codec batch."""
        factor = self.partition_factor if partition is Partition.CODEC else 1.0
        return (self.codec[0] + self.codec[1] * rows) * factor


@dataclass(slots=True)
class _Sequence:
    """What the fake device holds of a slot."""

    request_id: int
    pieces: tuple[int, ...]
    piece: int = -1
    in_piece: int = 0
    frames: int = 0
    decoded_frames: int = 0
    num_chunks: int = 0
    is_flushed: bool = False


@dataclass(slots=True)
class _Running:
    job: Job
    start_s: float
    end_s: float


class FakeExecutor:
    """Runs jobs in virtual time; satisfies `core.protocols.Executor`.

    Args:
        prepared: What it claims to have executables for.
        cost: Seconds of each stage.
        clock: Moved on by `results`.
        pieces: Frames that each request makes in each piece before its end token, by id.
        duration_s: Takes a job and its estimate and returns how long it takes instead.
    """

    def __init__(
        self,
        prepared: Prepared,
        cost: CostModel,
        clock: VirtualClock,
        *,
        pieces: dict[int, tuple[int, ...]],
        frame_samples: int = 1920,
        sample_rate_hz: int = 24_000,
        codec_delay_samples: int = 0,
        lookahead_frames: int = 0,
        duration_s: Callable[[Job, float], float] | None = None,
    ) -> None:
        self.prepared = prepared
        self.defaults = Settings()
        self.cost = cost
        self.clock = clock
        self.pieces = pieces
        self.frame_samples = frame_samples
        self.frame_s = frame_samples / sample_rate_hz
        self.sample_rate_hz = sample_rate_hz
        self.codec_delay_samples = codec_delay_samples
        self.lookahead_frames = lookahead_frames
        self.duration_s = duration_s
        self._free_s = dict.fromkeys(LaneName, 0.0)
        self._running: list[_Running] = []
        self._slots: dict[int, _Sequence] = {}

    def open_slot(self, slot: int, request_id: int, prepared_request: Any) -> None:
        """Gives a free slot to a request."""
        assert slot not in self._slots, f"slot {slot} opened for {request_id} while in use"
        self._slots[slot] = _Sequence(request_id, self.pieces[request_id])

    def close_slot(self, slot: int) -> None:
        """Frees the slot."""
        for running in self._running:
            assert slot not in job_slots(running.job), f"slot {slot} closed under a job"
        del self._slots[slot]

    def launch(self, job: Job) -> None:
        """Queues a job behind its lane's earlier ones."""
        start_s = max(self.clock.now_s(), self._free_s[job.lane])
        seconds = self._estimate_s(job)
        if self.duration_s is not None:
            seconds = self.duration_s(job, seconds)
        self._free_s[job.lane] = start_s + seconds
        self._running.append(_Running(job, start_s, start_s + seconds))
        if isinstance(job, CodecJob):
            self._check_chunks(job)

    def next_end_s(self) -> float:
        """When the next job ends; infinite when none runs."""
        return min((running.end_s for running in self._running), default=np.inf)

    def results(self, timeout_s: float) -> list[JobResult]:
        """Moves the clock to the next end, or by `timeout_s` if that is sooner."""
        now_s = self.clock.now_s()
        self.clock.advance_to(max(now_s, min(self.next_end_s(), now_s + timeout_s)))
        return self.ended()

    def ended(self) -> list[JobResult]:
        """Results of the jobs that have ended by now, in order of their ends."""
        now_s = self.clock.now_s()
        done = [running for running in self._running if running.end_s <= now_s]
        self._running = [running for running in self._running if running.end_s > now_s]
        done.sort(key=lambda running: (running.end_s, running.job.job_id))
        return [JobResult(self._answer(running)) for running in done]

    def wake(self) -> None:
        """Nothing waits in virtual time."""

    def close(self) -> None:
        """Forgets everything."""
        self._running.clear()
        self._slots.clear()

    def _estimate_s(self, job: Job) -> float:
        if isinstance(job, CodecJob):
            return self.cost.codec_s(job.bucket, job.num_frames, job.split, job.partition)
        if isinstance(job, PrefillJob):
            return self.cost.prefill_s(job.num_tokens, len(job.slots), job.split)
        return self.cost.decode_s(job.bucket, job.split, job.partition)

    def _answer(self, running: _Running) -> JobEnded:
        job = running.job
        if isinstance(job, CodecJob):
            samples = tuple(self.chunk_samples(chunk) for chunk in job.chunks)
            return CodecDone(job.job_id, samples, running.start_s, running.end_s)
        status = [self._step(slot, isinstance(job, PrefillJob)) for slot in job_slots(job)]
        flags = np.array(status, dtype=np.int8)
        return StepDone(job.job_id, flags, running.start_s, running.end_s)

    def _step(self, slot: int, is_prefill: bool) -> RowStatus:
        sequence = self._slots[slot]
        if is_prefill:
            sequence.piece += 1
            sequence.in_piece = 0
        if sequence.in_piece >= sequence.pieces[sequence.piece]:
            return RowStatus.END
        sequence.in_piece += 1
        sequence.frames += 1
        return RowStatus.CONTINUE

    def _check_chunks(self, job: CodecJob) -> None:
        assert len(job.chunks) <= job.bucket, f"job {job.job_id}: more rows than its bucket"
        for chunk in job.chunks:
            sequence = self._slots[chunk.slot]
            where = f"request {chunk.request_id} chunk {chunk.index}"
            assert sequence.request_id == chunk.request_id, f"{where}: slot of another request"
            assert sequence.num_chunks == chunk.index, f"{where}: out of order or decoded twice"
            assert sequence.decoded_frames == chunk.first_frame, f"{where}: frames skipped"
            assert not sequence.is_flushed, f"{where}: after the flush"
            assert chunk.num_frames <= job.num_frames, f"{where}: over the executable's frames"
            end = chunk.first_frame + chunk.num_frames
            assert end <= sequence.frames, f"{where}: before its frames"
            sequence.num_chunks += 1
            sequence.decoded_frames = end
            sequence.is_flushed = chunk.is_last

    def chunk_samples(self, chunk: ChunkRef) -> int:
        """Samples of a decoded chunk: the first is short by the codec's delay, the last long."""
        samples = chunk.num_frames * self.frame_samples
        held = self.codec_delay_samples
        if chunk.first_frame == 0:
            samples -= min(held, samples)
        if chunk.is_last:
            samples += min(held, (chunk.first_frame + chunk.num_frames) * self.frame_samples)
        return samples


def job_slots(job: Job) -> tuple[int, ...]:
    """Slots of a job's rows."""
    if isinstance(job, CodecJob):
        return tuple(job.chunks.slot.tolist())
    return tuple(int(slot) for slot in job.slots)


@dataclass(slots=True)
class FakeWorld:
    """The real scheduler over the fake executor: arrivals and events go in, time passes.

    Attributes:
        notices: What the scheduler told, with the time; a delivered batch as its chunks.
        jobs: Every job handed out, in order.
        is_checked: Check every decision against the laws of `sched.invariants`.
    """

    settings: Settings = field(default_factory=Settings)
    prepared: Prepared = FAKE_PREPARED
    cost: CostModel = field(default_factory=TableCost)
    policy: Policy | None = None
    frame_samples: int = 1920
    codec_delay_samples: int = 0
    lookahead_frames: int = 0
    duration_s: Callable[[Job, float], float] | None = None
    on_record: Callable[[Record | Packed], None] | None = None
    is_checked: bool = True
    clock: VirtualClock = field(default_factory=VirtualClock)
    trace: Trace = field(default_factory=Trace)
    notices: list[tuple[float, Notice | ChunkDelivered]] = field(default_factory=lambda: [])
    jobs: list[Job] = field(default_factory=lambda: [])
    executor: FakeExecutor = field(init=False)
    scheduler: Scheduler = field(init=False)
    front: Scheduler | CheckedScheduler = field(init=False)
    _pieces: dict[int, tuple[int, ...]] = field(default_factory=lambda: {})
    _inbox: list[tuple[float, int, Event]] = field(default_factory=lambda: [])
    _opened: dict[int, int] = field(default_factory=lambda: {})
    _num_events: int = 0

    def __post_init__(self) -> None:
        self.executor = FakeExecutor(
            self.prepared,
            self.cost,
            self.clock,
            pieces=self._pieces,
            frame_samples=self.frame_samples,
            codec_delay_samples=self.codec_delay_samples,
            lookahead_frames=self.lookahead_frames,
            duration_s=self.duration_s,
        )
        self.scheduler = Scheduler(
            self.prepared,
            self.settings,
            self.cost,
            self.executor.frame_s,
            self.executor.sample_rate_hz,
            codec_delay_samples=self.codec_delay_samples,
            lookahead_frames=self.lookahead_frames,
            record=self.on_record or self.trace.append,
            policy=self.policy,
        )
        self.front = self.scheduler
        if self.is_checked:
            self.front = CheckedScheduler(self.scheduler, self.lookahead_frames)

    def arrive(
        self,
        at_s: float,
        request_id: int,
        frames: int | tuple[int, ...],
        *,
        prompt_tokens: tuple[int, ...] | None = None,
        max_frames: int = 1000,
        **spec: Any,
    ) -> None:
        """Schedules a request that makes `frames` frames (per piece) before its end token."""
        pieces = (frames,) if isinstance(frames, int) else frames
        self._pieces[request_id] = pieces
        settings = self.scheduler.settings
        spec.setdefault("chunk_ramp", settings.chunk_ramp)
        spec.setdefault("ttfa_target_s", settings.ttfa_target_s)
        tokens = prompt_tokens or (20,) * len(pieces)
        self.send(at_s, Arrival(RequestSpec(request_id, at_s, tokens, max_frames, **spec)))

    def send(self, at_s: float, event: Event) -> None:
        """Schedules an event."""
        self._inbox.append((at_s, self._num_events, event))
        self._num_events += 1
        self._inbox.sort(key=lambda item: item[:2])

    def run(self, until_s: float = np.inf, max_decisions: int = 1_000_000) -> None:
        """Lets time pass until nothing is left to do, or until `until_s`."""
        for _ in range(max_decisions):
            self._decide()
            wake_s = self.front.wakeup_s()
            arrival_s = self._inbox[0][0] if self._inbox else np.inf
            next_s = min(
                self.executor.next_end_s(), arrival_s, np.inf if wake_s is None else wake_s
            )
            if next_s > until_s or next_s == np.inf:
                break
            self.clock.advance_to(max(next_s, self.clock.now_s()))
            self._deliver_events()
        else:
            raise AssertionError(f"no end after {max_decisions} decisions")
        if until_s < np.inf:
            self.clock.advance_to(max(until_s, self.clock.now_s()))

    def records(self, kind: type) -> list[Any]:
        """Trace records of one kind."""
        return [record for record in self.trace if isinstance(record, kind)]

    def _deliver_events(self) -> None:
        now_s = self.clock.now_s()
        for result in self.executor.ended():
            self.front.on_event(now_s, result.event)
        while self._inbox and self._inbox[0][0] <= now_s:
            self.front.on_event(now_s, self._inbox.pop(0)[2])

    def _decide(self) -> None:
        now_s = self.clock.now_s()
        jobs = self.front.next_jobs(now_s)
        self._take(now_s, self.front.take_notices())
        for job in jobs:
            if isinstance(job, PrefillJob):
                for slot, request_id in zip(job.slots, job.request_ids, strict=True):
                    if self._opened.get(slot) != request_id:
                        self.executor.open_slot(slot, request_id, None)
                        self._opened[slot] = request_id
            self.executor.launch(job)
        self.jobs += jobs

    def _take(self, now_s: float, notices: Iterable[Notice]) -> None:
        for notice in notices:
            if isinstance(notice, ChunksDelivered):
                self.notices += ((now_s, chunk) for chunk in notice)
                continue
            self.notices.append((now_s, notice))
            if isinstance(notice, SlotReleased):
                self.executor.close_slot(notice.slot)
                del self._opened[notice.slot]
