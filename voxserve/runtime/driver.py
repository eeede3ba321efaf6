"""What the executor of a GPU needs of it: capture, launch in a lane's order, see ends, tell times.

`CudaDriver` does it with streams, graphs and events; tests run the same executor over a driver
that computes at once on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from voxserve.core.jobs import LaneName, Partition
from voxserve.core.settings import Split


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One replay with its copies, in the lane's order.

    Attributes:
        source, inputs: Pinned host tensor copied to a device tensor first.
        replay: The executable.
        outputs, landing: Device tensor copied to a pinned host tensor afterwards.
    """

    source: torch.Tensor
    inputs: torch.Tensor
    replay: Callable[[], None]
    outputs: torch.Tensor
    landing: torch.Tensor


class Driver(Protocol):
    """A device with three lanes; called by one thread at a time, except `capture`.

    Attributes:
        device: Where tensors live.
        is_pinned: Whether host buffers must be page-locked for copies to be asynchronous.
    """

    device: torch.device
    is_pinned: bool

    def capture(
        self, run: Callable[[], None], lane: LaneName, split: Split, partition: Partition
    ) -> Callable[[], None]:
        """Turns a program into an executable of a lane on a partition of a split.

        The program is run before it is captured, on the scratch slot its buffers name.
        """
        ...

    def on(self, lane: LaneName) -> AbstractContextManager[Any]:
        """Work issued inside goes into the lane, behind what is there."""
        ...

    def launch(self, lane: LaneName, steps: Sequence[Step]) -> Any:
        """Queues steps on a lane and returns a ticket; never waits for the device."""
        ...

    def is_done(self, ticket: Any) -> bool:
        """Whether the ticket's steps have ended; a device error is raised here."""
        ...

    def span_s(self, ticket: Any) -> tuple[float, float]:
        """When a done ticket's steps began and ended on the device, engine clock; once a ticket."""
        ...

    def trim(self) -> None:
        """Gives up memory that was needed for captures only; may wait for the device."""
        ...

    def free_bytes(self) -> int:
        """Memory nobody uses."""
        ...

    def check(self) -> None:
        """Raises the device's error, if it is in error; never waits."""
        ...

    def wait_all(self) -> None:
        """Waits until everything launched has ended."""
        ...

    def close(self) -> None:
        """Lets go of lanes, executables and partitions; frees what they held."""
        ...
