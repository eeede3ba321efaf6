"""Short waits of the serving thread, beside threads that compute in pure Python.

The interpreter lock has no priorities: who wants it asks its holder to let go after a switch
interval. A short interval while the serving thread waits brings the lock back soon; a long one
while it acts keeps others from asking in the middle of a turn, which takes less.
"""

from __future__ import annotations

import sys
import time

WAITING_S = 0.0001
ACTING_S = 0.002


def nap(seconds: float) -> None:
    """Sleeps, and acts again as soon as the interpreter can be had."""
    sys.setswitchinterval(WAITING_S)
    time.sleep(seconds)
    # The thread that had the lock reads the interval it will wait for later than this is written:
    # it has to be woken first.
    sys.setswitchinterval(ACTING_S)
