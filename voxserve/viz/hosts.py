"""Which stalls the host caused: the serving thread came late, because the kernel was busy.

The rule is an estimate from the trace's host delays; the pages' `tracks.js` has it, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from voxserve.core.events import ChunkLife, HostDelay

WORTH_S = 0.02  # shorter delays are the everyday price of a notebook kernel
DELAYS_S = 10.0  # a stall seldom lasts so long
NOTED_S = 0.1  # a short delay is noted up to so long after it ended


def busy_s(chunk: ChunkLife, delays: Iterable[HostDelay]) -> float:
    """How long the serving thread was late while the audio before a chunk was played.

    Args:
        chunk: A delivered one with a deadline.
        delays: Of the same trace, in any order.
    """
    assert chunk.deadline_s is not None, "only a chunk with a deadline can be late"
    assert chunk.delivered_s is not None, "only a delivered chunk can be late"
    from_s, found_s = chunk.deadline_s - chunk.audio_s, 0.0
    for delay in delays:
        if delay.delay_s < WORTH_S:
            continue
        start_s = max(from_s, delay.time_s - max(delay.delay_s, NOTED_S))
        shared_s = min(chunk.delivered_s, delay.time_s) - start_s
        found_s += max(0.0, min(shared_s, delay.delay_s))
    return found_s


def is_host_stall(chunk: ChunkLife, delays: Iterable[HostDelay]) -> bool:
    """Whether at least half of a stall's length was the serving thread's lateness."""
    return chunk.stall_s > 0.0 and busy_s(chunk, delays) >= chunk.stall_s / 2


class HostStalls:
    """Tells the stalls of a running trace apart, each once: when its delays are known.

    Attributes:
        found: The host's stalls that the last call of `settle` found.
        all_s, host_s: When the stalls of late ended, and the host's among them; oldest first.
    """

    def __init__(self) -> None:
        self.found: list[ChunkLife] = []
        self.all_s, self.host_s = deque[float](), deque[float]()
        self._delays = deque[HostDelay]()
        self._open = deque[ChunkLife]()

    def delay(self, delay: HostDelay) -> None:
        """Takes in a delay."""
        if delay.delay_s >= WORTH_S:
            self._delays.append(delay)

    def stall(self, chunk: ChunkLife) -> None:
        """Takes in a chunk that came late."""
        self._open.append(chunk)
        self.all_s.append(chunk.delivered_s or 0.0)

    def settle(self, now_s: float, window_s: float) -> None:
        """Finds the host's stalls among those since the last call; forgets what is too old."""
        self.found = []
        while self._open and (self._open[0].delivered_s or 0.0) <= now_s - 2 * NOTED_S:
            chunk = self._open.popleft()
            if is_host_stall(chunk, self._delays):
                self.found.append(chunk)
                self.host_s.append(chunk.delivered_s or 0.0)
        for times_s in (self.all_s, self.host_s):
            while times_s and times_s[0] < now_s - window_s:
                times_s.popleft()
        while self._delays and self._delays[0].time_s < now_s - DELAYS_S:
            self._delays.popleft()
