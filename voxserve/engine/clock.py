"""The engine's clock: the one place that reads time while serving."""

from __future__ import annotations

import time


class MonotonicClock:
    """Seconds of the system's monotonic clock; every engine and lane of a process agrees on it."""

    def now_s(self) -> float:
        """Now."""
        return time.monotonic()
