"""The detail panel: why a chunk was late, its cure, and what other settings would have done."""

# pyright: reportUnknownMemberType=false
# (ipywidgets carries no types)

from __future__ import annotations

import html
import threading
from collections.abc import Callable
from typing import Any

from voxserve.core.errors import VoxserveError
from voxserve.core.events import Record
from voxserve.core.protocols import SpeechEngine
from voxserve.viz.cures import CureSearch
from voxserve.viz.explain import KEPT_S, chunk_words, find, heard_words, is_late
from voxserve.viz.player import Player
from voxserve.viz.timeline import Timeline
from voxserve.viz.whatif import Question, WhatIf
from voxserve.viz.wire import ListenerStall, recent
from voxserve.viz.words import progress_bar

HINT = (
    "Hover over the picture for details; click a deadline, a stall or a slack mark for its story."
)


class Stories:
    """Answers clicks on the timeline and what-if questions, in the detail panel.

    Args:
        panel: An HTML widget.
        guarded: Wraps callbacks so that their errors are shown.
    """

    def __init__(
        self,
        engine: SpeechEngine,
        timeline: Timeline,
        player: Player,
        panel: Any,
        guarded: Callable[[Callable[[Any], Any]], Callable[[Any], None]],
    ) -> None:
        self.engine = engine
        self.timeline = timeline
        self.player = player
        self._panel = panel
        self._guarded = guarded
        self._lock = threading.Lock()
        self._question: Question | None = None
        self._search: CureSearch | None = None
        self.tell("")
        timeline.on_select = self._told(self.select)
        timeline.on_select_heard = self._told(self.select_heard)
        timeline.on_point = self._point
        player.on_stall = self._on_listener_stall
        player.observe(self._name_spoken, names="streams")

    def tell(self, words: str) -> None:
        """Shows HTML; the hint when there is none."""
        self._panel.value = words or HINT

    def select(self, request_id: int, index: int) -> None:
        """Tells a chunk's story, then what would have cured its lateness."""
        held = self._held()
        story = chunk_words(held, request_id, index, self.player.label(request_id))
        self.tell(story)
        self._point(request_id, index)
        chunk = find(held, request_id, index)
        if chunk is None or not is_late(chunk):
            self._search_now(None)
            return
        self.tell(f"{story} {_searching_words(0.0)}")
        search = CureSearch(self.engine, held, request_id, index)
        self._search_now(search)
        self._aside("cure", lambda: self._find_cure(story, search))

    def _search_now(self, search: CureSearch | None) -> None:
        """One at most: of what is shown."""
        with self._lock:
            before, self._search = self._search, search
        if before is not None:
            before.cancel()

    def select_heard(self, time_s: float, stream: int) -> None:
        """Tells why the listener had nothing to play."""
        stall = ListenerStall(time_s, 0.0, stream)
        player = self.player
        text = player.label(stream)
        self.tell(heard_words(self._held(), stall, player.prebuffer_s, player.jitter_s, text))

    def ask(self, changes: dict[str, Any], name: str, seconds: float) -> None:
        """Simulates the last seconds otherwise, and draws the answer as ghosts."""
        question = Question(self.engine, seconds, name=name, **changes)
        with self._lock:
            before, self._question = self._question, question
        if before is not None:
            before.cancel()
        self.tell(f"{_asked_words(question)} {progress_bar(0.0)}")
        self._aside("what-if", lambda: self._answer(question))

    def show(self, answer: WhatIf) -> None:
        """Draws an answer's ghosts and tells the difference."""
        self.timeline.show_ghost(answer.name, answer.words(), answer.ghost, answer.recorded)
        self.tell(answer.table_html())

    def close(self) -> None:
        """Ends the simulations that are under way."""
        with self._lock:
            running = self._question, self._search
            self._question = self._search = None
        for simulation in running:
            if simulation is not None:
                simulation.cancel()

    def _held(self) -> list[Record]:
        return recent(self.engine.trace, self.engine.now_s() - KEPT_S)

    def _answer(self, question: Question) -> None:
        asked = _asked_words(question)

        def progress(share: float) -> None:
            # A story that was asked for meanwhile stays.
            if not question.is_cancelled and self._panel.value.startswith(asked):
                self.tell(f"{asked} {progress_bar(share)}")

        try:
            self.show(question.answer(progress))
        except VoxserveError:
            if not question.is_cancelled:  # else the newer question speaks
                self.tell("")
                raise

    def _find_cure(self, story: str, search: CureSearch) -> None:
        """Simulates until a cure is found; the panel may show something else by then."""

        def tell(words: str) -> None:
            if not search.is_cancelled and self._panel.value.startswith(story):
                self.tell(f"{story} {words}")

        cure = ""
        try:
            cure = search.words(lambda share: tell(_searching_words(share)))
        except VoxserveError:
            if not search.is_cancelled:  # else the newer search speaks
                raise
        finally:
            tell(cure)

    def _aside(self, name: str, do: Callable[[], None]) -> None:
        run = self._guarded(lambda _: do())
        threading.Thread(target=run, args=(None,), name=f"voxserve-{name}", daemon=True).start()

    def _told(self, callback: Callable[..., None]) -> Callable[..., None]:
        """A callback of several arguments whose errors are shown."""
        guarded = self._guarded(lambda arguments: callback(*arguments))
        return lambda *arguments: guarded(arguments)

    def _point(self, request_id: int, index: int) -> None:
        self.player.highlight = {"stream": request_id, "chunk": index}

    def _name_spoken(self, change: dict[str, Any]) -> None:
        """The timeline names requests as the player's rows do."""
        self.timeline.spoken = {str(n): label for n, label in change["new"] if n >= 0}

    def _on_listener_stall(self, stream: int, gap_s: float) -> None:
        self.timeline.add_listener_stall(ListenerStall(self.engine.now_s() - gap_s, gap_s, stream))


def _asked_words(question: Question) -> str:
    return (
        f"Simulating the last {question.seconds:.0f} s with <b>{html.escape(question.name)}</b>, "
        "beside the engine:"
    )


def _searching_words(share: float) -> str:
    return f"<i>Looking for what would have prevented it …</i> {progress_bar(share)}"
