"""Controls of the background load: how often, in which pattern, and how long the texts are."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
# (ipywidgets carries no types)

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import ipywidgets

from voxserve.core.errors import VoxserveError
from voxserve.core.protocols import SpeechEngine
from voxserve.viz.history import History
from voxserve.viz.knobs import LOOK
from voxserve.viz.showing import Showing

TEXTS = {
    "5, short": "words:5",
    "11, SeedTTS": "seedtts",
    "19, LibriTTS": "libritts",
    "40, long": "words:40",
}
ARRIVALS = {
    "Poisson": "",
    "regular": "regular",
    "bursts of 4": "burst:4",
    "bursts of 16": "burst:16",
}


@dataclass(frozen=True, slots=True)
class Load:
    """A background load.

    Attributes:
        texts: A workload's name, such as "libritts".
        arrivals: "" for its own times, "regular" or "burst:N".
        rate_rps: Requests per second; 0 is none.
    """

    texts: str = "libritts"
    arrivals: str = ""
    rate_rps: float = 0.0

    @property
    def workload(self) -> str:
        """What `engine.load` takes."""
        return f"{self.texts}@{self.arrivals}" if self.arrivals else self.texts

    @classmethod
    def of(cls, workload: str, rate_rps: float) -> Load:
        """Takes a workload's name apart."""
        texts, at, arrivals = workload.rpartition("@")
        if at and arrivals.startswith(("regular", "burst")):
            return cls(texts, arrivals, rate_rps)
        if workload.startswith("burst"):
            return cls("libritts", workload, rate_rps)
        return cls(workload, "", rate_rps)


class LoadControls:
    """Widgets of the background load; what they show is what the engine has.

    Args:
        engine: Is asked for its load, and told.
        history: Changes go into it.
        report: Told what went wrong (or "" when all is well), from any thread.
        max_rate_rps: Right end of the rate's slider.
    """

    def __init__(
        self,
        engine: SpeechEngine,
        history: History,
        report: Callable[[str], None],
        max_rate_rps: float,
    ) -> None:
        self.engine = engine
        self.load = Load()
        self._history = history
        self._report = report
        self._lock = threading.RLock()  # callbacks run on any kernel thread
        self._showing = Showing()
        self.rate = ipywidgets.FloatSlider(
            max=max_rate_rps,
            step=max_rate_rps / 80,
            description="Rate, req/s",
            tooltip="Background requests per second: open loop, nobody hears them.",
            continuous_update=False,
            readout_format=".1f",
            **LOOK,
        )
        self.arrivals = _choice(
            "Arrivals", ARRIVALS, "When background requests arrive, at the same mean rate."
        )
        self.texts = _choice("Text, words", TEXTS, "Mean length of the background texts.")
        self.sync()
        self._show()
        for part, widget in self._widgets().items():
            widget.observe(lambda change, p=part: self._changed(p, change["new"]), names="value")

    def box(self) -> list[Any]:
        """The widgets, in order."""
        return [self.rate, self.arrivals, self.texts]

    def apply(self, **parts: Any) -> None:
        """Changes rate_rps, arrivals or texts as one change that one undo takes back.

        Raises:
            InvalidInput: The engine refuses it; nothing was changed.
        """
        with self._lock:
            old, new = self.load, replace(self.load, **parts)
            if new != old:
                self._put(new)
                self._history.add(lambda: self._put(old))

    def sync(self) -> None:
        """Shows the engine's load, whoever changed it."""
        with self._lock:
            stats = self.engine.stats()
            now = Load.of(stats.workload, stats.rate_rps)
            if not stats.rate_rps:  # an engine without a load has no texts to show
                now = replace(self.load, rate_rps=0.0)
            if now != self.load:
                self.load = now
                self._show()

    def _put(self, load: Load) -> None:
        with self._lock:
            if load.rate_rps or self.load.rate_rps:
                self.engine.load(load.workload, rate_rps=load.rate_rps)
            self.load = load
            self._show()

    def _changed(self, part: str, value: Any) -> None:
        if self._showing.is_here:
            return
        self._report("")
        try:
            self.apply(**{part: value})
        except VoxserveError as error:
            self._report(str(error))
            self._show()

    def _show(self) -> None:
        with self._lock, self._showing:
            for part, widget in self._widgets().items():
                value = getattr(self.load, part)
                if part == "rate_rps":
                    widget.max = max(widget.max, value)
                elif value not in [option for _, option in widget.options]:
                    widget.options = [*widget.options, (value, value)]
                widget.value = value

    def _widgets(self) -> dict[str, Any]:
        return {"rate_rps": self.rate, "arrivals": self.arrivals, "texts": self.texts}


def _choice(label: str, options: dict[str, str], tooltip: str) -> Any:
    return ipywidgets.Dropdown(
        options=list(options.items()), description=label, tooltip=tooltip, **LOOK
    )
