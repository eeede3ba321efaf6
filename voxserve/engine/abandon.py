"""Lets work in a thread know that the task which waits for it was cancelled."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar

_T = TypeVar("_T")
_abandoned: ContextVar[threading.Event | None] = ContextVar("voxserve_abandoned", default=None)


def watched(abandoned: threading.Event, work: Callable[[], _T]) -> _T:
    """Does work that can ask whether somebody still waits for it.

    NOTE: it is told for this work alone. The caller's task may go on to ask for other work.

    Args:
        abandoned: To be set when nobody does.
        work: Called at once, on this thread.
    """
    before = _abandoned.set(abandoned)
    try:
        return work()
    finally:
        _abandoned.reset(before)


def is_abandoned() -> bool:
    """Whether nobody waits for the work under way any more."""
    event = _abandoned.get()
    return event is not None and event.is_set()
