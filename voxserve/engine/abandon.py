"""Lets work in a thread know that the task which waits for it was cancelled."""

from __future__ import annotations

import threading
from contextvars import ContextVar

# `asyncio.to_thread` hands the context on, so what runs there finds its own.
_abandoned: ContextVar[threading.Event | None] = ContextVar("voxserve_abandoned", default=None)


def expect() -> threading.Event:
    """An event for the work this context starts; set, it says that nobody waits any more."""
    event = threading.Event()
    _abandoned.set(event)
    return event


def is_abandoned() -> bool:
    """Whether nobody waits for the work of this context any more."""
    event = _abandoned.get()
    return event is not None and event.is_set()
