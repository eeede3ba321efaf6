"""Tells a widget's changes that show what is so from those that a user made."""

from __future__ import annotations

import threading


class Showing:
    """A block in which this thread sets widgets: their observers then find `is_here` true.

    Callbacks run on any thread of the kernel; one thread shows at a time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: int | None = None

    def __enter__(self) -> None:
        self._lock.acquire()
        self._thread = threading.get_ident()

    def __exit__(self, *exc: object) -> None:
        self._thread = None
        self._lock.release()

    @property
    def is_here(self) -> bool:
        """Whether the calling thread is in such a block."""
        return self._thread == threading.get_ident()
