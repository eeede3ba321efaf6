"""A saved trace in the live view: play, pause, seek and slow motion, without any engine."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
# (ipywidgets carries no types)

from __future__ import annotations

import html
import math
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import ipywidgets

from voxserve.core import trace_file
from voxserve.core.errors import InvalidInput
from voxserve.core.events import ChunkLife, LaneSpan, Record, Trace
from voxserve.core.protocols import EngineStats
from voxserve.core.request import RequestState
from voxserve.core.trace_file import SavedTrace
from voxserve.viz import checks
from voxserve.viz.explain import chunk_words
from voxserve.viz.hindsight import Hindsight
from voxserve.viz.layout import close_all, named
from voxserve.viz.metrics import LiveNumbers
from voxserve.viz.numbers import NumbersView, tiles
from voxserve.viz.publisher import Publisher
from voxserve.viz.stories import HINT
from voxserve.viz.timeline import Timeline
from voxserve.viz.wire import time_of

SPEEDS = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
NUMBERS_EVERY = 5
_open: dict[str, Replay] = {}


class Replay:
    """Plays a trace as the workbench would have shown it.

    Args:
        source: A `.trace.gz` file, a saved trace, or records (such as `engine.trace`).
        speed: Seconds of trace per second; 0.1 is slow motion.
        name: Shown; a second replay of the same name closes the first.

    Raises:
        InvalidInput: Not a trace, one without records, or a speed that is none.
    """

    def __init__(
        self,
        source: str | Path | SavedTrace | Iterable[Record],
        *,
        speed: float = 1.0,
        name: str | None = None,
    ) -> None:
        speed = checks.positive("speed", speed)
        name = None if name is None else checks.text("name", name)
        records, about = _read(source)
        if not records:
            raise InvalidInput("the trace holds no records to replay")
        self._target_s = _setting_s(about, "ttfa_target_s", 0.2)
        margin_s = _setting_s(about, "urgency_margin_s", 0.1)
        self.name = name or (str(source) if isinstance(source, str | Path) else "trace")
        if self.name in _open:
            _open[self.name].close()
        self._records = sorted(records, key=time_of)
        self._first_s, self._last_s = time_of(self._records[0]), time_of(self._records[-1])
        self._hindsight = Hindsight(self._records)
        self.timeline = Timeline(margin_s=margin_s)
        self.timeline.on_select = self._select
        self._numbers_view = NumbersView()
        self._lock = threading.Lock()  # the slider's callbacks and the publisher
        self._ticks = 0
        self._thread_name = f"voxserve-replay-{self.name}"
        self._wall_s = time.monotonic()
        self._rewind(self._opening_s())
        self._layout(speed, about)
        self._publisher = Publisher(self._tick, self._report, self._thread_name)
        _open[self.name] = self
        self._publisher.start()

    def _opening_s(self) -> float:
        """The end of the first window in which something runs."""
        active = (r for r in self._records if isinstance(r, LaneSpan | ChunkLife))
        first_s = next(map(time_of, active), self._last_s)
        return min(self._last_s, first_s + float(self.timeline.window_s))

    def play(self) -> None:
        """Plays from where it stands, or from the start after the end."""
        self._play.value = True

    def pause(self) -> None:
        """Stands still."""
        self._play.value = False

    def seek(self, seconds: float) -> None:
        """Goes to a time after the trace's first record."""
        with self._lock:
            self._rewind(self._first_s + seconds)

    def close(self) -> None:
        """Ends the display thread and frees the widgets."""
        self._publisher.close()
        close_all(self.widget)
        if _open.get(self.name) is self:
            del _open[self.name]

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self.widget._repr_mimebundle_(**options)

    def _layout(self, speed: float, about: dict[str, Any]) -> None:
        words = [str(about[key]) for key in ("model", "device", "workload") if key in about]
        told = html.escape(" · ".join([self.name, *words]))
        title = ipywidgets.HTML(f"<b>replay</b> {told}")
        self._play = ipywidgets.ToggleButton(description="Play", icon="play", tooltip="Play, pause")
        self._place = ipywidgets.FloatSlider(
            max=max(0.1, self._last_s - self._first_s),
            step=0.01,
            description="Time, s",
            tooltip="Seconds after the first record",
            layout={"flex": "1"},
        )
        options = sorted({*SPEEDS, speed})
        self._speed = ipywidgets.Dropdown(
            options=[(f"× {value:g}", value) for value in options],
            value=speed,
            tooltip="Seconds of trace per second",
            layout={"width": "90px"},
        )
        self._detail = named("detail", ipywidgets.HTML(HINT))
        self._play.observe(self._name_play, names="value")
        self._place.observe(self._moved, names="value")
        bar = named("top", ipywidgets.HBox([self._play, self._place, self._speed]))
        parts = [named("header", title), bar, self.timeline, self._detail, self._numbers_view]
        self.widget = named("workbench", ipywidgets.VBox(parts))

    def _name_play(self, change: dict[str, Any]) -> None:
        """The button says what a press of it does."""
        is_playing = bool(change["new"])
        self._play.description = "Pause" if is_playing else "Play"
        self._play.icon = "pause" if is_playing else "play"

    def _moved(self, change: dict[str, Any]) -> None:
        """The user moved the slider."""
        if threading.current_thread().name == self._thread_name:
            return  # the display follows the playhead
        target_s = self._first_s + float(change["new"])
        with self._lock:
            self._rewind(target_s)

    def _rewind(self, now_s: float) -> None:
        """Starts over from an empty view up to `now_s`."""
        self.now_s = now_s
        self._next = 0
        self._trace = Trace(len(self._records))
        self._numbers = LiveNumbers()
        self.timeline.restart()
        self._feed()

    def _feed(self) -> None:
        fed = self._next
        while fed < len(self._records) and time_of(self._records[fed]) <= self.now_s:
            self._trace.append(self._records[fed])
            fed += 1
        self._numbers.add(self._records[self._next : fed])
        self._next = fed

    def _tick(self) -> None:
        wall_s = time.monotonic()
        passed_s, self._wall_s = wall_s - self._wall_s, wall_s
        with self._lock:
            if self._play.value:
                if self._next == len(self._records):
                    self._rewind(self._first_s)
                self.now_s = min(
                    self._last_s, self.now_s + passed_s * float(self._speed.value or 0.0)
                )
                self._feed()
                if self._next == len(self._records):
                    self._play.value = False
            self.timeline.publish(self._trace, self.now_s, self._hindsight.at(self.now_s))
            now_s = self.now_s
            self._place.value = now_s - self._first_s
            summary = self._numbers.summary(now_s, self._target_s)
        if self._ticks % NUMBERS_EVERY == 0:
            self._numbers_view.show(tiles(summary, self._stats(now_s), self._target_s))
        self._ticks += 1

    def _stats(self, now_s: float) -> EngineStats:
        states = [life.state for life in self._numbers.requests.values()]
        waiting = sum(s in (RequestState.WAITING, RequestState.PREFILLING) for s in states)
        ended = sum(state.is_final for state in states)
        running = len(states) - waiting - ended
        done = states.count(RequestState.DONE)
        return EngineStats("replay", now_s, waiting, running, 0, done, 0, 0, 0, 0, 0.0)

    def _select(self, request_id: int, index: int) -> None:
        self._detail.value = chunk_words(self._trace, request_id, index)

    def _report(self, message: str) -> None:
        self._detail.value = html.escape(message)


def _setting_s(about: dict[str, Any], name: str, otherwise_s: float) -> float:
    """Seconds of a setting, which some traces hold as text."""
    value = about.get("settings", {}).get(name, otherwise_s)
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = math.nan
    if not math.isfinite(seconds):
        raise InvalidInput(f"the trace's setting {name} is {value!r}, not seconds")
    return seconds


def _read(source: Any) -> tuple[list[Record], dict[str, Any]]:
    if isinstance(source, str | Path):
        source = trace_file.load(source)
    if isinstance(source, SavedTrace):
        return list(source.records), source.about
    records = list(source) if isinstance(source, Iterable) else [source]
    for record in records:
        if not isinstance(record, Record):
            raise InvalidInput(
                f"{record!r:.80} is no trace's record: replay a file or engine.trace"
            )
    return records, {}
