"""A row that asks what any value of one setting would have done."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
# (ipywidgets carries no types)

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import ipywidgets

from voxserve.core.errors import InvalidInput
from voxserve.viz.controls import Controls
from voxserve.viz.knobs import Control
from voxserve.viz.layout import named

SECONDS = (10.0, 20.0, 60.0)
_LETTERS_S = 0.3


class Suppose:
    """Setting, value, window: hidden until `open`.

    Args:
        controls: The settings, in the units that their widgets show.
        guarded: Wraps callbacks so that their errors are shown.
        ask: Takes changed settings, a name and the seconds to simulate.
    """

    def __init__(
        self,
        controls: Controls,
        guarded: Callable[[Callable[[Any], Any]], Callable[[Any], None]],
        ask: Callable[[dict[str, Any], str, float], None],
    ) -> None:
        self._controls = controls
        self._ask = ask
        names = [(control.label, control.name) for control in controls.controls.values()]
        self.setting: Any = ipywidgets.Dropdown(
            options=names, tooltip="Setting to try", layout={"width": "140px"}
        )
        self.value: Any = ipywidgets.Combobox(tooltip="Value to try", layout={"width": "190px"})
        self.seconds: Any = ipywidgets.Dropdown(
            options=[(f"last {seconds:.0f} s", seconds) for seconds in SECONDS],
            value=20.0,
            tooltip="How much of the past is simulated",
            layout={"width": "100px"},
        )
        self.run = ipywidgets.Button(
            description="Simulate", icon="play", tooltip="Beside the engine, which goes on as it is"
        )
        self._hide = ipywidgets.Button(
            icon="times", tooltip="Hide this row", layout={"width": "32px"}
        )
        self.setting.observe(lambda _: self._offer(), names="value")
        asked = guarded(lambda _: self.ask())
        self.run.on_click(lambda _: _after_letters(asked))
        self._hide.on_click(lambda _: self._show(False))
        label = ipywidgets.HTML("What if")
        parts = [label, self.setting, self.value, self.seconds, self.run, self._hide]
        self.box = named("suppose", ipywidgets.HBox(parts))
        self._show(False)

    def open(self) -> None:
        """Shows the row, for the setting chosen last."""
        self._offer()
        self._show(True)

    def ask(self) -> None:
        """Asks with what was chosen.

        Raises:
            InvalidInput: No other value than the one in force.
            InvalidSetting: Says what is possible.
        """
        control, engine = self._control, self._controls.engine
        if not self.value.value.strip():
            raise InvalidInput(f"{control.label}: choose or type a value to try")
        wanted = {control.name: control.parsed(self.value.value)}
        new = getattr(engine.settings.changed(engine.prepared, **wanted), control.name)
        if new == getattr(engine.settings, control.name):
            raise InvalidInput(f"{control.label} is {control.text(new)} already: try another value")
        self._ask({control.name: new}, f"{control.label} {control.text(new)}", self.seconds.value)

    @property
    def _control(self) -> Control:
        return self._controls.controls[self.setting.value]

    def _offer(self) -> None:
        control = self._control
        now = control.text(getattr(self._controls.engine.settings, control.name))
        self.value.value = ""
        self.value.options = list(control.choices())
        self.value.placeholder = f"{control.limits()}; now {now}"

    def _show(self, is_shown: bool) -> None:
        self.box.layout.display = "" if is_shown else "none"


def _after_letters(asked: Callable[[Any], None]) -> None:
    """Calls back when the letters typed before a click have come: a busy kernel gets them later."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # no kernel: nothing is under way
        asked(None)
    else:
        loop.call_later(_LETTERS_S, asked, None)
