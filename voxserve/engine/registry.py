"""One engine per name in a process, so that running a notebook cell again loads no second model."""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING

from voxserve.engine.host import tuning

if TYPE_CHECKING:
    from voxserve.engine.engine import Engine

# Re-entrant: starting an engine may stop another of the same name.
lock = threading.RLock()
_engines: weakref.WeakValueDictionary[str, Engine] = weakref.WeakValueDictionary()


def live(name: str) -> Engine | None:
    """The running engine of this name, or None."""
    engine = _engines.get(name)
    return engine if engine is not None and engine.is_running else None


def take_name(name: str, engine: Engine) -> None:
    """Gives the name to `engine`, stopping the engine that had it."""
    other = live(name)
    if other is not None and other is not engine:
        other.stop()
    _engines[name] = engine


def _forget() -> None:
    """In a forked child: the engines' threads and whoever held the lock are the parent's."""
    global lock
    lock = threading.RLock()
    for engine in list(_engines.values()):
        engine.disown()
    _engines.clear()
    tuning.forget()


if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    os.register_at_fork(after_in_child=_forget)


def engines() -> dict[str, Engine]:
    """The running engines of this process, by name."""
    return {name: engine for name, engine in list(_engines.items()) if engine.is_running}
