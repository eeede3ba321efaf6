"""Hands a request's chunks from the serving thread to whoever reads them, thread or event loop."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from voxserve.core.chunk import ChunkRef
from voxserve.core.jobs import RequestEnded


@dataclass(frozen=True, slots=True, eq=False)
class DeliveredChunk:
    """One delivered chunk.

    Attributes:
        ref: Which frames of which request.
        pcm: [samples] int16.
        delivered_s: Engine clock.
        deadline_s: When the audio before it ran out (a first chunk: arrival + target); None when
            nobody listens.
        stall_s: How long the modelled player was silent before it.
    """

    ref: ChunkRef
    pcm: NDArray[np.int16]
    delivered_s: float
    deadline_s: float | None
    stall_s: float

    @property
    def slack_s(self) -> float | None:
        """How long before its deadline it came; negative when late, None when nobody listens."""
        return None if self.deadline_s is None else self.deadline_s - self.delivered_s


class Mailbox:
    """Chunks in order, then exactly one end. One writer, one reader.

    The reader polls with `take` and waits with `wait`, or passes a `waker` that is called on the
    serving thread after each addition (an event loop's `call_soon_threadsafe`).
    """

    def __init__(self) -> None:
        self._items: deque[DeliveredChunk | RequestEnded | Exception] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self.waker: Callable[[], object] | None = None

    def put(self, item: DeliveredChunk | RequestEnded | Exception) -> None:
        """Adds a chunk or the end; dropped when the reader has left."""
        with self._changed:
            if self._closed:
                return
            self._items.append(item)
            self._changed.notify_all()
        if self.waker is not None:
            self.waker()

    def take(self) -> DeliveredChunk | RequestEnded | Exception | None:
        """The next item, or None when there is none yet."""
        return self._items.popleft() if self._items else None

    def wait(self, timeout_s: float) -> bool:
        """Waits until an item is there or the mailbox is closed; False when the time was up."""
        with self._changed:
            if self._items or self._closed:
                return True
            return self._changed.wait(timeout_s)

    def close(self) -> None:
        """The reader wants nothing more: what is held is dropped and nothing is added."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()
