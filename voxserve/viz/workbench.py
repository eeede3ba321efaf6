"""The workbench: see, hear and steer a running engine from a notebook cell."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
# (ipywidgets carries no types)

from __future__ import annotations

import html
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from voxserve.core.errors import VoxserveError
from voxserve.core.protocols import SpeechEngine
from voxserve.viz import checks, export
from voxserve.viz.checks import window
from voxserve.viz.controls import Controls
from voxserve.viz.figures import timeline_figure
from voxserve.viz.history import History
from voxserve.viz.layout import Parts, close_all, header_html
from voxserve.viz.listen import Listening
from voxserve.viz.load import LoadControls
from voxserve.viz.metrics import LiveNumbers
from voxserve.viz.network import NetworkControls
from voxserve.viz.numbers import NumbersView, tiles
from voxserve.viz.player import Player
from voxserve.viz.presets import top_rate_rps
from voxserve.viz.publisher import Publisher
from voxserve.viz.stories import Stories
from voxserve.viz.timeline import Timeline
from voxserve.viz.toolbar import Toolbar
from voxserve.viz.whatif import WhatIf, what_if
from voxserve.viz.wire import recent

DEFAULT_TEXT = "The small model speaks while you move the sliders, and every chunk has a deadline."
NUMBERS_EVERY = 5  # ticks between two updates of the numbers: 2 Hz

_log = logging.getLogger("voxserve")
_open: dict[str, Workbench] = {}


class Workbench:
    """Controls, live timeline, player and numbers for one engine.

    A second workbench for an engine of the same name closes the first, so re-running a cell
    leaves nothing behind. Closing it leaves the engine as it is.

    Args:
        engine: A started engine.
        text: What the text box holds at first.
        max_rate_rps: Right end of the background-load slider; by default more than the device
            can serve.
        tap: Keep what the browser played, for tests.

    Raises:
        InvalidInput: Not an engine, not a text, or no rate; a workbench that is open stays so.
    """

    def __init__(
        self,
        engine: SpeechEngine,
        *,
        text: str = DEFAULT_TEXT,
        max_rate_rps: float | None = None,
        tap: bool = False,
    ) -> None:
        engine, text = checks.engine(engine), checks.text("text", text)
        if max_rate_rps is not None:
            max_rate_rps = checks.rate(
                "max_rate_rps", checks.positive("max_rate_rps", max_rate_rps)
            )
        if engine.name in _open:
            _open[engine.name]._end()  # the load goes on: the cell may just have set it
        self.engine = engine
        self.timeline = Timeline(margin_s=engine.settings.urgency_margin_s)
        self.player = Player(rate_hz=engine.sample_rate_hz, tap=tap)
        self.listening = Listening(engine, self.player, self.report)
        history = History()
        self.controls = Controls(engine, history, self.report)
        top_rps = max_rate_rps or top_rate_rps(engine.prepared, engine.device_name)
        self.load = LoadControls(engine, history, self.report, top_rps)
        network = NetworkControls(self.player, history)
        self.numbers = LiveNumbers()
        self._numbers_view = NumbersView()
        self._ticks = 0
        self._is_closed = False
        self._parts = Parts(
            self.controls, self.timeline, self.player, self._numbers_view, self.load, network, text
        )
        self.text, self.rate = self._parts.text, self.load.rate
        self.widget = self._parts.box
        self.stories = Stories(
            engine, self.timeline, self.player, self._parts.detail, self._guarded
        )
        self.toolbar = Toolbar(
            engine,
            self.controls,
            self.load,
            network,
            history,
            self.stories.tell,
            self._guarded,
            self.stories.ask,
        )
        self._parts.top.children = [self._parts.header, *self.toolbar.widgets]
        self._parts.centre.children = [self.timeline, self.toolbar.suppose.box, self._parts.detail]
        self._connect()
        self._publisher = Publisher(self._tick, self.report, f"voxserve-show-{engine.name}")
        _open[engine.name] = self
        self._publisher.start()

    def speak(self, text: str | None = None, **options: Any) -> int:
        """Speaks a text (the text box's unless given) and returns the request's id."""
        return self.listening.speak(self.text.value if text is None else text, **options)

    def speak_lines(self) -> None:
        """Speaks each line of the text box as a stream of its own, all at once."""
        lines = [line for line in self.text.value.splitlines() if line.strip()]
        self.listening.speak_all(lines or [self.text.value])

    def stop(self) -> None:
        """Cancels what is being spoken."""
        self.listening.stop()

    def figure(self, window_s: float = 8.0) -> Any:
        """The last seconds as a Plotly figure that can be saved in a notebook or as HTML."""
        window_s = window(window_s)
        return timeline_figure(
            recent(self.engine.trace, self.engine.now_s() - window_s - export.BEFORE_S),
            window_s=window_s,
            margin_s=self.engine.settings.urgency_margin_s,
        )

    def png(self, window_s: float = 8.0, *, is_dark: bool = False) -> bytes:
        """The last seconds as a PNG, drawn in the kernel: `IPython.display.Image(bench.png())`."""
        return export.png(self.engine, window(window_s), is_dark=is_dark)

    def what_if(self, seconds: float = 20.0, **changes: Any) -> WhatIf:
        """What other settings would have done with the last seconds' requests.

        Waits for the simulation and draws it as ghosts under the live lanes.
        """
        answer = what_if(self.engine, seconds, **changes)
        self.stories.show(answer)
        return answer

    def save(self, path: str | Path) -> Path:
        """Writes the trace as `.trace.gz`, `.json` (Perfetto), `.csv`, `.html` or `.png`."""
        return export.save(self.engine, path)

    def close(self) -> None:
        """Ends the display thread, what is being spoken and the background load; frees widgets."""
        if not self._is_closed and self.load.load.rate_rps:
            with suppress(VoxserveError):  # the engine may have ended before
                self.engine.load(rate_rps=0.0)
        self._end()

    def _end(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._publisher.close()
        self.stories.close()
        self.listening.stop()
        self.timeline.ended = "This workbench was closed."
        close_all(self.widget)
        if _open.get(self.engine.name) is self:
            del _open[self.engine.name]

    def report(self, message: str) -> None:
        """Shows a message in the status line; "" clears it. Callable from any thread."""
        self._parts.status.value = (
            f'<span role="alert">{html.escape(message)}</span>' if message else ""
        )

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self.widget._repr_mimebundle_(**options)

    def _connect(self) -> None:
        self._parts.speak.on_click(self._guarded(lambda _: self.speak_lines()))
        self._parts.stop.on_click(self._guarded(lambda _: self.stop()))

    def _guarded(self, callback: Callable[[Any], Any]) -> Callable[[Any], None]:
        """Front ends hide errors of callbacks in a log: show them in the status line instead."""

        def call(argument: Any) -> None:
            self.report("")  # before, not after: what the callback starts may report meanwhile
            try:
                callback(argument)
            except VoxserveError as error:
                self.report(str(error))
            except Exception as error:  # a border: nobody else would ever see it
                _log.exception("a control of the workbench failed")
                self.report(f"{type(error).__name__}: {error}")

        return call

    def _tick(self) -> None:
        engine = self.engine
        live = engine.live_chunks()  # comes when the engine has nothing to do for a moment
        records = self.timeline.publish(engine.trace, engine.now_s(), live)
        self.numbers.add(records)
        self.controls.acknowledge(records)
        if self._ticks % NUMBERS_EVERY == 0:
            self._show_numbers()
        self._ticks += 1

    def _show_numbers(self) -> None:
        engine = self.engine
        engine.live_chunks()  # the next such moment
        settings, stats = engine.settings, engine.stats()
        self.timeline.margin_s = settings.urgency_margin_s
        self.timeline.note = "" if stats.state == "running" else f"Engine {stats.state}."
        summary = self.numbers.summary(engine.now_s(), settings.ttfa_target_s)
        self._numbers_view.show(tiles(summary, stats, settings.ttfa_target_s))
        self.player.blame_host((c.request_id, c.index) for c in self.numbers.hosts.found)
        self.load.sync()
        self._parts.header.value = header_html(engine, stats, self._publisher.lateness_s)
