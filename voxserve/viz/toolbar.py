"""The workbench's top row: presets, undo, the state as code, saving, a table of the numbers."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (ipywidgets carries no types)

from __future__ import annotations

import html
import time
from collections.abc import Callable
from typing import Any

import ipywidgets

from voxserve.core.protocols import SpeechEngine
from voxserve.viz import export
from voxserve.viz.controls import Controls
from voxserve.viz.history import History
from voxserve.viz.load import LoadControls
from voxserve.viz.network import NetworkControls
from voxserve.viz.presets import Preset, code, presets
from voxserve.viz.suppose import Suppose

ONE_SETTING = "one setting"  # the entry of "What if …" that asks which
PRESET_S = 20.0  # of the past, simulated under a preset
FILES = {
    "Trace (replay later)": ".trace.gz",
    "Perfetto JSON": ".json",
    "Chunks as CSV": ".csv",
    "Figure as HTML": ".html",
    "Picture as PNG": ".png",
}


class Toolbar:
    """Buttons that act on the engine's settings and its trace.

    Args:
        engine: Saved, and described as code.
        controls: Applies presets, undoes changes.
        load: Applies a preset's load.
        network: Is in the code, too.
        history: Takes the newest change back.
        tell: Shows HTML in the detail panel.
        guarded: Wraps callbacks so that their errors are shown.
        ask: Takes changed settings, a name and the seconds to simulate; shows what would have been.
    """

    def __init__(
        self,
        engine: SpeechEngine,
        controls: Controls,
        load: LoadControls,
        network: NetworkControls,
        history: History,
        tell: Callable[[str], None],
        guarded: Callable[[Callable[[Any], Any]], Callable[[Any], None]],
        ask: Callable[[dict[str, Any], str, float], None],
    ) -> None:
        self.engine = engine
        self.controls = controls
        self.load = load
        self._network = network
        self._history = history
        self._tell = tell
        self._ask = ask
        self._start = engine.settings
        self._presets = {p.name: p for p in presets(engine.prepared, engine.settings)}
        names = [("Presets …", "")] + [(name, name) for name in self._presets]
        self.preset = _menu(names, "Settings and load for a lesson")
        self.undo = _button("Undo", "undo", "Take the newest change of a setting or the load back")
        self.code = _button("As code", "code", "Python that reproduces this state")
        self.save = _menu([("Save …", ""), *FILES.items()], "Write what happened to a file")
        self.preset.observe(guarded(self._choose), names="value")
        self.undo.on_click(guarded(lambda _: self.take_back()))
        self.code.on_click(guarded(lambda _: self.show_code()))
        self.save.observe(guarded(self._save), names="value")
        questions = [("What if …", ""), ("One setting …", ONE_SETTING), *names[1:]]
        self.what_if = _menu(questions, "Simulate the last seconds otherwise")
        self.suppose = Suppose(controls, guarded, ask)
        self.what_if.observe(guarded(self._suppose), names="value")
        self.widgets = [self.preset, self.what_if, self.undo, self.code, self.save]

    def apply(self, preset: Preset) -> None:
        """Applies a preset's settings and its load as one change."""
        with self._history.as_one():
            self.controls.apply(preset.settings)
            if preset.load_share is not None:
                self.load.apply(rate_rps=preset.load_share * self.load.rate.max)
        self._tell(f"<b>{html.escape(preset.name)}</b>: {html.escape(preset.lesson)}")

    def take_back(self) -> None:
        """Undoes the newest change."""
        self._tell("" if self._history.undo() else "There is no change to undo.")

    def as_code(self) -> str:
        """Python that reproduces the state."""
        engine = self.engine
        names = engine.model_name, engine.device_name
        return code(engine.settings, self._start, *names, self.load.load, self._network.changed())

    def show_code(self) -> None:
        """Shows the code, ready to be copied."""
        self._tell(f'<pre class="vs-code">{html.escape(self.as_code())}</pre>')

    def _choose(self, change: dict[str, Any]) -> None:
        if change["new"]:
            self.preset.value = ""  # the same preset can be chosen again
            self.apply(self._presets[change["new"]])

    def _suppose(self, change: dict[str, Any]) -> None:
        if not change["new"]:
            return
        self.what_if.value = ""
        if change["new"] == ONE_SETTING:
            self.suppose.open()
            return
        now, preset = self.engine.settings, self._presets[change["new"]]
        wanted = preset.settings.items()
        different = {n: v for n, v in wanted if v != getattr(now, n)}
        self._ask(different, preset.name, PRESET_S)

    def _save(self, change: dict[str, Any]) -> None:
        if change["new"]:
            self.save.value = ""
            self._tell("Saving …")  # a long trace takes seconds
            name = time.strftime(f"voxserve-%Y%m%d-%H%M%S{change['new']}")
            path = export.save(self.engine, name)
            self._tell(f"Saved as <code>{html.escape(str(path))}</code> beside the notebook.")


def _button(text: str, icon: str, tooltip: str) -> Any:
    return ipywidgets.Button(description=text, icon=icon, tooltip=tooltip, layout={"width": "auto"})


def _menu(options: list[tuple[str, str]], tooltip: str) -> Any:
    return ipywidgets.Dropdown(
        options=options, value="", tooltip=tooltip, layout={"width": "100px"}
    )
