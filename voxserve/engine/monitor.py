"""Records the trace and keeps the counters that displays read, on the serving thread."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from voxserve.core.events import HostDelay, Packed, Record, RequestChange, Trace
from voxserve.core.request import RequestState

# Host delays are recorded as the worst of a window, and only from here on: shorter ones are the
# ordinary price of two threads handing over.
_WINDOW_S = 0.1
_WORTH_RECORDING_S = 0.002
_SHOWN_WINDOWS = 10
_KEPT_TURNS = 1 << 16  # of the serving loop: about two minutes under full load


class Monitor:
    """The scheduler's `record`, with counts of requests by state and the host's lateness.

    Attributes:
        ended: Requests by final state, since the start.
        delay_s: Worst host delay of the last second.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._states: dict[int, RequestState] = {}
        self.active: Counter[RequestState] = Counter()
        self.ended: Counter[RequestState] = Counter()
        self._window_start_s = 0.0
        self._window_delay_s = 0.0
        self._shown: list[float] = []
        self.delay_s = 0.0
        self._turns = np.zeros((_KEPT_TURNS, 2))
        self._num_turns = 0

    def record(self, record: Record | Packed) -> None:
        """Appends to the trace and counts."""
        self._trace.append(record)
        if not isinstance(record, RequestChange):
            return
        before = self._states.pop(record.request_id, None)
        if before is not None:
            self.active[before] -= 1
        if record.state.is_final:
            self.ended[record.state] += 1
        else:
            self._states[record.request_id] = record.state
            self.active[record.state] += 1

    def host_delay(self, now_s: float, delay_s: float) -> None:
        """Takes in how late the serving thread acted just now."""
        self._window_delay_s = max(self._window_delay_s, delay_s)
        if now_s - self._window_start_s < _WINDOW_S:
            return
        if self._window_delay_s >= _WORTH_RECORDING_S:
            self._trace.append(HostDelay(now_s, self._window_delay_s))
        self._shown = [*self._shown[1 - _SHOWN_WINDOWS :], self._window_delay_s]
        self.delay_s = max(self._shown)
        self._window_start_s = now_s
        self._window_delay_s = 0.0

    def turn(self, seconds: float, num_active: int) -> None:
        """Takes in how long the serving thread needed from results to launched jobs."""
        self._turns[self._num_turns % _KEPT_TURNS] = (seconds, num_active)
        self._num_turns += 1

    def turns(self, last: int) -> NDArray[np.float64]:
        """The last turns, oldest first.

        Args:
            last: How many are wanted; fewer are kept.

        Returns:
            [turns, 2]: seconds, requests that were active.
        """
        end = self._num_turns
        picked = np.arange(max(end - min(last, _KEPT_TURNS), 0), end) % _KEPT_TURNS
        return self._turns[picked]

    @property
    def num_turns(self) -> int:
        """Turns since the start."""
        return self._num_turns
