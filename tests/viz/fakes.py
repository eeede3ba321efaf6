"""A small engine that satisfies `SpeechEngine`: a moving trace, PCM, and lateness on demand."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxserve.core.chunk import ChunkRef, Urgency, UrgencyReason
from voxserve.core.errors import InvalidInput, RequestCancelled
from voxserve.core.events import ChunkLife, LaneSpan, RequestChange, SettingChange, Trace
from voxserve.core.jobs import JobKind, LaneName
from voxserve.core.live import LiveChunks, Stage
from voxserve.core.protocols import EngineStats
from voxserve.core.request import FinishReason, RequestState
from voxserve.core.settings import Prepared, Settings, Split

RATE_HZ = 24000
FRAME_S = 0.08
PREPARED = Prepared(
    splits=(Split(), Split(1, 1)),
    decode_buckets=(1, 2, 4, 8, 16),
    codec_buckets=(1, 2, 4, 8),
    urgent_buckets=(1, 2, 4, 8),
    prefill_buckets=(256,),
    chunk_frames=(2, 4, 10),
    num_slots=16,
)


@dataclass
class FakeChunk:
    """A delivered chunk."""

    ref: ChunkRef
    pcm: NDArray[np.int16]
    delivered_s: float
    deadline_s: float | None
    stall_s: float


@dataclass
class FakeStream:
    """Chunks of one request, from a queue."""

    engine: FakeEngine
    request_id: int
    items: queue.Queue[Any] = field(default_factory=queue.Queue)

    def __iter__(self) -> Iterator[FakeChunk]:
        while (item := self.items.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item

    def cancel(self) -> None:
        self.engine.cancel(self.request_id)


def tone(request_id: int, first_sample: int, num_samples: int) -> NDArray[np.int16]:
    """A tone whose every sample is known: what was played can be compared exactly."""
    phase = np.arange(first_sample, first_sample + num_samples) * (220 + 55 * (request_id % 5))
    return (8000 * np.sin(2 * np.pi * phase / RATE_HZ)).astype(np.int16)


class FakeEngine:
    """Plays out each request by a fixed timetable on its own thread.

    Args:
        late: Chunk index -> extra seconds its delivery takes.
        speed: Audio seconds generated per second while one request runs.
    """

    def __init__(self, name: str = "fake", *, late: dict[int, float] | None = None, speed=3.0):
        self.name = name
        self.model_name = "vox-tiny"
        self.device_name = "cpu"
        self.sample_rate_hz = RATE_HZ
        self.frame_s = FRAME_S
        self.trace = Trace()
        self.prepared = PREPARED
        self.late = late or {}
        self.speed = speed
        self.loads: list[tuple[str, float]] = []  # workload and rate, as asked for
        self.reports: list[tuple[int, float]] = []  # what the listener reported
        self.state = "running"
        self._settings = Settings(
            sm_split=Split(1, 1),
            max_background_batch=8,
            max_decode_batch=16,
            max_running=16,
            chunk_ramp=(2, 4, 10),
        )
        self._zero_s = time.monotonic()
        self._ids = 0
        self._cancelled: set[int] = set()
        self._running: set[int] = set()
        self._workload, self._rate_rps = "", 0.0
        self._live: dict[int, tuple[int, Stage, bool, float]] = {}  # by request; the last: due
        threading.Thread(target=self._arrivals, daemon=True, name="fake-arrivals").start()

    @property
    def settings(self) -> Settings:
        return self._settings

    def set(self, **changes: Any) -> Settings:
        old, self._settings = self._settings, self._settings.changed(self.prepared, **changes)
        for name in changes:
            before, after = str(getattr(old, name)), str(getattr(self._settings, name))
            if before != after:
                self.trace.append(SettingChange(self.now_s(), name, before, after))
        return self._settings

    def now_s(self) -> float:
        return time.monotonic() - self._zero_s

    def stats(self) -> EngineStats:
        running = len(self._running)
        done, load = self._ids - running, (self._workload, self._rate_rps)
        return EngineStats(self.state, self.now_s(), 0, running, 0, done, 0, 0, 0, 0, 0.0, *load)

    def live_chunks(self) -> LiveChunks:
        now_s, rows = self.now_s(), list(self._live.items())
        return LiveChunks(
            now_s,
            np.array([rid for rid, _ in rows], np.int64),
            np.array([row[0] for _, row in rows], np.int64),
            np.array([row[1] for _, row in rows], np.int8),
            np.array([row[2] for _, row in rows], np.bool_),
            np.array([row[3] - now_s - 0.03 for _, row in rows], np.float64),
        )

    def load(self, workload: Any = "libritts", rate_rps: float = 0.0) -> None:
        self.loads.append((workload, rate_rps))
        self._workload, self._rate_rps = workload, rate_rps

    def report_listener(self, request_id: int, buffered_s: float) -> None:
        self.reports.append((request_id, buffered_s))

    def stream(self, text: Any, **options: Any) -> FakeStream:
        if not str(text).strip():
            raise InvalidInput("there is no text to speak")
        self._ids += 1
        stream = FakeStream(self, self._ids)
        num_frames = max(4, len(text.split()) * 4)
        args = (stream, num_frames)
        threading.Thread(target=self._play, args=args, daemon=True, name="fake-request").start()
        return stream

    def cancel(self, request_id: int) -> bool:
        self._cancelled.add(request_id)
        return request_id in self._running

    def _arrivals(self) -> None:
        while True:
            time.sleep(1.0 / self._rate_rps if self._rate_rps else 0.05)
            if self._rate_rps:
                self.stream("some words that nobody hears at all")

    def _play(self, stream: FakeStream, num_frames: int) -> None:
        rid = stream.request_id
        self._running.add(rid)
        arrival_s = self.now_s()
        self._state(rid, RequestState.WAITING)
        self._span(LaneName.LM, JobKind.PREFILL, 0.02, 30)
        self._state(rid, RequestState.RUNNING)
        frame = index = 0
        p_s = audio_s = 0.0
        while frame < num_frames:
            ramp = self._settings.chunk_ramp
            size = min(ramp[min(index, len(ramp) - 1)], num_frames - frame)
            due_s = arrival_s + self._settings.ttfa_target_s if index == 0 else p_s + audio_s
            self._live[rid] = (index, Stage.GENERATING, index == 0, due_s)
            for _ in range(size):
                step_s = FRAME_S / self.speed
                self._span(LaneName.LM, JobKind.DECODE, step_s * 0.8, len(self._running))
                time.sleep(step_s * 0.2)
            if rid in self._cancelled:
                self._live.pop(rid)
                stream.items.put(RequestCancelled("cancelled"))
                self._running.discard(rid)
                return self._state(rid, RequestState.CANCELLED)
            ready_s = self.now_s()
            urgent = index == 0 or due_s - ready_s < self._settings.urgency_margin_s
            lane = LaneName.URGENT if urgent else LaneName.BACKGROUND
            self._live[rid] = (index, Stage.IN_FLIGHT, urgent, due_s)
            span = self._span(lane, JobKind.CODEC, 0.03 + self.late.get(index, 0.0), 1, size)
            now_s = self.now_s()
            stall_s = max(0.0, now_s - due_s) if index else 0.0
            p_s = now_s if index == 0 else max(now_s, due_s)
            audio_s = size * FRAME_S
            ref = ChunkRef(rid, rid, index, frame, size, frame + size >= num_frames)
            reason = UrgencyReason.FIRST if index == 0 else UrgencyReason.MARGIN
            self.trace.append(
                ChunkLife(
                    rid,
                    index,
                    frame,
                    size,
                    ref.is_last,
                    ready_s,
                    ready_s,
                    Urgency.URGENT if urgent else Urgency.BACKGROUND,
                    reason if urgent else UrgencyReason.SLACK,
                    None,
                    due_s - span.start_s - 0.03,
                    span.start_s,
                    lane,
                    span.job_id,
                    now_s,
                    due_s,
                    audio_s,
                    stall_s,
                )  # fmt: skip
            )
            first = round(frame * FRAME_S * RATE_HZ)
            pcm = tone(rid, first, round(audio_s * RATE_HZ))
            stream.items.put(FakeChunk(ref, pcm, now_s, due_s, stall_s))
            frame, index = frame + size, index + 1
        self._live.pop(rid)
        stream.items.put(None)
        self._running.discard(rid)
        self._state(rid, RequestState.DONE, FinishReason.END)

    def _state(self, rid: int, state: RequestState, reason: FinishReason | None = None) -> None:
        self.trace.append(RequestChange(rid, state, self.now_s(), reason))

    def _span(
        self, lane: LaneName, kind: JobKind, seconds: float, batch: int, frames: int = 1
    ) -> LaneSpan:
        start_s = self.now_s()
        time.sleep(seconds)
        batch = max(1, batch)
        span = LaneSpan(
            lane,
            kind,
            self.trace.total,
            batch,
            batch,
            1,
            start_s,
            start_s,
            self.now_s(),
            (),
            frames,
        )
        self.trace.append(span)
        return span
