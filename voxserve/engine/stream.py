"""Streams of one request's chunks, for loops and event loops; leaving one cancels its request."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from typing import Any

from voxserve.core.errors import InvalidInput, RequestCancelled, RequestFailed, RequestRejected
from voxserve.core.jobs import Cancel, ListenerReport, RequestEnded
from voxserve.core.request import FinishReason, RequestState
from voxserve.engine import abandon
from voxserve.engine.arguments import number
from voxserve.engine.audio import Audio
from voxserve.engine.intake import Intake
from voxserve.engine.mailbox import DeliveredChunk, Mailbox
from voxserve.engine.service import Service
from voxserve.engine.streamed_text import Bridge, StreamedText

# Waits are cut into slices so that Ctrl-C is noticed where a lock cannot be interrupted.
_SLICE_S = 0.5


class Reader:
    """What both kinds of stream share: a submitted request and what was read of it.

    Attributes:
        request_id: Unique in the engine.
        text: What was asked for.
        seed: Of the request.
        arrival_s: When it was asked for, engine clock.
        sample_rate_hz: Of the chunks' samples.
        notes: What was changed or could not be spoken.
        finish_reason: Why it ended; None before.
        chunks: Those read so far.
    """

    def __init__(
        self,
        intake: Intake,
        text: str | Iterable[str] | AsyncIterable[str],
        options: dict[str, Any],
        *,
        has_listener: bool,
        keep_alive: object,
    ) -> None:
        self._intake = intake
        self._source: Any = text
        self._options = options
        self._has_listener = has_listener
        self._keep_alive = keep_alive
        self._mailbox = Mailbox()
        self._is_over = False
        self._reading = threading.Lock()  # whoever waits for the next chunk
        self._known_end: FinishReason | None = None
        self._streamed: StreamedText | None = None
        self.arrival_s = intake.clock.now_s()
        self.sample_rate_hz = intake.model.info.sample_rate_hz
        self.finish_reason: FinishReason | None = None
        self.chunks: list[DeliveredChunk] = []
        self.text = ""
        self.seed = 0
        self.notes: tuple[str, ...] = ()
        self.request_id = -1

    def _read_alone(self) -> None:
        if not self._reading.acquire(blocking=False):
            raise InvalidInput(
                f"request {self.request_id} is being read by another thread or task: "
                "make a stream for each reader"
            )

    def _prepare(self) -> Any:
        self._streamed = self._intake.stream_text(self._source)
        if self._streamed is not None:
            request = self._intake.prepare_streamed(self._streamed, self._options)
        else:
            request = self._intake.prepare(self._source, self._options)
        self.text = " ".join(piece.text for piece in request.pieces)
        self.seed = request.options.seed
        self.notes = request.notes
        self._known_end = request.finish_reason
        return request

    def _submit(self, request: Any) -> None:
        if self._intake.speaks_ahead:
            self.arrival_s = self._intake.clock.now_s()
        self.request_id = self._intake.submit(
            request, self._mailbox, self.arrival_s, has_listener=self._has_listener
        )
        service = self._intake.service
        self._leave = weakref.finalize(self, _leave, service, self._mailbox, self.request_id)
        self._leave.atexit = False  # the engine itself ends then
        if self._streamed is not None and not request.is_text_complete:
            self._streamed.follow(self._intake.service, self.request_id)

    def cancel(self) -> None:
        """Cancels the request, if it has not ended; nothing more is read."""
        if not self._is_over:
            self._is_over = True
            if self.request_id >= 0:
                self._leave()

    def report(self, buffered_s: float) -> None:
        """Tells the scheduler how much audio a real player still has to play."""
        self._intake.service.tell(ListenerReport(self.request_id, number("buffered_s", buffered_s)))

    def audio(self) -> Audio:
        """What was read so far, as one utterance."""
        return Audio(
            self.chunks,
            self.sample_rate_hz,
            request_id=self.request_id,
            arrival_s=self.arrival_s,
            text=self._streamed.text if self._streamed is not None else self.text,
            seed=self.seed,
            finish_reason=self.finish_reason,
            notes=self.notes,
        )

    def _take(self) -> DeliveredChunk | None:
        """The next chunk that is there; None while there is none, and at the end."""
        item = self._mailbox.take()
        if item is None:
            return None
        if isinstance(item, DeliveredChunk):
            self.chunks.append(item)
            return item
        self._is_over = True
        self._leave.detach()
        if isinstance(item, Exception):
            raise item
        self._check_end(item)
        return None

    def _check_end(self, ended: RequestEnded) -> None:
        is_done = ended.state is RequestState.DONE
        self.finish_reason = (is_done and self._known_end) or ended.reason
        if ended.state is RequestState.CANCELLED:
            raise RequestCancelled(f"request {self.request_id} was cancelled")
        if ended.state is RequestState.REJECTED:
            raise RequestRejected(f"request {self.request_id} was refused: {ended.error}")
        if ended.state is RequestState.FAILED:
            raise RequestFailed(f"request {self.request_id} failed: {ended.error}")


def _leave(service: Service, mailbox: Mailbox, request_id: int) -> None:
    mailbox.close()
    service.tell(Cancel(request_id))


class Stream(Reader):
    """Iterates over a request's chunks as they are delivered.

    Closing it, leaving its `with` block, an exception or Ctrl-C while it waits, or dropping the
    last reference to it cancels the request.
    """

    def __init__(self, intake: Intake, text: Any, options: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(intake, text, options, **kwargs)
        self._submit(self._prepare())

    def __iter__(self) -> Iterator[DeliveredChunk]:
        return self

    def __next__(self) -> DeliveredChunk:
        self._read_alone()  # outside: a second reader must not cancel what the first one reads
        try:
            while not self._is_over:
                chunk = self._take()
                if chunk is not None:
                    return chunk
                if not self._is_over and not self._mailbox.wait(_SLICE_S):
                    self._intake.service.check_not_ended()  # in a forked child, no end comes
        except BaseException:  # an interrupt must not leave the request running unheard
            self.cancel()
            raise
        finally:
            self._reading.release()
        raise StopIteration

    def read(self) -> Audio:
        """Reads to the end and returns the whole utterance."""
        for _ in self:
            pass
        return self.audio()

    def close(self) -> None:
        """Cancels the request, if it has not ended."""
        self.cancel()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        self.cancel()


class AsyncStream(Reader):
    """Like `Stream`, for `async for`; the text is prepared off the event loop at the first step.

    Cancelling the task that waits in it cancels the request, and so does the end of the event loop
    that began to read it; another loop needs a stream of its own.
    """

    _loop: asyncio.AbstractEventLoop | None = None  # the one that reads
    _bridge: Bridge | None = None
    _abandoned: threading.Event | None = None

    def __aiter__(self) -> AsyncIterator[DeliveredChunk]:
        return self

    async def __anext__(self) -> DeliveredChunk:
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop) and not self._is_over:
            owner = f"request {self.request_id} belongs to another event loop"
            raise InvalidInput(f"{owner}: make a stream in this one")
        self._read_alone()
        try:
            if self._loop is None and not self._is_over:
                self._loop = loop
                await self._open(loop)
            while not self._is_over:
                self._arrived.clear()
                chunk = self._take()
                if chunk is not None:
                    return chunk
                if not self._is_over:
                    await self._arrived.wait()
        except BaseException:  # task cancellation included
            self.cancel()
            raise
        finally:
            self._reading.release()
        if self._bridge is not None:  # a request may end before its text
            self._bridge.close()
        raise StopAsyncIteration

    async def _open(self, loop: asyncio.AbstractEventLoop) -> None:
        self.arrival_s = self._intake.clock.now_s()
        if isinstance(self._source, AsyncIterable):
            if self._intake.model.info.accepts_streamed_text:
                self._source = self._bridge = Bridge(self._source)
                weakref.finalize(self, self._bridge.close).atexit = False
            else:
                self._source = [piece async for piece in self._source]
        self._abandoned = threading.Event()
        request = await asyncio.to_thread(abandon.watched, self._abandoned, self._prepare)
        self._arrived = asyncio.Event()
        self._mailbox.waker = _waker(loop, self._arrived)
        # Not in the thread: a task cancelled there would leave a request that nobody knows.
        self._submit(request)

    async def read(self) -> Audio:
        """Reads to the end and returns the whole utterance."""
        async for _ in self:
            pass
        return self.audio()

    def cancel(self) -> None:
        """Cancels the request, if it has not ended, and stops reading its text."""
        super().cancel()
        if self._abandoned is not None:
            self._abandoned.set()
        if self._bridge is not None:
            self._bridge.close()

    async def aclose(self) -> None:
        """Cancels the request, if it has not ended."""
        self.cancel()

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.cancel()


def _waker(loop: asyncio.AbstractEventLoop, arrived: asyncio.Event) -> Callable[[], object]:
    return lambda: loop.call_soon_threadsafe(arrived.set)
