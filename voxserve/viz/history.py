"""What to do to take changes back, newest first: settings and load share one history."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager


class History:
    """Undo actions; from any thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # callbacks run on any kernel thread
        self._undos: list[Callable[[], object]] = []

    def add(self, undo: Callable[[], object]) -> None:
        """Remembers how to take the change just made back."""
        with self._lock:
            self._undos.append(undo)

    @contextmanager
    def as_one(self) -> Generator[None]:
        """Changes made in the block are taken back together."""
        with self._lock:
            first = len(self._undos)
            try:
                yield
            finally:
                group, self._undos[first:] = self._undos[first:], []
                if group:
                    self._undos.append(lambda: [undo() for undo in reversed(group)])

    def undo(self) -> bool:
        """Takes the newest change back; False when there is none."""
        with self._lock:
            if not self._undos:
                return False
            undo = self._undos.pop()
        undo()
        return True
