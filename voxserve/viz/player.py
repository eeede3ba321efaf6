"""The listener widget: streams int16 PCM to the browser and knows what was heard there."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# (anywidget and traitlets carry no complete types)

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anywidget
import numpy as np
import traitlets
from numpy.typing import NDArray

from voxserve.viz import esm

PAGE_TIMEOUT_S = 10.0  # the page that plays reports every 4 s; silent for so long, it is gone


@dataclass
class Heard:
    """What the browser reported about one stream.

    Attributes:
        underruns, silent_s: Times the listener had nothing to play, and for how long in all.
        is_done: Played to the end.
        tap: float32 samples at the worklet's output, only when `tap=True`.
    """

    buffered_s: float = 0.0
    played_s: float = 0.0
    underruns: int = 0
    silent_s: float = 0.0
    num_played_samples: int = 0
    is_done: bool = False
    tap: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))


class Player(anywidget.AnyWidget):
    """Plays PCM gaplessly in one browser page, however many views show it.

    Args:
        rate_hz: Sample rate of the PCM.
        prebuffer_s: Audio collected before a stream starts or goes on after a stall.
        jitter_s: Random network delay to imitate, per message.
        tap: Keep what the worklet played, for tests.
    """

    _esm = esm.player_module()
    _css = esm.text("workbench.css")
    rate_hz = traitlets.Int(24000).tag(sync=True)
    prebuffer_s = traitlets.Float(0.1, min=0.0, max=2.0).tag(sync=True)
    jitter_s = traitlets.Float(0.0, min=0.0, max=2.0).tag(sync=True)
    tap = traitlets.Bool(False).tag(sync=True)
    page = traitlets.Unicode("").tag(sync=True)
    highlight = traitlets.Dict({}).tag(sync=True)

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self.audio_state = "no page yet"
        self.audio_mode = ""
        self.heard: dict[int, Heard] = {}
        self.on_stall: Callable[[int, float], None] | None = None
        self._lock = threading.Lock()
        self._page_seen_s = 0.0
        self.on_msg(self._on_message)

    def push(
        self,
        stream: int,
        pcm: NDArray[np.int16],
        *,
        end: bool = False,
        chunk: int = 0,
        late: bool = False,
    ) -> None:
        """Sends samples; from any thread. At least 100 ms a message keeps browsers at ease.

        Args:
            stream: Any number that names the stream, such as its request id.
            pcm: int16 [samples], mono.
            end: Nothing follows: running dry is no stall.
            chunk: Index shown in the picture of the audio.
            late: The server delivered it after its deadline.
        """
        with self._lock:
            self.heard.setdefault(stream, Heard())
        message = {"type": "pcm", "stream": stream, "end": end, "chunk": chunk, "late": late}
        self.send(message, [np.ascontiguousarray(pcm, dtype="<i2").tobytes()])

    def end(self, stream: int) -> None:
        """Says that nothing follows."""
        self.send({"type": "end", "stream": stream})

    def stop(self, stream: int) -> None:
        """Silences a stream at once and forgets what is queued."""
        self.send({"type": "stop", "stream": stream})
        with self._lock:
            if stream in self.heard:
                self.heard[stream].is_done = True

    def set_gain(self, stream: int, gain: float) -> None:
        """0 mutes."""
        self.send({"type": "gain", "stream": stream, "gain": gain})

    def _on_message(self, _widget: Any, content: dict[str, Any], buffers: list[bytes]) -> None:
        kind, page = content.get("type"), content.get("page")
        if kind in ("hello", "claim"):
            with self._lock:
                quiet_s = time.monotonic() - self._page_seen_s
            is_free = not self.page or quiet_s > PAGE_TIMEOUT_S
            if kind == "claim" or is_free:
                self.page = str(page)
                self._page_seen_s = time.monotonic()
            return
        if page != self.page:
            return
        self._page_seen_s = time.monotonic()
        if kind == "bye":
            self.page = ""
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
                heard = self.heard.setdefault(int(state["stream"]), Heard())
                heard.buffered_s = float(state["buffered_s"])
                heard.played_s = float(state["played_s"])
                heard.underruns = int(state["underruns"])
                heard.silent_s = float(state["silent_s"])
            for event in content["events"]:
                stream = int(event["stream"])
                heard = self.heard.setdefault(stream, Heard())
                if event["kind"] == "underrun":
                    gaps.append((stream, 0.0))
                elif event["kind"] == "done":
                    heard.is_done = True
                    heard.underruns = int(event["underruns"])
                    heard.silent_s = float(event["silent_s"])
                    heard.num_played_samples = int(event["played"])
                    heard.buffered_s = 0.0
                    if event["tapped"]:
                        heard.tap = np.frombuffer(next(taps), dtype="<f4").copy()
        for stream, gap_s in gaps:
            if self.on_stall:
                self.on_stall(stream, gap_s)
