"""A/B: the same texts, seeds and arrivals under two settings, heard side by side and compared."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
# (ipywidgets carries no types)

from __future__ import annotations

import html
import threading
from collections.abc import Sequence
from typing import Any

import ipywidgets
import numpy as np
from numpy.typing import NDArray

from voxserve.core import workload as workloads
from voxserve.core.errors import InvalidSetting, VoxserveError
from voxserve.core.protocols import SpeechEngine
from voxserve.core.settings import START_ONLY
from voxserve.viz import checks
from voxserve.viz.ab_run import Background, Side, is_same, run_side, warm_up
from voxserve.viz.layout import close_all, named
from voxserve.viz.player import Player
from voxserve.viz.words import progress_bar

BETWEEN_S = 0.3  # silence between two texts
CLICK = 2.0  # a step at a border so many times the usual one is a click
SIDES = ("A", "B")
_open: list[AB] = []


class AB:
    """Speaks texts under settings A, then B; plays both so that one can switch between them.

    Returns at once; the table and the sound follow when both sides are spoken. With `rate_rps`,
    both sides serve the same background requests at the same times beside the texts. The engine's
    settings and load are put back afterwards. Another A/B of the same engine waits for this one;
    the same comparison again, from a cell run twice, closes it then.

    Args:
        engine: Serves both sides; what it serves besides is ended first.
        a, b: Settings by name.
        texts: Spoken at the same moment, as that many listeners.
        seed: Of every text, so that only the settings differ.
        workload, rate_rps: Background load of each side.
        settle_s: How long the load runs before it is measured.
        measure_s: How long it is measured before the texts come, on each side; what starves
            does so only after seconds. The texts' own time is measured, too.

    Raises:
        InvalidInput, InvalidSetting: Nothing was started.
    """

    def __init__(
        self,
        engine: SpeechEngine,
        a: dict[str, Any],
        b: dict[str, Any],
        texts: str | Sequence[str],
        *,
        seed: int = 0,
        workload: str = "libritts",
        rate_rps: float = 0.0,
        settle_s: float = 3.0,
        measure_s: float = 8.0,
    ) -> None:
        self.engine = engine = checks.engine(engine)
        self.texts = checks.texts(texts)
        self.changes = {"A": checks.settings("a", a), "B": checks.settings("b", b)}
        for changes in self.changes.values():
            for name in START_ONLY & changes.keys():
                raise InvalidSetting(f"A/B: {name} is fixed at start, so both sides have the same")
            engine.settings.changed(engine.prepared, **changes)
        workloads.find(workload)
        settle_s = checks.not_negative("settle_s", settle_s)
        measure_s = checks.not_negative("measure_s", measure_s)
        rate_rps = checks.rate("rate_rps", rate_rps)
        self._background = Background(workload, rate_rps, settle_s, measure_s)
        self._seed = checks.whole("seed", seed)
        self._sides: dict[str, Side] = {}
        self._error: Exception | None = None
        self._stream = 0
        self._make_widgets()
        self._before = [other for other in _open if other.engine is engine]
        _open.append(self)
        self._thread = threading.Thread(
            target=self._run, name=f"voxserve-ab-{engine.name}", daemon=True
        )
        self._thread.start()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until both sides are spoken; False on time-out.

        Raises:
            VoxserveError: What ended the run.
        """
        self._thread.join(timeout_s)
        if self._error is not None:
            raise self._error
        return not self._thread.is_alive()

    @property
    def sides(self) -> dict[str, Side]:
        """What happened under "A" and "B", once both are spoken."""
        self.wait()
        return self._sides

    def play(self) -> None:
        """Plays both in step; the switch decides which one is heard."""
        sides = self.sides
        for offset in (1, 2):
            self.player.stop(self._stream + offset)
        self._stream += 2
        for offset, name in ((2, "B"), (1, "A")):  # the newest row is on top
            self.player.add(self._stream + offset, f"{name}: {_worded(self.changes[name])}")
        self._balance()
        for offset, name in enumerate(SIDES, start=1):
            pcm, chunks = _joined(sides[name], self.engine.sample_rate_hz)
            self.player.push(self._stream + offset, pcm, end=True, chunks=chunks)

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Name of each figure, A, B, and by how much B differs."""
        return _rows(self.sides)

    def as_html(self) -> str:
        """Both sides' figures as a table."""
        return _table(self.sides, self.changes)

    def close(self) -> None:
        """Frees the widgets, once what is being spoken has ended."""
        self._thread.join()
        close_all(self.widget)
        if self in _open:
            _open.remove(self)

    def _make_widgets(self) -> None:
        self.player = Player(rate_hz=self.engine.sample_rate_hz, prebuffer_s=0.0)
        self._table = ipywidgets.HTML()
        self._choice = ipywidgets.ToggleButtons(
            options=list(SIDES), tooltips=["Hear A", "Hear B"], style={"button_width": "60px"}
        )
        self._choice.observe(lambda _: self._balance(), names="value")
        self.player.observe(self._show_choice, names="muted")
        self._play = ipywidgets.Button(
            description="Play both", icon="play", tooltip="A and B in step", disabled=True
        )
        self._play.on_click(lambda _: self.play())
        bar = named("top", ipywidgets.HBox([self._play, self._choice]))
        box = ipywidgets.VBox([self._table, bar, self.player])
        self.widget = named("ab", named("workbench", box))

    def _run(self) -> None:
        try:
            self._await_others()
            self._speak_both()
            self._table.value = _table(self._sides, self.changes)
            self._play.disabled = False
        except Exception as error:  # handed over to whoever waits
            self._error = error
            text = str(error) if isinstance(error, VoxserveError) else repr(error)
            self._table.value = f'<div class="vs-status"><span>{html.escape(text)}</span></div>'

    def _await_others(self) -> None:
        """Two at once would take each other's settings for the engine's own."""
        before, self._before = self._before, []
        for other in before:
            if (other.changes, other.texts) == (self.changes, self.texts):
                other.close()
            else:
                other._thread.join()

    def _speak_both(self) -> None:
        engine = self.engine
        names = self.changes["A"].keys() | self.changes["B"].keys()
        before = {name: getattr(engine.settings, name) for name in names}
        stats = engine.stats()
        try:
            self._table.value = "Speaking the texts once, to warm up …"
            warm_up(engine, self.texts, self._seed)
            for name, changes in self.changes.items():
                engine.set(**before | changes)
                self._sides[name] = self._speak(name, _worded(changes))
        finally:
            engine.set(**before)
            if stats.rate_rps:
                engine.load(stats.workload, rate_rps=stats.rate_rps)

    def _speak(self, name: str, worded: str) -> Side:
        """One side, with its progress instead of the table."""
        what = f"under {name}: {html.escape(worded)} …"

        def progress(share: float) -> None:
            self._table.value = f"Measuring the load {what} {progress_bar(share)}"

        self._table.value = f"Speaking {what}"
        return run_side(self.engine, self.texts, self._seed, self._background, progress)

    def _balance(self) -> None:
        """The side that was not chosen plays on, muted."""
        silent = self._stream + (1 if self._choice.value == "B" else 2)
        if self._stream:
            self.player.muted = [silent]

    def _show_choice(self, change: dict[str, Any]) -> None:
        """The rows of the player have mute buttons, too."""
        audible = [n for n in SIDES if self._stream + 1 + SIDES.index(n) not in change["new"]]
        if len(audible) == 1:
            self._choice.value = audible[0]

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self.widget._repr_mimebundle_(**options)


