"""The one thread that shows an engine's progress: at most ten times a second, never in its way."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

PERIOD_S = 0.1
BUSY_S = 0.1  # ticks later than this: the kernel is too busy to show things in time

_log = logging.getLogger("voxserve")


class Publisher:
    """Calls `tick` ten times a second on a daemon thread until closed.

    Args:
        tick: Publishes a snapshot; an error in it is reported and the next tick still comes.
        report: Told what went wrong.
    """

    def __init__(self, tick: Callable[[], None], report: Callable[[str], None], name: str) -> None:
        self._tick = tick
        self._report = report
        self._stop = threading.Event()
        self._late_s: deque[float] = deque(maxlen=20)
        self.cost_s = 0.0
        self.num_ticks = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Starts publishing."""
        self._thread.start()

    def close(self, timeout_s: float = 2.0) -> None:
        """Ends the thread; harmless when called twice or from the thread itself."""
        self._stop.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    @property
    def lateness_s(self) -> float:
        """95th percentile of how late the last two seconds' ticks came."""
        late = sorted(self._late_s)
        return late[int(0.95 * (len(late) - 1))] if late else 0.0

    @property
    def share_of_core(self) -> float:
        """CPU time of this thread over the time it ran."""
        return self.cost_s / max(PERIOD_S * self.num_ticks, 1e-9)

    def _run(self) -> None:
        due_s = time.monotonic()
        while not self._stop.is_set():
            self._late_s.append(time.monotonic() - due_s)
            start_s = time.thread_time()
            try:
                self._tick()
            except Exception as error:  # a border: the display must survive what it shows
                _log.exception("the workbench could not publish")
                self._report(f"display: {error}")
            self.cost_s += time.thread_time() - start_s
            self.num_ticks += 1
            # After a long block, go on from now instead of catching up with a burst.
            due_s = max(due_s + PERIOD_S, time.monotonic())
            self._stop.wait(due_s - time.monotonic())
