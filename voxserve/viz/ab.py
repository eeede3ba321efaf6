"""A/B: the same texts and seeds under two settings, heard side by side and compared in numbers."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
# (ipywidgets carries no types)

from __future__ import annotations

import html
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets
import numpy as np
from numpy.typing import NDArray

from voxserve.core.errors import InvalidInput
from voxserve.core.playback import STALL_LIMIT_S
from voxserve.core.protocols import AudioChunk, SpeechEngine
from voxserve.viz.layout import close_all, named
from voxserve.viz.player import Player

BETWEEN_S = 0.3  # silence between two texts


@dataclass(frozen=True, slots=True)
class Heard:
    """One text under one setting.

    Attributes:
        ttfa_s: Request to first samples; None without audio.
        stall_s: Pauses a listener would have had, in all.
        as_heard: int16 [samples], the waits before and between chunks included as silence.
        boundary: Largest sample step at a chunk border over the 99th percentile of all steps:
            well above 1 would be a click.
    """

    ttfa_s: float | None
    stall_s: float
    as_heard: NDArray[np.int16]
    boundary: float


class AB:
    """Runs texts under settings A, then B, and plays both so that one can switch between them.

    Args:
        engine: Its settings are put back afterwards.
        a, b: Settings by name.
        texts: Spoken at the same moment, as that many listeners.
        seed: Of every request, so that only the settings differ.
    """

    def __init__(
        self,
        engine: SpeechEngine,
        a: dict[str, Any],
        b: dict[str, Any],
        texts: str | Sequence[str],
        *,
        seed: int = 0,
    ) -> None:
        self.engine = engine
        self.texts = [texts] if isinstance(texts, str) else list(texts)
        if not self.texts:
            raise InvalidInput("A/B: at least one text is needed")
        self.changes = {"A": a, "B": b}
        before = {name: getattr(engine.settings, name) for name in a.keys() | b.keys()}
        self.heard: dict[str, list[Heard]] = {}
        try:
            for name, changes in self.changes.items():
                engine.set(**before | changes)
                self.heard[name] = _speak_all(engine, self.texts, seed)
        finally:
            engine.set(**before)
        self.player = Player(rate_hz=engine.sample_rate_hz, prebuffer_s=0.0)
        self._stream = 0
        self._choice = ipywidgets.ToggleButtons(
            options=["A", "B"], tooltips=["Hear A", "Hear B"], style={"button_width": "60px"}
        )
        self._choice.observe(lambda _: self._balance(), names="value")
        play = ipywidgets.Button(description="Play both", icon="play", tooltip="A and B in step")
        play.on_click(lambda _: self.play())
        bar = named("top", ipywidgets.HBox([play, self._choice]))
        self.widget = named(
            "workbench", ipywidgets.VBox([ipywidgets.HTML(self.as_html()), bar, self.player])
        )

    def play(self) -> None:
        """Plays both in step; the switch decides which one is heard."""
        for offset in (1, 2):
            self.player.stop(self._stream + offset)
        self._stream += 2
        self._balance()
        for offset, name in enumerate(("A", "B"), start=1):
            pcm = _joined([h.as_heard for h in self.heard[name]], self.engine.sample_rate_hz)
            self.player.push(self._stream + offset, pcm, end=True)

    def rows(self) -> list[tuple[str, str, str]]:
        """Name, A and B of each figure."""
        figures = [_figures(self.heard[name]) for name in ("A", "B")]
        return [(name, figures[0][name], figures[1][name]) for name in figures[0]]

    def as_html(self) -> str:
        """Both sides' figures."""
        heads = [_worded(self.changes[name]) for name in ("A", "B")]
        body = "".join(f"<tr><td>{name}<td>{a}<td>{b}</tr>" for name, a, b in self.rows())
        return (
            f'<table class="vs-table"><tr><th><th>A: {heads[0]}<th>B: {heads[1]}</tr>{body}</table>'
        )

    def close(self) -> None:
        """Frees the widgets."""
        close_all(self.widget)

    def _balance(self) -> None:
        for offset, name in enumerate(("A", "B"), start=1):
            self.player.set_gain(self._stream + offset, float(self._choice.value == name))

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self.widget._repr_mimebundle_(**options)


def _speak_all(engine: SpeechEngine, texts: list[str], seed: int) -> list[Heard]:
    """All texts at once; each is read on a thread of its own, as listeners do."""
    heard: dict[int, Heard] = {}
    errors: list[Exception] = []

    def listen(index: int, text: str) -> None:
        start_s = time.monotonic()
        try:
            chunks, came_s = [], []
            for chunk in engine.stream(text, seed=seed):
                chunks.append(chunk)
                came_s.append(chunk.delivered_s)
            arrival_s = engine.now_s() - (time.monotonic() - start_s)
            heard[index] = _heard(chunks, arrival_s, engine.sample_rate_hz)
        except Exception as error:  # handed over to the caller's thread
            errors.append(error)

    threads = [
        threading.Thread(target=listen, args=pair, name=f"voxserve-ab-{pair[0]}", daemon=True)
        for pair in enumerate(texts)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [heard[index] for index in range(len(texts))]


def _heard(chunks: list[AudioChunk], arrival_s: float, rate_hz: int) -> Heard:
    chunks = [chunk for chunk in chunks if len(chunk.pcm)]
    parts: list[NDArray[np.int16]] = []
    runs_out_s = arrival_s
    stall_s = 0.0
    for chunk in chunks:
        gap_s = max(0.0, chunk.delivered_s - runs_out_s)
        stall_s += gap_s if parts else 0.0
        parts += [np.zeros(round(gap_s * rate_hz), np.int16), chunk.pcm]
        runs_out_s = max(runs_out_s, chunk.delivered_s) + len(chunk.pcm) / rate_hz
    ttfa_s = chunks[0].delivered_s - arrival_s if chunks else None
    pcm = np.concatenate(parts) if parts else np.zeros(0, np.int16)
    return Heard(ttfa_s, stall_s, pcm, boundary_step([chunk.pcm for chunk in chunks]))


def boundary_step(chunks: list[NDArray[np.int16]]) -> float:
    """The largest step between samples at chunk borders, relative to steps elsewhere."""
    if len(chunks) < 2:
        return 0.0
    steps = np.abs(np.diff(np.concatenate(chunks).astype(np.int32)))
    borders = np.cumsum([len(chunk) for chunk in chunks])[:-1] - 1
    usual = max(float(np.percentile(steps, 99)), 1.0)
    return float(steps[borders].max()) / usual


def _joined(parts: list[NDArray[np.int16]], rate_hz: int) -> NDArray[np.int16]:
    gap = np.zeros(round(BETWEEN_S * rate_hz), np.int16)
    return np.concatenate([piece for part in parts for piece in (part, gap)])


def _figures(heard: list[Heard]) -> dict[str, str]:
    ttfas = [1000 * one.ttfa_s for one in heard if one.ttfa_s is not None]
    stalled = sum(one.stall_s >= STALL_LIMIT_S for one in heard)
    ends = dict.fromkeys(f"{ms:.0f}" for ms in (min(ttfas), max(ttfas))) if ttfas else ()
    first = f"{' to '.join(ends)} ms" if ends else "no audio"
    return {
        "first audio": first,
        "stalled": f"{stalled} of {len(heard)}",
        "silence": f"{sum(one.stall_s for one in heard):.2f} s",
        "step at chunk borders": f"{max(one.boundary for one in heard):.2f} × the usual",
    }


def _worded(changes: dict[str, Any]) -> str:
    return html.escape(", ".join(f"{name}={value}" for name, value in changes.items()) or "as is")
