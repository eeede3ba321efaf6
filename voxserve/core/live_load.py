"""An open-loop load that is steered while it runs; no clock is read here."""

from __future__ import annotations

import math

from voxserve.core.errors import InvalidInput
from voxserve.core.workload import Offered, Workload


class LiveLoad:
    """An open-loop load whose rate is set while it runs; times are engine seconds.

    `due` hands out what has arrived; a caller that comes late gets everything it missed.
    """

    def __init__(self, workload: Workload, rate_rps: float, start_s: float, seed: int = 0) -> None:
        self.workload = workload
        self._seed = seed
        self._utterances = workload.utterances(seed)
        self._start(rate_rps, start_s)

    def _start(self, rate_rps: float, start_s: float) -> None:
        self.rate_rps = rate_rps
        self._start_s = start_s
        self._arrivals = self.workload.arrivals(rate_rps, self._seed)
        self._advance()

    def _advance(self) -> None:
        at_s = next(self._arrivals, math.inf)
        self.next_s = self._start_s + at_s

    def set_rate(self, rate_rps: float, now_s: float) -> None:
        """Goes on at another rate from now; 0 stops a Poisson load."""
        if rate_rps < 0:
            raise InvalidInput(f"a load of {rate_rps} requests per second is negative")
        self._seed += 1
        self._start(rate_rps, now_s)

    def set_workload(self, workload: Workload, rate_rps: float, now_s: float) -> None:
        """Goes on with another workload from now."""
        self.workload = workload
        self._utterances = workload.utterances(self._seed + 1)
        self.set_rate(rate_rps, now_s)

    def due(self, now_s: float) -> list[Offered]:
        """Requests that arrived at or before `now_s`; their `at_s` is engine time."""
        arrived: list[Offered] = []
        while self.next_s <= now_s:
            utterance = next(self._utterances, None)
            if utterance is None:
                self.next_s = math.inf
                break
            arrived.append(Offered(self.next_s, utterance))
            self._advance()
        return arrived
