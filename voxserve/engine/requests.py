"""The requests being served: their slots, streamed text, samples and readers.

Everything but `add` and the questions is called on the serving thread alone.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from voxserve.core.chunk import Chunks
from voxserve.core.errors import EngineError
from voxserve.core.jobs import (
    ChunkDelivered,
    ChunksDelivered,
    CodecJob,
    Job,
    Notice,
    PrefillJob,
    RequestEnded,
    SlotReleased,
)
from voxserve.core.protocols import Executor, JobResult, TextExecutor
from voxserve.engine.mailbox import DeliveredChunk

_log = logging.getLogger("voxserve")
Item = DeliveredChunk | RequestEnded | Exception


class Sink(Protocol):
    """Where a request's chunks and its end go; called on the serving thread, must return fast."""

    def put(self, item: Item) -> None:
        """A chunk, or the end (an exception when the engine ended first)."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class TextPart:
    """Text tokens that arrived for a request."""

    request_id: int
    ids: NDArray[np.int32]
    is_complete: bool


@dataclass(slots=True, eq=False)
class _Served:
    prepared: Any
    sink: Sink | None
    slot: int = -1  # once its first prefill was launched
    text: list[TextPart] = field(default_factory=list)  # streamed, waiting for the slot
    num_text: int = 0  # tokens in the slot
    pcm: dict[int, NDArray[np.int16]] = field(default_factory=dict)  # decoded, by chunk index


class ServedRequests:
    """What the serving thread keeps of requests between their arrival and their end.

    Args:
        executor: Holds their slots.
        on_broken: Called with the id of a request whose reader failed.
    """

    def __init__(self, executor: Executor, on_broken: Callable[[int], object]) -> None:
        self._executor = executor
        self._on_broken = on_broken
        self._served: dict[int, _Served] = {}
        self._codec_chunks: dict[int, Chunks] = {}  # by job, while in flight
        self._open_slots: dict[int, int] = {}

    def add(self, request_id: int, prepared: Any, sink: Sink | None) -> None:
        """Takes a request in; from any thread."""
        self._served[request_id] = _Served(prepared, sink)

    def __contains__(self, request_id: int) -> bool:
        return request_id in self._served

    def __len__(self) -> int:
        return len(self._served)

    @property
    def num_open_slots(self) -> int:
        """Slots in use, also by requests that have ended."""
        return len(self._open_slots)

    def add_text(self, text: TextPart) -> bool:
        """Sends text to its request's slot, or keeps it until there is one; False if it ended."""
        served = self._served.get(text.request_id)
        if served is None:
            return False
        served.text.append(text)
        self._send_text(served)
        return True

    def launch(self, job: Job) -> None:
        """Launches a job, opening the slots it is the first to use."""
        if isinstance(job, PrefillJob):
            for request_id, slot in zip(job.request_ids, job.slots, strict=True):
                if slot not in self._open_slots:
                    self._open_slots[slot] = request_id
                    self._executor.open_slot(slot, request_id, self._served[request_id].prepared)
        elif isinstance(job, CodecJob):
            self._codec_chunks[job.job_id] = job.chunks
        self._executor.launch(job)
        if isinstance(job, PrefillJob):
            for request_id, slot in zip(job.request_ids, job.slots, strict=True):
                served = self._served[request_id]
                served.slot = slot
                self._send_text(served)

    def take_samples(self, result: JobResult) -> None:
        """Keeps the samples of a codec job until the scheduler says that they are delivered."""
        chunks = self._codec_chunks.pop(result.event.job_id, None)
        if chunks is None or not result.pcm:  # a failed job has no samples
            return
        owners, indices = chunks.request_id.tolist(), chunks.index.tolist()
        for request_id, index, pcm in zip(owners, indices, result.pcm, strict=True):
            served = self._served.get(request_id)
            if served is not None:
                served.pcm[index] = pcm

    def close_slots(self, notices: list[Notice]) -> None:
        """Closes the slots that were released."""
        for notice in notices:
            if isinstance(notice, SlotReleased) and notice.slot in self._open_slots:
                del self._open_slots[notice.slot]
                self._executor.close_slot(notice.slot)

    def publish(self, now_s: float, notice: Notice) -> None:
        """Hands chunks and ends to their readers."""
        if isinstance(notice, ChunksDelivered):
            for chunk in notice:
                served = self._served.get(chunk.chunk.request_id)
                if served is not None:
                    self._deliver(now_s, served, chunk)
        elif isinstance(notice, RequestEnded):
            served = self._served.pop(notice.request_id, None)
            if served is not None:
                self._hand_over(notice.request_id, served, notice)

    def end_all(self, error: EngineError) -> None:
        """Tells every reader that the engine has ended."""
        served = self.forget()
        for request_id, request in served.items():
            self._hand_over(request_id, request, type(error)(str(error)))

    def forget(self) -> dict[int, _Served]:
        """Keeps none of the requests; returns them."""
        served, self._served = self._served, {}
        return served

    def _send_text(self, served: _Served) -> None:
        if served.slot < 0:
            return
        for text in served.text:
            assert isinstance(self._executor, TextExecutor), "the model takes whole texts only"
            self._executor.append_text(served.slot, served.num_text, text.ids, text.is_complete)
            served.num_text += len(text.ids)
        served.text.clear()

    def _deliver(self, now_s: float, served: _Served, notice: ChunkDelivered) -> None:
        pcm = served.pcm.pop(notice.chunk.index)
        if not len(pcm):
            return  # all of it was leading silence
        deadline_s = notice.deadline_s if math.isfinite(notice.deadline_s) else None
        chunk = DeliveredChunk(notice.chunk, pcm, now_s, deadline_s, notice.stall_s)
        self._hand_over(notice.chunk.request_id, served, chunk)

    def _hand_over(self, request_id: int, served: _Served, item: Item) -> None:
        """Gives an item to the request's reader; a reader that fails ends only its own request."""
        if served.sink is None:
            return
        try:
            served.sink.put(item)
        except Exception as error:  # border: a reader's code (a closed event loop, say)
            _log.warning(
                "request %d is cancelled, its reader failed: %s: %s",
                request_id,
                type(error).__name__,
                error,
                exc_info=_log.isEnabledFor(logging.DEBUG),
            )
            served.sink = None
            self._on_broken(request_id)
