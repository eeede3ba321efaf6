"""Two ways to queue a launch on a CUDA stream: by the driver's own calls, or by torch's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from voxserve.runtime.cuda_calls import CudaCalls, load_library
from voxserve.runtime.driver import Step


class GraphReplay:
    """A captured graph; calling it replays it on torch's current stream.

    Attributes:
        handle: Of the instantiated graph, or 0 where torch doesn't tell it.
    """

    __slots__ = ("_graph", "handle")

    def __init__(self, graph: torch.cuda.CUDAGraph) -> None:
        self._graph = graph
        self.handle = _executable_handle(graph)

    def __call__(self) -> None:
        self._graph.replay()


class TimedEvent:
    """An event that can be timed, made on the device at once, so that its handle is known."""

    __slots__ = ("event", "handle")

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self.event = torch.cuda.Event(enable_timing=True)
        self.event.record(stream)
        self.handle = int(self.event.cuda_event)


class Launcher(Protocol):
    """Queues work and asks for it; never waits for the device.

    Attributes:
        name: For the start report.
    """

    name: str

    def launch(
        self, stream: torch.cuda.Stream, start: TimedEvent, steps: Sequence[Step], end: TimedEvent
    ) -> None:
        """Queues steps between two events."""
        ...

    def record(self, event: TimedEvent, stream: torch.cuda.Stream) -> None:
        """Queues an event."""
        ...

    def is_done(self, event: TimedEvent) -> bool:
        """Whether the event has been reached; a device error is raised here."""
        ...

    def elapsed_s(self, first: TimedEvent, last: TimedEvent) -> float:
        """Seconds between two events that have been reached."""
        ...

    def check(self, stream: torch.cuda.Stream) -> None:
        """Raises the device's error, if it is in error."""
        ...


class TorchLauncher:
    """Through torch, which hands the interpreter over at every call."""

    name = "torch"

    def launch(
        self, stream: torch.cuda.Stream, start: TimedEvent, steps: Sequence[Step], end: TimedEvent
    ) -> None:
        """Queues steps between two events."""
        with torch.cuda.stream(stream):
            start.event.record(stream)
            for step in steps:
                step.copy_in()
                step.executable.replay()
                step.copy_out()
            end.event.record(stream)

    def record(self, event: TimedEvent, stream: torch.cuda.Stream) -> None:
        """Queues an event."""
        event.event.record(stream)

    def is_done(self, event: TimedEvent) -> bool:
        """Asks the event."""
        return event.event.query()

    def elapsed_s(self, first: TimedEvent, last: TimedEvent) -> float:
        """Seconds between two events."""
        return first.event.elapsed_time(last.event) * 1e-3

    def check(self, stream: torch.cuda.Stream) -> None:
        """Asks the stream."""
        stream.query()


class DriverLauncher:
    """Through the driver's library, with the interpreter held: a launch takes microseconds.

    NOTE: torch's replay also advances its default random generator for graphs that draw from it.
    Ours draw from keyed generators of their own, so launching the graph is all there is to do.

    Args:
        calls: To the driver.
        context: The device's: made current by what queues work, on whatever thread it is.
    """

    name = "driver"

    def __init__(self, calls: CudaCalls, context: int) -> None:
        self._calls = calls
        self._context = context

    def launch(
        self, stream: torch.cuda.Stream, start: TimedEvent, steps: Sequence[Step], end: TimedEvent
    ) -> None:
        """Queues steps between two events."""
        calls, to = self._calls, stream.cuda_stream
        calls.make_current(self._context)
        calls.record(start.handle, to)
        for step in steps:
            executable = step.executable
            calls.copy_to_device(
                executable.inputs_at, step.source.address, executable.input_bytes, to
            )
            handle = getattr(executable.replay, "handle", 0)
            if handle:
                calls.launch(handle, to)
            else:  # not captured, for debugging
                with torch.cuda.stream(stream):
                    executable.replay()
            num_bytes = step.used * executable.output_item_bytes
            calls.copy_to_host(step.landing.address, executable.outputs_at, num_bytes, to)
        calls.record(end.handle, to)

    def record(self, event: TimedEvent, stream: torch.cuda.Stream) -> None:
        """Queues an event."""
        self._calls.make_current(self._context)
        self._calls.record(event.handle, stream.cuda_stream)

    def is_done(self, event: TimedEvent) -> bool:
        """Asks the event."""
        return self._calls.is_done(event.handle)

    def elapsed_s(self, first: TimedEvent, last: TimedEvent) -> float:
        """Seconds between two events."""
        return self._calls.elapsed_s(first.handle, last.handle)

    def check(self, stream: torch.cuda.Stream) -> None:
        """Asks the stream."""
        self._calls.make_current(self._context)
        self._calls.check(stream.cuda_stream)


def make_launcher(stream: torch.cuda.Stream) -> Launcher:
    """The driver's calls where they are known to work on this machine, else torch's.

    Args:
        stream: An idle one of the device: a trial event is recorded on it.
    """
    library = load_library()
    if library is None:
        return TorchLauncher()
    with torch.cuda.device(stream.device):
        event = TimedEvent(stream)  # and the device's context is current from here on
        calls = CudaCalls(library)
        context = calls.current_context()
    if not (context and event.handle):
        return TorchLauncher()
    return DriverLauncher(calls, context)


def _executable_handle(graph: torch.cuda.CUDAGraph) -> int:
    tell = getattr(graph, "raw_cuda_graph_exec", None)
    return int(tell()) if tell is not None else 0
