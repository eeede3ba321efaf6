"""The live timeline widget: a window of the trace, sent as binary deltas from one thread."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# (anywidget and traitlets carry no complete types)

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable, Iterable
from functools import cache
from importlib.resources import files
from typing import Any

import anywidget
import traitlets

from voxserve.core.events import ChunkLife, Record, Trace
from voxserve.core.live import LiveChunks
from voxserve.viz import esm, wire

KEEP_S = 30.0
HEARTBEAT_S = 1.0
PAGE_LIFE_S = 30.0  # a page tells that it is there three times as often
SLOW_EVERY_S = 0.5  # distance of frames for a browser that fell behind


@cache
def plotly_gzip() -> bytes:
    """Plotly's script as it ships in the Python package, compressed (about 1.5 MB)."""
    script = files("plotly").joinpath("package_data", "plotly.min.js").read_bytes()
    return gzip.compress(script, 6)


class Timeline(anywidget.AnyWidget):
    """Lanes, deadlines, stalls and slack of the last seconds.

    Args:
        window_s: Seconds shown while live; zooming and hovering follow on "Inspect".
    """

    _esm = esm.module("timeline.js")
    _css = esm.text("workbench.css")
    schema = traitlets.Dict(wire.SCHEMA).tag(sync=True)
    keep_s = traitlets.Float(KEEP_S).tag(sync=True)
    window_s = traitlets.Float(8.0, min=0.1, max=KEEP_S).tag(sync=True)
    margin_s = traitlets.Float(0.1).tag(sync=True)
    ended = traitlets.Unicode("").tag(sync=True)
    note = traitlets.Unicode("").tag(sync=True)  # over the lanes, such as "engine stopped"
    ghosts = traitlets.Bool(True).tag(sync=True)  # drawn, where there are any
    spoken = traitlets.Dict({}).tag(sync=True)  # texts of requests, by number

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self.on_select: Callable[[int, int], None] | None = None
        self.on_select_heard: Callable[[float, int], None] | None = None
        self.on_point: Callable[[int, int], None] | None = None
        self._lock = threading.Lock()  # browser messages arrive on any kernel thread
        self._is_shown = False  # ever, on any page
        self._visible: dict[str, float] = {}  # pages that somebody can see -> when last heard
        self._needs_replay = True
        self._position = 0
        self._unsent: list[Record] = []
        self._sent_s = 0.0
        self._slow_until_s = 0.0
        self._heard: list[wire.ListenerStall] = []
        self._ghost: tuple[dict[str, Any], list[bytes]] | None = None
        self.on_msg(self._on_message)

    def publish(self, trace: Trace, now_s: float, live: LiveChunks | None = None) -> list[Record]:
        """Sends what is new, and the chunks of now; only a heartbeat while nobody looks.

        Called by one publisher thread, at most ten times a second.

        Returns:
            The records since the last call, sent or not: nobody need unpack them again.
        """
        new, self._position = trace.since(self._position)
        wall_s = time.monotonic()
        with self._lock:
            is_watched = bool(self._visible) or not self._is_shown
            self._needs_replay |= not is_watched
            self._unsent = [*self._unsent, *new] if is_watched else []
            period_s = SLOW_EVERY_S if wall_s < self._slow_until_s else 0.0
            if wall_s - self._sent_s < (period_s if is_watched else HEARTBEAT_S):
                return new
            replay = self._needs_replay and is_watched
            self._needs_replay &= not replay
            heard, self._heard = self._heard, []
            records, self._unsent = self._unsent, []
        self._sent_s = wall_s
        if replay:
            held, end = trace.since(0)
            records = held[: len(held) - (end - self._position)]
        if replay or len(records) > 1000:
            records = [r for r in records if _is_recent(r, now_s - KEEP_S)]
        message, buffers = wire.delta(records, now_s, heard, live if is_watched else None)
        message["reset"] = replay
        message["sent_ms"] = time.time() * 1000
        self.send(message, buffers)
        if replay and self._ghost is not None:
            self.send(*self._ghost)
        return new

    def show_ghost(
        self, name: str, words: str, records: Iterable[Record], recorded: Iterable[Record] = ()
    ) -> None:
        """Draws what would have been as translucent lanes under the real ones.

        Args:
            name: What was changed.
            words: The difference in one line, shown while the ghosts are.
            records: Spans and chunks on the engine's clock; none takes the ghosts away.
            recorded: What did happen then; pages have forgotten it when the answer took long.
        """
        held = list(records)
        now_s = max(map(wire.time_of, held), default=0.0)
        past = [r for r in recorded if _is_recent(r, now_s - KEEP_S)]
        message, buffers = wire.delta([r for r in held if _is_recent(r, now_s - KEEP_S)], now_s)
        message |= {"type": "ghost", "name": name, "words": words}
        buffers = buffers[:2] + wire.delta(past, now_s)[1][:2]
        with self._lock:
            self._ghost = (message, buffers) if held else None
        self.ghosts = True
        self.send(message | {"is_new": True}, buffers)

    def restart(self) -> None:
        """Begins anew, with another trace: empties every page's view at the next frame."""
        with self._lock:
            self._needs_replay = True
            self._position, self._unsent = 0, []

    def add_listener_stall(self, stall: wire.ListenerStall) -> None:
        """Marks a moment at which the browser had nothing to play."""
        with self._lock:
            self._heard.append(stall)

    def _on_message(self, _widget: Any, content: dict[str, Any], _buffers: list[bytes]) -> None:
        kind = content.get("type")
        if kind == "need-plotly":
            self.send({"type": "plotly"}, [plotly_gzip()])
        elif kind in ("hello", "page"):
            with self._lock:
                self._take_page(str(content["page"]), bool(content["hidden"]), kind == "hello")
        elif kind == "slow":
            with self._lock:
                self._slow_until_s = time.monotonic() + 10.0
        elif kind == "select" and self.on_select:
            self.on_select(int(content["request_id"]), int(content["index"]))
        elif kind == "select-heard" and self.on_select_heard:
            self.on_select_heard(float(content["time_s"]), int(content["stream"]))
        elif kind == "point" and self.on_point:
            self.on_point(int(content["request_id"]), int(content["index"]))

    def _take_page(self, page: str, is_hidden: bool, is_new: bool) -> None:
        """Remembers who looks; a page that is gone without a word is forgotten with the next."""
        now_s = time.monotonic()
        self._is_shown = True
        was_visible = self._visible.pop(page, None) is not None
        self._visible = {
            one: heard_s for one, heard_s in self._visible.items() if now_s - heard_s < PAGE_LIFE_S
        }
        if not is_hidden:
            self._visible[page] = now_s
            # A page that says hello has nothing yet, known or not: its notebook was reopened.
            self._needs_replay |= is_new or not was_visible


def _is_recent(record: Record, oldest_s: float) -> bool:
    """A chunk matters until it is due, which can be long after its delivery."""
    due_s = record.deadline_s or 0.0 if isinstance(record, ChunkLife) else 0.0
    return max(wire.time_of(record), due_s) >= oldest_s
