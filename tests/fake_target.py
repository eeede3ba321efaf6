"""A server in virtual time for tests of the load client: each request's chunks at exact times."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from voxserve.bench.target import Sink
from voxserve.core.events import Record
from voxserve.core.workload import Utterance

RATE_HZ = 1000


@dataclass(frozen=True)
class Script:
    """What a request gets: (seconds after arrival, samples) and its final state."""

    chunks: Sequence[tuple[float, Sequence[int]]] = ((0.1, (1000,) * 100),)
    end_s: float | None = 0.2
    state: str = "done"


class FakeTarget:
    """Plays `script(arrivals so far in the run, arrival time)` for each request; time moves in
    `sleep` alone."""

    via = "in process"
    sample_rate_hz = RATE_HZ

    def __init__(self, script: Callable[[float], Script]) -> None:
        self._script = script
        self._now_s = 100.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.cancelled: list[int] = []
        self.sent: list[tuple[Any, float]] = []
        self.records: list[Record] = []

    def describe(self) -> dict[str, Any]:
        """Fixed."""
        return {"model": "fake", "device": "fake", "via": self.via, "settings": {}}

    def now_s(self) -> float:
        """Virtual."""
        return self._now_s

    def sleep(self, seconds: float) -> None:
        """Moves on, and lets happen what is due."""
        until_s = self._now_s + seconds
        while self._due and self._due[0][0] <= until_s:
            at_s, _, happen = heapq.heappop(self._due)
            self._now_s = max(self._now_s, at_s)
            happen()
        self._now_s = until_s

    def prepare(self, utterance: Utterance, seed: int) -> Any:
        """What was asked for."""
        return utterance, seed

    def submit(self, request: Any, sink: Sink, arrival_s: float) -> int:
        """Plans the script's chunks."""
        self.sent.append((request, arrival_s))
        script = self._script(arrival_s)
        for after_s, samples in script.chunks:
            pcm = np.array(samples, np.int16)
            self._at(arrival_s + after_s, lambda pcm=pcm: sink.heard(pcm))
        if script.end_s is not None:
            self._at(arrival_s + script.end_s, lambda: sink.ended(script.state))
        return len(self.sent)

    def cancel(self, request_id: int) -> None:
        """Notes it."""
        self.cancelled.append(request_id)

    def settle(self, timeout_s: float) -> bool:
        """At once."""
        return True

    def new_records(self) -> list[Record]:
        """What a test put there."""
        records, self.records = self.records, []
        return records

    def new_turns(self) -> np.ndarray:
        """None."""
        return np.zeros((0, 2))

    def close(self) -> None:
        """Nothing to let go of."""

    def _at(self, time_s: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._due, (time_s, next(self._order), happen))
