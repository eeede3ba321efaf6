"""Hands displays a snapshot of the running chunks at the moment that suits the serving thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from voxserve.core.jobs import Job, LaneName
from voxserve.core.live import LiveChunks, no_chunks
from voxserve.sched.board import Board
from voxserve.sched.live import live_chunks

PATIENCE_S = 0.02  # several steps of a GPU


class Glimpse:
    """Snapshots taken just after a step was launched.

    The serving thread then has nothing to do until the step ends, so that what a display goes on
    to do with the interpreter is not in its way.

    Args:
        wake: Makes the serving thread take a turn.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._chunks = no_chunks()
        self._is_wanted = False
        self._is_overdue = False
        self._is_taken = threading.Event()

    def look(self) -> LiveChunks:
        """The next snapshot, on any thread; without steps, that of a turn it asks for."""
        self._is_taken.clear()
        self._is_wanted = True
        if not self._is_taken.wait(PATIENCE_S):
            self._is_overdue = self._is_wanted = True  # a turn may have answered another display
            self._wake()
            self._is_taken.wait(PATIENCE_S)
        return self._chunks

    def take(self, board: Board, now_s: float, launched: Sequence[Job]) -> None:
        """At the end of a turn of the serving thread, which launched these jobs."""
        if not self._is_wanted:
            return
        if self._is_overdue or any(job.lane is LaneName.LM for job in launched):
            self._chunks = live_chunks(board, now_s)
            self._is_wanted = self._is_overdue = False
            self._is_taken.set()
