"""Jobs in flight and the pinned buffers they use, from launch to the moment their copies landed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from voxserve.core.jobs import CodecJob, Job
from voxserve.runtime.driver import Executable, Step
from voxserve.runtime.executables import Executables
from voxserve.runtime.pinned import PinnedBuffer, PinnedPool


@dataclass(frozen=True, slots=True, eq=False)
class Landing:
    """Where the outputs of some rows of a job arrive."""

    buffer: PinnedBuffer
    executable: Executable
    rows: range


@dataclass(slots=True, eq=False)
class Flight:
    """A launched job, with what it holds until it is collected."""

    job: Job
    ticket: Any = None
    staged: list[PinnedBuffer] = field(default_factory=list)
    landings: list[Landing] = field(default_factory=list)


class FlightBuffers:
    """Pools for the inputs of every stage, for flags and for PCM.

    Args:
        executables: Sizes the buffers: each holds the largest of its kind.
        is_pinned: Page-locked.
    """

    def __init__(self, executables: Executables, is_pinned: bool) -> None:
        by_stage: dict[str, list[Executable]] = {"prefill": [], "decode": [], "codec": []}
        for key, executable in executables.items():
            by_stage[key.stage].append(executable)
        # Inputs are read by a copy that may start long after the launch: two jobs in the LM lane
        # or one in each codec lane, and one that is being filled.
        self._staging = {
            stage: PinnedPool(_largest(items, "inputs"), torch.int32, is_pinned, count=3)
            for stage, items in by_stage.items()
        }
        steps, codec = by_stage["prefill"] + by_stage["decode"], by_stage["codec"]
        self._flags = PinnedPool(_largest(steps, "outputs"), torch.int8, is_pinned, count=3)
        self._pcm = PinnedPool(_largest(codec, "outputs"), torch.int16, is_pinned, count=2)

    @property
    def pools(self) -> tuple[PinnedPool, ...]:
        """All of them."""
        return (*self._staging.values(), self._flags, self._pcm)

    def stage(self, flight: Flight, executable: Executable) -> NDArray[np.int32]:
        """A buffer for the inputs of the flight's next step, to be filled."""
        buffer = self._staging[flight.job.kind.value].take()
        flight.staged.append(buffer)
        return buffer.array[: executable.num_inputs]

    def step(self, flight: Flight, executable: Executable, rows: range) -> Step:
        """The step whose inputs were staged last; its outputs land in a buffer of the flight."""
        is_codec = isinstance(flight.job, CodecJob)
        landing = (self._pcm if is_codec else self._flags).take()
        flight.landings.append(Landing(landing, executable, rows))
        used = executable.program.used(len(rows)) if is_codec else len(rows)
        return Step(flight.staged[-1], executable, landing, used)

    def give_back(self, flight: Flight) -> None:
        """Takes back what a flight held; no copy of it may be outstanding."""
        for buffer in flight.staged:
            self._staging[flight.job.kind.value].give_back(buffer)
        pool = self._pcm if isinstance(flight.job, CodecJob) else self._flags
        for landing in flight.landings:
            pool.give_back(landing.buffer)


def _largest(executables: Iterable[Executable], name: str) -> int:
    return max(getattr(item.program, name).numel() for item in executables)
