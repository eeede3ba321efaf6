"""What happened within the last second or two: shares of chunks, and how soon first audio came.

Overload control reads it; the lanes and deliveries write it.
"""

from __future__ import annotations

from collections import deque

MIN_ITEMS = 10  # fewer say nothing about a share
WAIT_WINDOW_S, MAX_WAITS = 1.0, 64
USUAL = 0.9  # of the requests wait no longer
# TTFA grows faster than the pace, for queues and prefills grow too. Source: H200, libritts, from
# 208 to 229 requests/s: median TTFA + 17 %, decode step + 9 %. 1.5 refuses evenly in simulation.
GROWTH = 1.5


class Share:
    """The share of marked items among those of the last `window_s` seconds."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._batches: deque[tuple[float, int, int]] = deque()  # time, items, marked ones
        self._num_items = 0
        self._num_marked = 0
        self._counts_since_s = float("inf")  # from then on a whole window has been seen

    def add(self, now_s: float, num_items: int, num_marked: int) -> None:
        """Counts items that belong together; time ascends."""
        self._forget(now_s)
        self._batches.append((now_s, num_items, num_marked))
        self._num_items += num_items
        self._num_marked += num_marked

    def at(self, now_s: float) -> float:
        """0 while less than a window or too few items have been seen."""
        self._forget(now_s)
        if now_s < self._counts_since_s or self._num_items < MIN_ITEMS:
            return 0.0
        return self._num_marked / self._num_items

    def __len__(self) -> int:
        return len(self._batches)

    def _forget(self, now_s: float) -> None:
        while self._batches and self._batches[0][0] <= now_s - self._window_s:
            _, num_items, num_marked = self._batches.popleft()
            self._num_items -= num_items
            self._num_marked -= num_marked
            self._counts_since_s = min(self._counts_since_s, now_s)


class FirstAudio:
    """How long requests waited for their first audio, in terms of the pace at that time.

    The pace (seconds per frame of a running request) is known at every moment, so a wait of a
    second ago can be told for now. Taken as it was it would still count requests that have ended
    since, and too many would be refused.
    """

    def __init__(self) -> None:
        self._waits: deque[tuple[float, float]] = deque(maxlen=MAX_WAITS)

    def add(self, now_s: float, ttfa_s: float, pace_s: float) -> None:
        """A request has got its first audio; time ascends."""
        if pace_s > 0.0:  # 0: of a trace without steps, no pace is known
            self._waits.append((now_s, ttfa_s / pace_s**GROWTH))

    def usual_ttfa_s(self, now_s: float, pace_s: float) -> float:
        """What all but a tenth of the last requests would wait at this pace; 0 without any."""
        recent = sorted(wait for at_s, wait in self._waits if at_s > now_s - WAIT_WINDOW_S)
        return recent[int(USUAL * len(recent))] * pace_s**GROWTH if recent else 0.0
