"""One NVIDIA GPU behind the driver protocol: lanes are streams, executables are CUDA graphs.

`VOXSERVE_NO_GRAPH=1` runs every program as it is, launch by launch, for debugging.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from voxserve.core.clock import Clock
from voxserve.core.jobs import LaneName, Partition
from voxserve.core.settings import Split
from voxserve.kernels.kept import Kept, keeping
from voxserve.runtime.cuda_launch import GraphReplay, TimedEvent, make_launcher
from voxserve.runtime.driver import Step
from voxserve.runtime.partition import Partitions

# Lower is more urgent: what plays next goes before prefills, which fill the GPU. Without a split
# a decode step of 256 rows beside a background batch takes 63 ms on an H200 where both have the
# same priority, and 17 ms this way: its small kernels otherwise wait for thousands of blocks.
_PRIORITIES = {LaneName.LM: -1, LaneName.BACKGROUND: 0, LaneName.URGENT: -2}
_WARM_RUNS = 2  # compiles kernels and makes what is cached on the device
# GPU times are 32-bit milliseconds from an anchor: finer than 2 microseconds for so long.
_ANCHOR_S = 10.0
_ANCHOR_TRIES = 5


@dataclass(frozen=True, slots=True, eq=False)
class Ticket:
    """Events around a launch, and the anchor that was there before them."""

    start: TimedEvent
    end: TimedEvent
    anchor: tuple[TimedEvent, float]


class CudaDriver:
    """Streams, graphs and events of one GPU (see `runtime.driver.Driver`).

    Args:
        device: The GPU.
        clock: Engine time, which the GPU's times are translated to.
    """

    is_pinned = True

    def __init__(self, device: torch.device, clock: Clock) -> None:
        index = torch.cuda.current_device() if device.index is None else device.index
        self.device = torch.device("cuda", index)
        self._clock = clock
        self._uses_graphs = os.environ.get("VOXSERVE_NO_GRAPH", "0") != "1"
        self._partitions: Partitions | None = None
        self._streams = {
            lane: torch.cuda.Stream(self.device, priority=priority)
            for lane, priority in _PRIORITIES.items()
        }
        self._clock_stream = torch.cuda.Stream(self.device)
        # Lanes replay at the same time: each has scratch memory of its own.
        self._pools = {lane: torch.cuda.graph_pool_handle() for lane in LaneName}
        self._kept: Kept = {}
        self._events: list[TimedEvent] = []
        self._launcher = make_launcher(self._clock_stream)
        self.launch_path = self._launcher.name
        self._anchor = self._new_anchor()

    def capture(
        self, run: Callable[[], None], lane: LaneName, split: Split, partition: Partition
    ) -> Callable[[], None]:
        """Warms a program up on the partition and captures it there."""
        stream = self._capture_stream(lane, split, partition)
        with torch.cuda.device(self.device), torch.cuda.stream(stream), keeping(self._kept):
            for _ in range(_WARM_RUNS):
                run()
            stream.synchronize()
            if not self._uses_graphs:
                return partial(_run_keeping, run, self._kept)
            graph = torch.cuda.CUDAGraph()
            # Other threads go on launching meanwhile.
            graph.capture_begin(pool=self._pools[lane], capture_error_mode="thread_local")
            try:
                run()
            finally:
                graph.capture_end()
        return GraphReplay(graph)

    def on(self, lane: LaneName) -> AbstractContextManager[Any]:
        """Makes the lane's stream current."""
        return torch.cuda.stream(self._streams[lane])

    def launch(self, lane: LaneName, steps: Sequence[Step]) -> Ticket:
        """Queues copies and replays between two events."""
        ticket = Ticket(self._event(), self._event(), self._anchor)
        self._launcher.launch(self._streams[lane], ticket.start, steps, ticket.end)
        return ticket

    def is_done(self, ticket: Ticket) -> bool:
        """Asks the end's event."""
        return self._launcher.is_done(ticket.end)

    def span_s(self, ticket: Ticket) -> tuple[float, float]:
        """GPU times of both events, from the anchor on."""
        anchor, anchor_s = ticket.anchor
        start_s = anchor_s + self._launcher.elapsed_s(anchor, ticket.start)
        end_s = start_s + self._launcher.elapsed_s(ticket.start, ticket.end)
        self._events += (ticket.start, ticket.end)
        if end_s - self._anchor[1] > _ANCHOR_S:
            self._anchor = self._new_anchor()
        return start_s, end_s

    def trim(self) -> None:
        """Returns what the warm-up runs used to the GPU."""
        torch.cuda.empty_cache()

    def free_bytes(self) -> int:
        """Free memory of the GPU, what torch keeps for later included."""
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(self.device)[0]

    def check(self) -> None:
        """Asks every lane; an error of the device is raised by whoever asks next."""
        for stream in self._streams.values():
            self._launcher.check(stream)

    def wait_all(self) -> None:
        """Waits for every lane."""
        torch.cuda.synchronize(self.device)

    def close(self) -> None:
        """Gives back partitions and cached memory; executables must be gone."""
        self._events.clear()
        self._kept.clear()
        self._pools.clear()
        torch.cuda.empty_cache()
        if self._partitions is not None:
            self._partitions.close()
            self._partitions = None
        # Matrix products keep a workspace per stream that ever ran one.
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()

    def _capture_stream(
        self, lane: LaneName, split: Split, partition: Partition
    ) -> torch.cuda.Stream:
        if partition is Partition.WHOLE:
            return self._streams[lane]
        if self._partitions is None:
            self._partitions = Partitions(self.device)
        lm_stream, codec_stream = self._partitions.streams(split)
        return lm_stream if partition is Partition.LM else codec_stream

    def _event(self) -> TimedEvent:
        return self._events.pop() if self._events else TimedEvent(self._clock_stream)

    def _new_anchor(self) -> tuple[TimedEvent, float]:
        """An event and its engine time: the try that was interrupted least."""
        tries = [self._timed_event() for _ in range(_ANCHOR_TRIES)]
        best = min(tries, key=lambda one: one[0])
        self._events += (event for _, event, _ in tries if event is not best[1])
        return best[1], best[2]

    def _timed_event(self) -> tuple[float, TimedEvent, float]:
        """How long an event took to be reached, the event, and the middle of that time."""
        event = self._event()
        before_s = self._clock.now_s()
        self._launcher.record(event, self._clock_stream)
        # On a stream of its own an event is reached in microseconds.
        while not self._launcher.is_done(event):
            pass
        after_s = self._clock.now_s()
        return after_s - before_s, event, (before_s + after_s) / 2


def _run_keeping(run: Callable[[], None], owner: Kept) -> None:
    with keeping(owner):
        run()
