"""The listener widget: streams int16 PCM to the browser and knows what was heard there."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# (anywidget and traitlets carry no complete types)

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import anywidget
import numpy as np
import traitlets
from numpy.typing import NDArray

from voxserve.viz import esm

PAGE_TIMEOUT_S = 10.0  # the page that plays reports every 4 s; silent for so long, it is gone
MAX_STREAMS = 8  # with a row in the player; older ones that are done go first
STALE_S = 0.5  # a report that waited so long in a busy kernel says nothing about now
_CLOCK_DRIFT_S = 0.001  # a report; lets the estimate follow a browser clock that was set


@dataclass
class Heard:
    """What the browser reported about one stream.

    Attributes:
        underruns, silent_s: Times the listener had nothing to play, and for how long in all.
        is_playing: Sound of it comes out now, muted or not.
        has_ended: All of it was sent.
        is_done: Played to the end, stopped, or sent to a page that is gone.
        tap: float32 samples at the worklet's output, only when `tap=True`.
    """

    buffered_s: float = 0.0
    played_s: float = 0.0
    underruns: int = 0
    silent_s: float = 0.0
    num_played_samples: int = 0
    is_playing: bool = False
    has_ended: bool = False
    is_done: bool = False
    tap: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))


class Player(anywidget.AnyWidget):
    """Plays PCM gaplessly in one browser page, however many views show it.

    Args:
        rate_hz: Sample rate of the PCM.
        prebuffer_s: Audio collected before a stream starts or goes on after a stall.
        jitter_s: Random network delay to imitate, per message.
        tap: Keep what the worklet played, for tests.

    Attributes:
        streams: [number, label] of each stream with a row, oldest first.
        waiting: Those of them that got no sound yet and still may.
        muted, solo: Streams by number; a solo silences all streams without one.
        host_stalls: Late chunks that the host is to blame for, by stream as text.
        heard: What the browser reported, by stream.
        on_stall: Called with a stream that goes on after its listener had nothing to play, and
            for how many seconds.
        on_buffer: Called some five times a second with a stream that sounds and the seconds of
            audio its player holds. What is still on its way through the network is not in them,
            so that on average they allow for the way of the next chunk, too.
    """

    _esm = esm.player_module()
    _css = esm.text("workbench.css")
    rate_hz = traitlets.Int(24000).tag(sync=True)
    prebuffer_s = traitlets.Float(0.1, min=0.0, max=2.0).tag(sync=True)
    jitter_s = traitlets.Float(0.0, min=0.0, max=2.0).tag(sync=True)
    tap = traitlets.Bool(False).tag(sync=True)
    page = traitlets.Unicode("").tag(sync=True)
    highlight = traitlets.Dict({}).tag(sync=True)
    streams = traitlets.List().tag(sync=True)
    waiting = traitlets.List(traitlets.Int()).tag(sync=True)
    muted = traitlets.List(traitlets.Int()).tag(sync=True)
    solo = traitlets.List(traitlets.Int()).tag(sync=True)
    host_stalls = traitlets.Dict({}).tag(sync=True)

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self.audio_state = "no page yet"
        self.audio_mode = ""
        self.heard: dict[int, Heard] = {}
        self.on_stall: Callable[[int, float], None] | None = None
        self.on_buffer: Callable[[int, float], None] | None = None
        self._lock = threading.Lock()
        self._page_seen_s = 0.0
        self._quiet_since_s = math.nan  # the page was found silent, not heard since then
        self._least_lag_s = math.inf  # browser and kernel clocks differ by a constant
        self.on_msg(self._on_message)

    def add(self, stream: int, label: str) -> None:
        """Gives a stream its row in the player before its first samples.

        Args:
            stream: Any number that names the stream, such as its request id.
            label: What people know it by, such as its text.
        """
        with self._lock:
            self.heard[stream] = Heard()
            rows: list[list[Any]] = [row for row in self.streams if row[0] != stream]
            rows.append([stream, label])
            done = [row for row in rows if self.heard[row[0]].is_done]
            gone = done[: max(0, len(rows) - MAX_STREAMS)]
            self.waiting = [*(n for n in self.waiting if n != stream), stream]
            self.streams = [row for row in rows if row not in gone]
            for number, _ in gone:
                del self.heard[number]
            dropped = {number for number, _ in gone}
            self.muted = [number for number in self.muted if number not in dropped]

    def renumber(self, old: int, new: int) -> bool:
        """Gives a stream without samples, its row and its mix another number.

        False when it was stopped before; it is over under the new number, too.
        """
        with self._lock:
            if old not in self.heard:
                return False  # stopped so long ago that its row made room
            heard = self.heard[new] = self.heard.pop(old)
            for name in ("waiting", "muted", "solo"):
                numbers = getattr(self, name)
                setattr(self, name, [new if number == old else number for number in numbers])
            self.streams = [[new if row[0] == old else row[0], row[1]] for row in self.streams]
        if heard.is_done:
            self.stop(new)
        return not heard.is_done

    def label(self, stream: int) -> str:
        """What people know a stream by; "" without a row."""
        rows: list[list[Any]] = self.streams
        return next((str(label) for number, label in rows if number == stream), "")

    def blame_host(self, late: Iterable[tuple[int, int]]) -> None:
        """Says that chunks (stream, index) were late because of the host, not the server."""
        with self._lock:
            shown: dict[str, list[int]] = {
                n: places for n, places in self.host_stalls.items() if int(n) in self.heard
            }
            for stream, index in late:
                if stream in self.heard:
                    shown[str(stream)] = [*shown.get(str(stream), []), index]
            self.host_stalls = shown

    def remove(self, stream: int) -> None:
        """Takes a stream's row away."""
        with self._lock:
            if stream in self.heard:
                self._finish(stream)
                del self.heard[stream]
            self.streams = [row for row in self.streams if row[0] != stream]
            self.muted = [number for number in self.muted if number != stream]

    def push(
        self,
        stream: int,
        pcm: NDArray[np.int16],
        *,
        end: bool = False,
        chunks: Sequence[tuple[int, int, float]] = (),
    ) -> None:
        """Sends samples; from any thread. At least 100 ms a message keeps browsers at ease.

        Args:
            stream: One that was added; nothing is sent for one that was stopped.
            pcm: int16 [samples], mono.
            end: Nothing follows: running dry is no stall.
            chunks: (index, samples, stall in seconds) of each chunk in `pcm`, for the picture.
        """
        if self._is_over(stream):
            return
        with self._lock:
            self._waits_no_more(stream)
        parts = list(chunks) or [(0, len(pcm), 0.0)]
        message = {"type": "pcm", "stream": stream, "end": end, "chunks": parts}
        self.send(message, [np.ascontiguousarray(pcm, dtype="<i2").tobytes()])
        if end:
            self._has_ended(stream)

    def end(self, stream: int) -> None:
        """Says that nothing follows."""
        if not self._is_over(stream):
            self.send({"type": "end", "stream": stream})
            self._has_ended(stream)

    def stop(self, stream: int) -> None:
        """Silences a stream at once and forgets what is queued."""
        self._give_up({"type": "stop", "stream": stream})

    def refuse(self, stream: int) -> None:
        """Says in its row that a stream gets no sound at all."""
        self._give_up({"type": "stop", "stream": stream, "state": "refused"})

    def _give_up(self, message: dict[str, Any]) -> None:
        stream = message["stream"]
        self.send(message)
        with self._lock:
            if stream in self.heard:
                self._finish(stream)

    def _is_over(self, stream: int) -> bool:
        with self._lock:
            return stream not in self.heard or self.heard[stream].is_done

    def _has_ended(self, stream: int) -> None:
        with self._lock:
            if stream in self.heard:
                self.heard[stream].has_ended = True
                if not self.page:
                    self._finish(stream)

    def _hand_over(self, page: str) -> None:
        """To another page, to the same one emptied, or to none: what was sent is lost."""
        with self._lock:
            self.page = page
            self._page_seen_s = time.monotonic()
            self._least_lag_s = math.inf  # its clock is another one
            for stream, heard in self.heard.items():
                heard.is_playing, heard.buffered_s = False, 0.0
                if heard.has_ended and not heard.is_done:
                    self._finish(stream)

    def _is_free(self, page: Any) -> bool:
        """Whether no page has the sound, or one that is gone without a word.

        Other pages ask every few seconds. Gone is what stays silent from one of their questions
        to another: after a kernel was busy the first may be read before what the page has said.
        """
        with self._lock:
            if page == self.page:
                return False
            is_quiet = time.monotonic() - self._page_seen_s > PAGE_TIMEOUT_S
            is_gone = is_quiet and self._quiet_since_s == self._page_seen_s
            self._quiet_since_s = self._page_seen_s if is_quiet else math.nan
            return is_gone or not self.page

    def _finish(self, stream: int) -> None:
        """A stream that is over keeps no other one silent."""
        heard = self.heard[stream]
        heard.is_done, heard.is_playing, heard.buffered_s = True, False, 0.0
        self._waits_no_more(stream)
        if stream in self.solo:
            self.solo = [number for number in self.solo if number != stream]

    def _waits_no_more(self, stream: int) -> None:
        if stream in self.waiting:
            self.waiting = [number for number in self.waiting if number != stream]

    def _on_message(self, _widget: Any, content: dict[str, Any], buffers: list[bytes]) -> None:
        kind, page = content.get("type"), content.get("page")
        if kind in ("hello", "claim", "wait"):
            is_back = kind == "hello" and page == self.page  # it has nothing of what was sent
            if kind == "claim" or is_back or self._is_free(page):
                self._hand_over(str(page))
            return
        if page != self.page:
            return
        self._page_seen_s = time.monotonic()
        if kind == "bye":
            self._hand_over("")
        elif kind == "state":
            self.audio_state = str(content["state"])
            self.audio_mode = str(content["mode"])
        elif kind == "status":
            self._on_status(content, buffers)

    def _on_status(self, content: dict[str, Any], buffers: list[bytes]) -> None:
        taps = iter(buffers)
        gaps: list[tuple[int, float]] = []
        with self._lock:
            for state in content["streams"]:
                heard = self.heard.get(int(state["stream"]))
                if heard is not None and not heard.is_done:
                    heard.buffered_s = float(state["buffered_s"])
                    heard.played_s = float(state["played_s"])
                    heard.underruns = int(state["underruns"])
                    heard.silent_s = float(state["silent_s"])
                    heard.is_playing = bool(state["is_playing"])
            for event in content["events"]:
                stream = int(event["stream"])
                tap = next(taps) if event["tapped"] else b""
                if stream not in self.heard:
                    continue
                if event["kind"] == "resume":
                    gaps.append((stream, float(event["gap_s"])))
                elif event["kind"] == "done":
                    self._on_done(event, tap)
            sounding = [(s, h.buffered_s) for s, h in self.heard.items() if h.is_playing]
        for stream, gap_s in gaps:
            if self.on_stall:
                self.on_stall(stream, gap_s)
        age_s = self._age_s(float(content["sent_ms"]) / 1000)
        for stream, buffered_s in sounding:
            if self.on_buffer and age_s < STALE_S:
                self.on_buffer(stream, max(0.0, buffered_s - age_s))

    def _on_done(self, event: dict[str, Any], tap: bytes) -> None:
        heard = self.heard[int(event["stream"])]
        heard.underruns = int(event["underruns"])
        heard.silent_s = float(event["silent_s"])
        heard.num_played_samples = int(event["played"])
        heard.tap = np.frombuffer(tap, dtype="<f4").copy()
        self._finish(int(event["stream"]))

    def _age_s(self, sent_s: float) -> float:
        """How long ago a message was sent, as far as the fastest one so far tells."""
        lag_s = time.time() - sent_s
        self._least_lag_s = min(lag_s, self._least_lag_s + _CLOCK_DRIFT_S)
        return lag_s - self._least_lag_s
