"""Tunes the interpreter while engines serve, and puts everything back when the last one stops.

In a notebook the serving thread competes with user code for the interpreter lock and is stopped by
full garbage collections of a large heap, which take up to a second.
"""

from __future__ import annotations

import gc
import sys
import threading

# A pure-Python user thread holds the lock for this long at a time; the default of 5 ms made
# sliders twice as slow with four busy threads.
SWITCH_INTERVAL_S = 0.0005
# While requests run, only the two young generations are collected, and at most this often.
COLLECT_EVERY_S = 2.0


class HostTuning:
    """Counts serving and busy engines of this process; all methods are thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._serving = 0
        self._busy = 0
        self._switch_before_s = 0.0
        self._froze = False
        self._collector_was_on = False
        self._last_collect_s = 0.0

    def enter_serving(self) -> None:
        """An engine starts: a short switch interval, and what is loaded is out of the collector."""
        with self._lock:
            self._serving += 1
            if self._serving > 1:
                return
            self._switch_before_s = sys.getswitchinterval()
            sys.setswitchinterval(min(SWITCH_INTERVAL_S, self._switch_before_s))
            self._froze = gc.get_freeze_count() == 0
            if self._froze:
                gc.freeze()

    def leave_serving(self) -> None:
        """An engine stopped; after the last one nothing is left changed."""
        with self._lock:
            self._serving -= 1
            if self._serving > 0:  # the one that stopped may have had an interval of its own
                sys.setswitchinterval(min(SWITCH_INTERVAL_S, self._switch_before_s))
                return
            sys.setswitchinterval(self._switch_before_s)
            if self._froze:
                gc.unfreeze()

    def enter_busy(self, now_s: float) -> None:
        """An engine has requests: no automatic collection from here on."""
        with self._lock:
            self._busy += 1
            if self._busy == 1:
                self._collector_was_on = gc.isenabled()
                self._last_collect_s = now_s
                gc.disable()

    def leave_busy(self) -> None:
        """An engine has no requests left."""
        with self._lock:
            self._busy -= 1
            if self._busy == 0 and self._collector_was_on:
                gc.enable()

    def collect_young(self, now_s: float) -> None:
        """Collects what user code left behind, now and then, in a few milliseconds."""
        with self._lock:
            due = self._collector_was_on and now_s - self._last_collect_s >= COLLECT_EVERY_S
            if due:
                self._last_collect_s = now_s
        if due:
            gc.collect(1)

    def forget(self) -> None:
        """In a forked child, where no engine serves: puts everything back."""
        self._lock = threading.Lock()  # whoever held it is the parent's
        if self._busy:
            self._busy = 1
            self.leave_busy()
        if self._serving:
            self._serving = 1
            self.leave_serving()


tuning = HostTuning()
