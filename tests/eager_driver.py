"""A device driver for tests: what is launched is computed at once, on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from voxserve.core.clock import Clock
from voxserve.core.jobs import LaneName, Partition
from voxserve.core.settings import Split
from voxserve.runtime.driver import Step


@dataclass(eq=False)
class Ticket:
    """A launch; a held one is done when a test says so."""

    lane: LaneName
    start_s: float
    end_s: float
    is_done: bool


class EagerDriver:
    """Computes at launch.

    Args:
        clock: Stamps launches.

    Attributes:
        holds: While set, launches count as done only after `release`.
        error: Raised by whatever touches the device from now on.
    """

    def __init__(self, clock: Clock) -> None:
        self.device = torch.device("cpu")
        self.is_pinned = False
        self.launch_path = "torch"
        self.holds = False
        self.clock = clock
        self.captured: list[tuple[LaneName, Split, Partition]] = []
        self.tickets: list[Ticket] = []
        self.error: Exception | None = None
        self.is_closed = False
        self.memory_bytes = 64 << 30

    def capture(
        self, run: Callable[[], None], lane: LaneName, split: Split, partition: Partition
    ) -> Callable[[], None]:
        """Runs the program once, as a capture's warm-up does."""
        run()
        self.captured.append((lane, split, partition))
        return run

    def on(self, lane: LaneName) -> AbstractContextManager[Any]:
        """Everything is in order here."""
        return nullcontext()

    def launch(self, lane: LaneName, steps: Sequence[Step]) -> Ticket:
        """Computes."""
        if self.error is not None:
            raise self.error
        start_s = self.clock.now_s()
        for step in steps:
            step.copy_in()
            step.executable.replay()
            step.copy_out()
        ticket = Ticket(lane, start_s, self.clock.now_s(), not self.holds)
        if self.holds:
            self.tickets.append(ticket)
        return ticket

    def is_done(self, ticket: Ticket) -> bool:
        """Whether it was let go."""
        if self.error is not None:
            raise self.error
        return ticket.is_done

    def span_s(self, ticket: Ticket) -> tuple[float, float]:
        """When it was computed."""
        return ticket.start_s, ticket.end_s

    def release(self, lane: LaneName) -> None:
        """The oldest held launch of a lane is done."""
        held = next(item for item in self.tickets if item.lane is lane and not item.is_done)
        held.is_done = True

    def trim(self) -> None:
        """Nothing is kept."""

    def free_bytes(self) -> int:
        """Plenty, unless a test says otherwise."""
        return self.memory_bytes

    def check(self) -> None:
        """Raises the error a test planted."""
        if self.error is not None:
            raise self.error

    def wait_all(self) -> None:
        """Nothing is ever behind."""

    def close(self) -> None:
        """Notes it."""
        self.is_closed = True
