"""Background load: an open-loop stream of requests that a modelled listener plays."""

from __future__ import annotations

import itertools
import logging
import threading
from numbers import Real

from voxserve.core import workload as workloads
from voxserve.core.errors import EngineError, InvalidInput
from voxserve.core.jobs import Cancel, RequestEnded
from voxserve.core.live_load import LiveLoad
from voxserve.core.workload import MAX_RATE_RPS, Offered, Workload
from voxserve.engine.intake import Intake
from voxserve.engine.mailbox import DeliveredChunk

# A thread that waits for a far arrival still notices that its engine was deleted.
_LOOK_UP_S = 0.25
_log = logging.getLogger("voxserve")


class BackgroundLoad:
    """Submits a workload's requests at their times, late ones at once, never fewer.

    Args:
        intake: Of the running engine.
        workload: A name or an object.
        rate_rps: Requests per second.
        name: The engine's, for the thread's name.

    Raises:
        InvalidInput: Unknown workload or a rate that is not positive.
    """

    def __init__(
        self, intake: Intake, workload: Workload | str, rate_rps: float, name: str
    ) -> None:
        _check(rate_rps)
        self._asked = workload
        self._intake = intake
        self._lock = threading.Lock()
        self._live = LiveLoad(workloads.find(workload), rate_rps, intake.clock.now_s())
        self._arrived: list[Offered] = []  # before a change, not yet submitted
        self._changed = threading.Event()
        self._is_stopping = False
        self._outstanding: set[int] = set()
        self._seeds = itertools.count()
        self._thread = threading.Thread(
            target=self._serve, name=f"voxserve-{name}-load", daemon=True
        )
        self._thread.start()

    @property
    def workload(self) -> str:
        """Name of what is offered now."""
        return self._live.workload.name

    @property
    def rate_rps(self) -> float:
        """Requests per second offered now."""
        return self._live.rate_rps

    def change(self, workload: Workload | str, rate_rps: float) -> None:
        """Goes on with another workload or rate from now; what has arrived is still served.

        Raises:
            InvalidInput: As when made; nothing changes.
        """
        _check(rate_rps)
        found = workloads.find(workload)
        with self._lock:
            now_s = self._intake.clock.now_s()
            self._arrived += self._live.due(now_s)
            if workload != self._asked:
                self._asked = workload
                self._live.set_workload(found, rate_rps, now_s)
            elif rate_rps != self._live.rate_rps:
                self._live.set_rate(rate_rps, now_s)
        self._changed.set()

    def stop(self) -> None:
        """Ends the load and cancels its requests that have not ended."""
        self._is_stopping = True
        self._changed.set()
        self._thread.join()
        for request_id in list(self._outstanding):
            self._intake.service.tell(Cancel(request_id))

    def _serve(self) -> None:
        try:
            while not self._is_stopping and self._intake.service.is_open:
                with self._lock:
                    now_s = self._intake.clock.now_s()
                    due, next_s = self._arrived + self._live.due(now_s), self._live.next_s
                    self._arrived = []
                for offered in due:
                    if self._is_stopping:
                        break
                    self._submit(offered)
                self._changed.wait(min(next_s - now_s, _LOOK_UP_S))
                self._changed.clear()
        except EngineError as error:
            _log.info("the background load ended with its engine: %s", error)

    def _submit(self, offered: Offered) -> None:
        seed = next(self._seeds)
        try:
            request = self._intake.prepare_utterance(offered.utterance, seed)
        except InvalidInput as error:
            _log.warning("the background load left out a text: %s", error)
            return
        request_id = self._intake.new_id()
        self._outstanding.add(request_id)
        self._intake.submit(
            request, _Unheard(self._outstanding, request_id), offered.at_s, request_id=request_id
        )


class _Unheard:
    """Takes a load request's chunks, which the scheduler's player model has heard already."""

    def __init__(self, outstanding: set[int], request_id: int) -> None:
        self._outstanding = outstanding
        self._request_id = request_id

    def put(self, item: DeliveredChunk | RequestEnded | Exception) -> None:
        if not isinstance(item, DeliveredChunk):
            self._outstanding.discard(self._request_id)


def _check(rate_rps: float) -> None:
    if isinstance(rate_rps, bool) or not isinstance(rate_rps, Real):
        raise InvalidInput(f"a load of {rate_rps!r} requests per second is not a number")
    if not 0 < rate_rps <= MAX_RATE_RPS:  # also refuses NaN
        raise InvalidInput(
            f"a load of {rate_rps} requests per second is outside 0 to {MAX_RATE_RPS:g}"
        )
