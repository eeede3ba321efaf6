"""A CPU lane: one worker thread that runs what it is given in order.

Owns the thread and its intra-op thread count; what runs is handed in.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import torch


class CpuLane:
    """An in-order queue served by one thread.

    Args:
        name: Shown in thread lists.
        crashed: Called on the lane's thread when work raised; the lane then ends.
    """

    def __init__(self, name: str, crashed: Callable[[BaseException], None]) -> None:
        self._crashed = crashed
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def put(self, work: Callable[[], None]) -> None:
        """Queues work behind what is there; it must not raise for a failure of its own task."""
        self._work.put(work)

    def close(self, timeout_s: float) -> bool:
        """Ends the thread after the work it is on; False when it did not end in time."""
        self._work.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _serve(self) -> None:
        try:
            with torch.inference_mode():
                while (work := self._work.get()) is not None:
                    work()
                    del work  # an idle lane must not keep a request's tensors alive
        except BaseException as error:
            self._crashed(error)


def use_threads(count: int) -> None:
    """Makes torch operators called from this thread use `count` threads.

    torch keeps the count per thread, but threads born later inherit whichever was set last in the
    process: a short-lived thread puts that default back, so that user code stays as fast as it was.
    """
    if torch.get_num_threads() == count:
        return
    default: list[int] = []
    _in_new_thread(lambda: default.append(torch.get_num_threads()))
    torch.set_num_threads(count)
    _in_new_thread(lambda: torch.set_num_threads(default[0]))


def _in_new_thread(call: Callable[[], object]) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
