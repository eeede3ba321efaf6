"""Controls of what lies between engine and ear: the player's prebuffer, imitated jitter."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
# (ipywidgets carries no types)

from __future__ import annotations

from typing import Any

import ipywidgets

from voxserve.viz.history import History
from voxserve.viz.knobs import LOOK
from voxserve.viz.player import Player
from voxserve.viz.showing import Showing

_SLIDERS = {
    "prebuffer_s": ("Prebuffer, ms", "Audio the player collects before it plays."),
    "jitter_s": ("Jitter, ms", "Largest random network delay of a message, to imitate."),
}


class NetworkControls:
    """Sliders for a player's prebuffer and jitter; changes from Python are shown, too."""

    def __init__(self, player: Player, history: History) -> None:
        self.player = player
        self._history = history
        self._start = {trait: getattr(player, trait) for trait in _SLIDERS}
        self._showing = Showing()
        self.sliders = {trait: self._slider(trait) for trait in _SLIDERS}

    def box(self) -> list[Any]:
        """The widgets, in order."""
        return list(self.sliders.values())

    def changed(self) -> dict[str, float]:
        """What differs from the start, by the player's attributes."""
        now = {trait: getattr(self.player, trait) for trait in _SLIDERS}
        return {trait: value for trait, value in now.items() if value != self._start[trait]}

    def _slider(self, trait: str) -> Any:
        label, tooltip = _SLIDERS[trait]
        slider = ipywidgets.IntSlider(
            value=round(1000 * getattr(self.player, trait)),
            max=1000,
            step=20,
            description=label,
            tooltip=tooltip,
            continuous_update=False,
            **LOOK,
        )
        slider.observe(lambda change: self._chosen(trait, change["new"] / 1000), names="value")
        self.player.observe(lambda change: self._show(trait, change["new"]), names=trait)
        return slider

    def _chosen(self, trait: str, value_s: float) -> None:
        if self._showing.is_here:
            return
        before_s = getattr(self.player, trait)
        setattr(self.player, trait, value_s)
        self._history.add(lambda: setattr(self.player, trait, before_s))

    def _show(self, trait: str, value_s: float) -> None:
        with self._showing:
            slider = self.sliders[trait]
            slider.max = max(slider.max, round(1000 * value_s))
            slider.value = round(1000 * value_s)
