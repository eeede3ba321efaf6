"""What load is offered to, behind one small protocol: an engine in this process."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from voxserve.core.events import Record
from voxserve.core.jobs import RequestEnded
from voxserve.core.request import RequestState
from voxserve.core.workload import Utterance
from voxserve.engine.mailbox import DeliveredChunk

if TYPE_CHECKING:
    from voxserve.engine.engine import Engine


class Sink(Protocol):
    """One request's ear: `heard` and `ended` are called on the server's thread, in order."""

    def heard(self, pcm: NDArray[np.int16]) -> None:
        """Takes the next samples; it reads the client's clock itself."""
        ...

    def ended(self, state: str) -> None:
        """The request's final state; nothing is heard after it."""
        ...


class Target(Protocol):
    """A server that load can be offered to.

    Attributes:
        via: "in process" or "http": how the load reaches it.
        sample_rate_hz: Of what is heard.
    """

    via: str
    sample_rate_hz: int

    def describe(self) -> dict[str, Any]:
        """Model, device and settings, JSON-ready: runs of equal descriptions are pooled."""
        ...

    def now_s(self) -> float:
        """The client's clock, uncorrected."""
        ...

    def prepare(self, utterance: Utterance, seed: int) -> Any:
        """Makes a request ready to be sent, before the run that sends it."""
        ...

    def submit(self, request: Any, sink: Sink, arrival_s: float) -> int:
        """Sends a request and returns its id."""
        ...

    def cancel(self, request_id: int) -> None:
        """Gives a request up."""
        ...

    def settle(self, timeout_s: float) -> bool:
        """Waits until the server holds nothing of earlier requests; False on time-out."""
        ...

    def new_records(self) -> list[Record]:
        """What the server's trace gained since the last call; nothing where it is out of sight."""
        ...

    def new_turns(self) -> NDArray[np.float64]:
        """[turns, 2]: seconds the serving thread acted and requests active, since the last call."""
        ...

    def close(self) -> None:
        """Lets go of the server."""
        ...


class EngineTarget:
    """An engine in this process; chunks are stamped when the serving thread hands them over.

    Args:
        engine: A running engine; `close` stops it.
        weights: What it was started with, for the description.
        keeps_requests: Keep prepared requests for further runs with the same seed, where none
            holds anything of a run (so on a simulated device they may not be kept).
    """

    via = "in process"

    def __init__(
        self, engine: Engine, weights: str | None = None, *, keeps_requests: bool = False
    ) -> None:
        self._engine = engine
        self._kept: dict[tuple[Utterance, int], Any] | None = {} if keeps_requests else None
        self._weights = weights or "bundled"
        self.sample_rate_hz = engine.sample_rate_hz
        self._position = engine.trace.total
        self._num_turns = engine.num_turns

    def describe(self) -> dict[str, Any]:
        """Model, device, weights and settings."""
        engine = self._engine
        settings = asdict(engine.settings) | {"sm_split": str(engine.settings.sm_split)}
        settings["chunk_ramp"] = list(engine.settings.chunk_ramp)
        return {
            "model": engine.model_name,
            "device": engine.device_name,
            "weights": self._weights,
            "via": self.via,
            "settings": settings,
        }

    def now_s(self) -> float:
        """Engine clock, which is the system's monotonic one."""
        return self._engine.now_s()

    def prepare(self, utterance: Utterance, seed: int) -> Any:
        """Tokenizes the text."""
        if self._kept is None:
            return self._engine.prepare(utterance, seed)
        request = self._kept.get((utterance, seed))
        if request is None:
            request = self._kept[utterance, seed] = self._engine.prepare(utterance, seed)
        return request

    def submit(self, request: Any, sink: Sink, arrival_s: float) -> int:
        """Submits; the chunks go to `sink` without a thread in between."""
        return self._engine.submit(request, _EngineSink(sink), arrival_s)

    def cancel(self, request_id: int) -> None:
        """Cancels."""
        self._engine.cancel(request_id)

    def settle(self, timeout_s: float) -> bool:
        """Waits for the last slot."""
        return self._engine.wait(timeout_s)

    def new_records(self) -> list[Record]:
        """From the engine's trace."""
        records, self._position = self._engine.trace.since(self._position)
        return records

    def new_turns(self) -> NDArray[np.float64]:
        """From the engine's serving thread."""
        before, self._num_turns = self._num_turns, self._engine.num_turns
        return self._engine.turns(self._num_turns - before)

    def close(self) -> None:
        """Stops the engine."""
        self._engine.stop()


class _EngineSink:
    """Passes an engine's deliveries on."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def put(self, item: DeliveredChunk | RequestEnded | Exception) -> None:
        if isinstance(item, DeliveredChunk):
            self._sink.heard(item.pcm)
        elif isinstance(item, RequestEnded):
            self._sink.ended(item.state.value)
        else:
            self._sink.ended(RequestState.FAILED.value)