def _rows(sides: dict[str, Side]) -> list[tuple[str, str, str, str]]:
    a, b = (sides[name].figures() for name in SIDES)
    pairs = zip(a, b, strict=True)
    return [(one.name, one.worded(), two.worded(), one.difference(two)) for one, two in pairs]


def _table(sides: dict[str, Side], changes: dict[str, dict[str, Any]]) -> str:
    heads = "".join(f"<th>{name}: {html.escape(_worded(changes[name]))}" for name in SIDES)
    body = "".join(
        f"<tr><td>{name}<td>{a}<td>{b}<td>{difference}</tr>"
        for name, a, b, difference in _rows(sides)
    )
    meters = "".join(f"<td>{_meter(sides[name].click)}" for name in SIDES)
    same = "the same samples" if is_same(sides["A"], sides["B"]) else "other samples"
    return (
        f'<table class="vs-table"><tr><th>{heads}<th>B − A</tr>{body}'
        f"<tr><td>step at chunk borders{meters}<td>{same}</tr></table>"
    )


def _meter(click: float) -> str:
    """A step as large as those inside chunks is no click."""
    verdict = "a click" if click > CLICK else "no click"
    return (
        f'<meter min="0" max="{2 * CLICK:g}" high="{CLICK:g}" optimum="0" value="{click:.2f}">'
        f"</meter> {click:.1f} × usual: {verdict}"
    )


def _joined(side: Side, rate_hz: int) -> tuple[NDArray[np.int16], list[tuple[int, int, float]]]:
    """One text after the other, with a pause between, and the chunks in it."""
    pause = np.zeros(round(BETWEEN_S * rate_hz), np.int16)
    pieces: list[NDArray[np.int16]] = []
    parts: list[tuple[int, int, float]] = []
    for spoken in side.spoken:
        pcm, chunks = spoken.as_heard(rate_hz)
        pieces += [pcm, pause]
        parts += [*chunks, (-1, len(pause), 0.0)]
    return np.concatenate(pieces), parts


def _worded(changes: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in changes.items()) or "as is"
