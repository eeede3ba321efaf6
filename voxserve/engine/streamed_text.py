"""Text that arrives in pieces while it is spoken: from a user's iterator to a request's slot.

The request is made as soon as the first text token is settled; a thread of its own reads the rest,
because a user's generator (a language model, a person who types) may take its time.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from voxserve.core.errors import InvalidInput
from voxserve.core.jobs import Fail
from voxserve.engine.service import Service
from voxserve.models.request import PreparedRequest, SpeechOptions

if TYPE_CHECKING:
    from voxserve.models.base import SpeechModel


def pieces_of(text: object) -> Iterable[Any]:
    """A text's pieces, which still may be anything.

    Raises:
        InvalidInput: Not a string and not an iterable.
    """
    if isinstance(text, AsyncIterable):
        raise InvalidInput("text that comes asynchronously needs `engine.astream` or `engine.asay`")
    if isinstance(text, bytes | bytearray) or not isinstance(text, Iterable):
        raise InvalidInput(f"text is {text!r}; a string or pieces of one are needed")
    return text


class StreamedText:
    """One request's text.

    Args:
        model: Takes streamed text.
        pieces: Pieces of the text; each brings its own spaces.

    Attributes:
        text: What has arrived.
    """

    def __init__(self, model: SpeechModel, pieces: Iterable[str]) -> None:
        self._pieces = iter(pieces_of(pieces))
        self._model = model
        self._feed = model.open_text()
        self._rest: Any = None  # ids behind the prompt's that are known before the slot is open
        self.text = ""

    def begin(self, options: SpeechOptions) -> PreparedRequest:
        """Waits for the first text token and prepares the request.

        A text that ends before that is prepared as a whole.

        Raises:
            InvalidInput: Nothing to say, not text, an unknown voice or language.
        """
        for piece in self._pieces:
            ids = self._feed.push(self._checked(piece))
            if len(ids):
                self._rest = ids[1:]
                return self._model.preprocess_streamed(ids, options)
        return self._model.preprocess(self.text, options)

    def follow(self, service: Service, request_id: int) -> None:
        """Reads the rest on a thread and passes it on until the text or the request ends."""
        service.add_text(request_id, self._rest, is_complete=False)
        threading.Thread(
            target=self._follow,
            args=(service, request_id),
            name=f"voxserve-text-{request_id}",
            daemon=True,
        ).start()

    def _follow(self, service: Service, request_id: int) -> None:
        try:
            for piece in self._pieces:
                if not service.is_active(request_id):
                    return
                service.add_text(request_id, self._feed.push(self._checked(piece)), False)
            service.add_text(request_id, self._feed.finish(), True)
        except BaseException as error:  # border: the user's generator, and no end would come
            service.tell(Fail(request_id, f"its text broke off: {type(error).__name__}: {error}"))

    def _checked(self, piece: str) -> str:
        if not isinstance(piece, str):
            raise InvalidInput(f"a piece of the text is {piece!r}, not a string")
        self.text += piece
        return piece


class Bridge:
    """Lets a thread read what an event loop's iterable yields.

    Args:
        pieces: Read by a task of the running loop.
    """

    def __init__(self, pieces: AsyncIterable[str]) -> None:
        self._queue: queue.SimpleQueue[str | BaseException | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._pump(pieces))

    def __iter__(self) -> Iterator[str]:
        while (item := self._queue.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item

    def close(self) -> None:
        """Stops reading, from any thread; the thread's iterator ends."""
        with suppress(RuntimeError):  # the loop is closed, and the task with it
            self._loop.call_soon_threadsafe(self._task.cancel)

    async def _pump(self, pieces: AsyncIterable[str]) -> None:
        try:
            async for piece in pieces:
                self._queue.put(piece)
        except Exception as error:  # border: the user's iterable; raised where it is read
            self._queue.put(error)
        finally:
            self._queue.put(None)
