"""What the rooms expect of each other, as protocols: cost estimates, executors, a served engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from voxserve.core.chunk import ChunkRef
from voxserve.core.events import Trace
from voxserve.core.jobs import Job, JobEnded, Partition
from voxserve.core.live import LiveChunks
from voxserve.core.settings import Prepared, Settings, Split


class CostModel(Protocol):
    """Estimated seconds of each stage, including host overhead.

    Corrections by what jobs take come with the events that end jobs; between them the estimates
    stand still.
    """

    @property
    def revision(self) -> int:
        """Another number once estimates were corrected: what was computed before is stale."""
        ...

    def decode_s(self, rows: int, split: Split, partition: Partition) -> float:
        """One decode step of `rows` rows."""
        ...

    def prefill_s(self, num_tokens: int, num_prompts: int, split: Split) -> float:
        """One prefill on the whole device, beside whatever usually runs."""
        ...

    def codec_s(self, rows: int, num_frames: int, split: Split, partition: Partition) -> float:
        """One codec batch of `rows` chunks of `num_frames` frames."""
        ...


@dataclass(frozen=True, slots=True)
class JobResult:
    """An ended job: the event for the scheduler, and the audio of a codec job.

    Attributes:
        pcm: One int16 array [samples] per chunk, `num_samples` of the event long.
        stolen_s: How long the job's own thread, on a CPU, could not run: other code had the
            interpreter or the core.
    """

    event: JobEnded
    pcm: tuple[NDArray[np.int16], ...] = ()
    stolen_s: float = 0.0


class Executor(Protocol):
    """Runs jobs. `launch` returns at once; results arrive through `results`.

    The serving thread alone calls `launch`, `results`, `open_slot`, `close_slot`.
    """

    prepared: Prepared
    defaults: Settings
    cost: CostModel
    frame_s: float
    sample_rate_hz: int

    def open_slot(self, slot: int, request_id: int, prepared_request: Any) -> None:
        """Gives `slot` to a request before its first prefill: prompt, seed, codec state."""
        ...

    def close_slot(self, slot: int) -> None:
        """Frees the slot's host-side data."""
        ...

    def launch(self, job: Job) -> None:
        """Queues a job on its lane."""
        ...

    def results(self, timeout_s: float) -> list[JobResult]:
        """Results that are there, waiting up to `timeout_s` for the first; [] on time-out.

        `wake` makes it return early.
        """
        ...

    def wake(self) -> None:
        """Makes a waiting `results` return; callable from any thread."""
        ...

    def close(self) -> None:
        """Ends the lanes and frees device memory."""
        ...


@runtime_checkable
class TextExecutor(Executor, Protocol):
    """An executor of a model that takes streamed text."""

    def append_text(self, slot: int, start: int, ids: NDArray[np.int32], is_complete: bool) -> None:
        """Queues text tokens for a slot on the LM lane, behind what it has.

        Args:
            slot: Its first prefill was launched.
            start: Tokens appended before.
            ids: [tokens], possibly none.
            is_complete: These were the last.
        """
        ...


@runtime_checkable
class SplittingExecutor(Executor, Protocol):
    """An executor that can prepare another split while it serves."""

    def add_split(self, split: Split) -> Prepared:
        """Prepares a split on the caller's thread; returns what is prepared now."""
        ...


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A snapshot of counters for displays (all since start, times in seconds).

    Attributes:
        state: "starting", "running", "stopped" or "failed: why".
        workload, rate_rps: Background load; rate 0 when there is none.
    """

    state: str
    now_s: float
    waiting: int
    running: int
    draining: int
    done: int
    cancelled: int
    failed: int
    rejected: int
    ready_chunks: int
    kernel_delay_s: float
    workload: str = ""
    rate_rps: float = 0.0


@runtime_checkable
class SpeechEngine(Protocol):
    """What the workbench and the load client need of an engine; `voxserve.Engine` is one."""

    name: str
    model_name: str
    device_name: str
    sample_rate_hz: int
    frame_s: float
    trace: Trace
    prepared: Prepared

    @property
    def settings(self) -> Settings:
        """Settings in force or about to be at the next scheduling point."""
        ...

    def set(self, **changes: Any) -> Settings:
        """Validates and applies live settings; returns the new ones."""
        ...

    def stats(self) -> EngineStats:
        """Counters for displays; never blocks on the serving thread."""
        ...

    def live_chunks(self) -> LiveChunks:
        """The next chunk of every running request; may wait for a moment that suits the engine."""
        ...

    def stream(self, text: Any, **options: Any) -> AudioStream:
        """Starts a request and returns its stream of chunks."""
        ...

    def cancel(self, request_id: int) -> bool:
        """Cancels a request; False when it is unknown or has ended."""
        ...

    def report_listener(self, request_id: int, buffered_s: float) -> None:
        """Tells how much audio a real player of a request still has to play."""
        ...

    def load(self, workload: Any = "libritts", rate_rps: float = 0.0) -> None:
        """Sets open-loop background load; rate 0 stops it."""
        ...

    def now_s(self) -> float:
        """Engine clock."""
        ...


class AudioChunk(Protocol):
    """One delivered chunk: `pcm` int16 [samples], when it came and when it was due."""

    ref: ChunkRef
    pcm: NDArray[np.int16]
    delivered_s: float
    deadline_s: float | None
    stall_s: float


class AudioStream(Protocol):
    """Iterates over delivered chunks of one request; closing it cancels the request."""

    request_id: int

    def __iter__(self) -> Iterator[AudioChunk]: ...

    def cancel(self) -> None:
        """Cancels the request."""
        ...
