"""Clocks are handed in: engine time is float seconds of one monotonic or virtual clock."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Anything that tells engine time."""

    def now_s(self) -> float:
        """Seconds on one monotonic clock."""
        ...


class VirtualClock:
    """A clock that moves only when told to; for tests and the simulator."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def now_s(self) -> float:
        """Current virtual time."""
        return self._now_s

    def advance_to(self, time_s: float) -> None:
        """Moves forward to `time_s`; moving back is a bug."""
        assert time_s >= self._now_s, f"virtual time moved back from {self._now_s} to {time_s}"
        self._now_s = time_s
