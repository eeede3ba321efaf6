"""Waiting in tests, and a look at what engines leave behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def assert_no_threads(timeout_s: float = 20.0) -> None:
    """No thread of an engine is left."""
    wait_for(lambda: not voxserve_threads(), timeout_s)


def voxserve_threads() -> list[str]:
    """Names of the living threads that engines start."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("voxserve")]


def wait_for(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    """Waits until a condition holds; fails the test when it does not in time."""
    end_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end_s, "the condition did not come true in time"
        time.sleep(0.002)
