"""Requests whose audio goes to the player: one small thread per stream, from engine to browser."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from voxserve.core.errors import RequestCancelled, RequestRejected, VoxserveError
from voxserve.core.protocols import AudioChunk, AudioStream, SpeechEngine
from voxserve.viz.player import Player

MIN_MESSAGE_S = 0.1  # smaller messages choke a browser

_log = logging.getLogger("voxserve")


class Listening:
    """Speaks texts and hands their chunks to the player.

    Args:
        report: Told what went wrong, from any thread.
    """

    def __init__(self, engine: SpeechEngine, player: Player, report: Callable[[str], None]) -> None:
        self.engine = engine
        self.player = player
        self.player.on_buffer = self._on_buffer
        self._report = report
        self._lock = threading.Lock()
        self._streams: dict[int, AudioStream] = {}
        self._places = itertools.count(-1, -1)  # of rows whose request has no id yet

    @property
    def active(self) -> list[int]:
        """Request ids that are still being delivered."""
        with self._lock:
            return list(self._streams)

    def speak(self, text: str, **options: Any) -> int:
        """Starts a request and returns its id; its audio follows on a thread of its own.

        Its row is there at once: under load the engine takes seconds to accept a request.
        """
        place = next(self._places)
        self.player.add(place, text)
        try:
            stream = self.engine.stream(text, **options)
        except BaseException:
            self.player.remove(place)
            raise
        with self._lock:
            self._streams[stream.request_id] = stream
        if not self.player.renumber(place, stream.request_id):
            stream.cancel()  # stopped while it was being accepted
        name = f"voxserve-listen-{stream.request_id}"
        threading.Thread(target=self._deliver, args=(stream,), name=name, daemon=True).start()
        return stream.request_id

    def speak_all(self, texts: Sequence[str], **options: Any) -> None:
        """Starts all texts at once and returns at once; what goes wrong is reported."""
        for number, text in enumerate(texts):
            args = (text, options)  # a request's preparation can take seconds
            name = f"voxserve-speak-{number}"
            threading.Thread(target=self._try, args=args, name=name, daemon=True).start()

    def _try(self, text: str, options: dict[str, Any]) -> None:
        try:
            self.speak(text, **options)
        except VoxserveError as error:
            self._report(str(error))
        except Exception as error:  # a border: nobody else would ever see it
            _log.exception("a text could not be spoken")
            self._report(f"{type(error).__name__}: {error}")

    def stop(self) -> None:
        """Cancels every request being spoken and silences the player."""
        with self._lock:
            streams = list(self._streams.values())
        for stream in streams:
            stream.cancel()
        for stream_id, heard in list(self.player.heard.items()):
            if not heard.is_done:
                self.player.stop(stream_id)

    def _deliver(self, stream: AudioStream) -> None:
        request_id = stream.request_id
        try:
            for chunk in _merged(stream, self.engine.sample_rate_hz):
                self._push(request_id, chunk)
            self.player.end(request_id)
        except RequestCancelled:
            self.player.stop(request_id)
        except RequestRejected as error:
            self.player.refuse(request_id)
            self._report(str(error))
        except VoxserveError as error:
            self.player.end(request_id)
            self._report(str(error))
        finally:
            with self._lock:
                self._streams.pop(request_id, None)

    def _on_buffer(self, request_id: int, buffered_s: float) -> None:
        """The scheduler's clock follows the real player while there is something to schedule."""
        with self._lock:
            is_active = request_id in self._streams
        if is_active:
            self.engine.report_listener(request_id, buffered_s)

    def _push(self, request_id: int, chunks: list[AudioChunk]) -> None:
        pcm = chunks[0].pcm if len(chunks) == 1 else np.concatenate([c.pcm for c in chunks])
        parts = [(chunk.ref.index, len(chunk.pcm), chunk.stall_s) for chunk in chunks]
        self.player.push(request_id, pcm, end=chunks[-1].ref.is_last, chunks=parts)


def _merged(stream: AudioStream, sample_rate_hz: int) -> Iterator[list[AudioChunk]]:
    """Groups chunks shorter than a message should be with what follows them."""
    group: list[AudioChunk] = []
    for chunk in stream:
        group.append(chunk)
        num_samples = sum(len(one.pcm) for one in group)
        if num_samples >= MIN_MESSAGE_S * sample_rate_hz or chunk.ref.is_last:
            yield group
            group = []
    if group:
        yield group
