"""Turns a model's name and a device's name into an executor that is ready to run jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voxserve.core.clock import Clock
from voxserve.core.errors import DeviceUnavailable
from voxserve.core.protocols import Executor
from voxserve.core.workload import Utterance
from voxserve.models import registry

if TYPE_CHECKING:
    from voxserve.models.base import SpeechModel

DEVICES = "auto, cpu"


@dataclass(frozen=True, slots=True, eq=False)
class Built:
    """A ready executor, and what prepares its requests.

    Attributes:
        executor: Runs the jobs.
        model: Its `preprocess` turns texts into requests.
        prepare_load: `(utterance, seed) -> request` with the utterance's prompt tokens and exact
            number of frames, on devices that simulate their background load; None where load
            requests are spoken like any other.
    """

    executor: Executor
    model: SpeechModel
    prepare_load: Callable[[Utterance, int], Any] | None = None


def resolve_device(device: str) -> str:
    """The device "auto" stands for; other names pass through.

    Raises:
        DeviceUnavailable: No such kind of device.
    """
    name = str(device).strip().lower()
    if name == "auto":
        return "cpu"
    if name == "cpu":
        return name
    raise DeviceUnavailable(f"no device {device!r}; there are {DEVICES}")


def build_executor(
    model: str, device: str, *, weights: str | None, clock: Clock, name: str
) -> Built:
    """Loads a model onto a device and times its stages.

    Args:
        model: A registered model's name.
        device: As `resolve_device` gave it.
        weights: A checkpoint folder or repo id, "random", or None for the bundled ones.
        clock: The engine's.
        name: The engine's, for thread names.

    Raises:
        UnknownModel, CheckpointError, DeviceUnavailable: Says what is missing.
    """
    registry.find(model)  # a typing mistake is told before torch is imported
    from voxserve.runtime.cpu import CpuExecutor

    loaded = registry.load(model, device, weights)
    return Built(CpuExecutor(loaded, clock, name), loaded)
