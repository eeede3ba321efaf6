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
from voxserve.runtime.pinned import PinnedBuffer


class Executable:
    """A captured program, with what a launch needs of it looked up once.

    Args:
        program: What was captured.
        replay: Runs it again, from `Driver.capture`.

    Attributes:
        inputs_at, outputs_at: Addresses of its buffers on the device.
        input_bytes, output_item_bytes: Of all inputs; of one element of the outputs.
    """

    __slots__ = (
        *("input_bytes", "inputs_at", "num_inputs", "output_item_bytes", "outputs_at"),
        *("program", "replay"),
    )

    def __init__(self, program: Any, replay: Callable[[], None]) -> None:
        self.program, self.replay = program, replay
        self.num_inputs: int = program.inputs.numel()
        self.inputs_at: int = program.inputs.data_ptr()
        self.input_bytes: int = self.num_inputs * program.inputs.element_size()
        self.outputs_at: int = program.outputs.data_ptr()
        self.output_item_bytes: int = program.outputs.element_size()


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One replay with its copies, in the lane's order.

    Attributes:
        source: Its inputs, copied to the device first.
        executable: What is replayed.
        landing: Where its outputs are copied to afterwards.
        used: Elements of the outputs that are wanted.
    """

    source: PinnedBuffer
    executable: Executable
    landing: PinnedBuffer
    used: int

    def copy_in(self) -> None:
        """Copies the inputs, by torch."""
        executable = self.executable
        source = self.source.tensor[: executable.num_inputs]
        executable.program.inputs.copy_(source, non_blocking=True)

    def copy_out(self) -> None:
        """Copies the outputs, by torch."""
        landing = self.landing.tensor[: self.used]
        landing.copy_(self.executable.program.outputs[: self.used], non_blocking=True)


class Driver(Protocol):
    """A device with three lanes; called by one thread at a time, except `capture`.

    Attributes:
        device: Where tensors live.
        is_pinned: Whether host buffers must be page-locked for copies to be asynchronous.
        launch_path: How work is queued, for the start report.
    """

    device: torch.device
    is_pinned: bool
    launch_path: str

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
