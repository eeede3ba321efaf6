"""Turns a model's name and a device's name into an executor that is ready to run jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from voxserve.core import profile as profiles
from voxserve.core.clock import Clock
from voxserve.core.errors import DeviceUnavailable
from voxserve.core.protocols import Executor
from voxserve.core.workload import Utterance
from voxserve.models import registry

if TYPE_CHECKING:
    from voxserve.models.base import ModelInfo, PreparedRequest, SpeechOptions

DEVICES = "auto, cpu, sim:PROFILE (a simulated GPU, such as sim:h200)"
_SIM = "sim:"


class Preparer(Protocol):
    """What the engine's border needs of a model."""

    @property
    def info(self) -> ModelInfo:
        """Facts about the model."""
        ...

    def preprocess(self, text: str, options: SpeechOptions) -> PreparedRequest:
        """Turns a text into a request; called on user threads."""
        ...


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
    model: Preparer
    prepare_load: Callable[[Utterance, int], Any] | None = None
    speaks_ahead: bool = False


def resolve_device(device: str) -> str:
    """The device "auto" stands for; other names pass through.

    Raises:
        DeviceUnavailable: No such kind of device.
        InvalidInput: No such profile of a simulated device.
    """
    name = str(device).strip().lower()
    if name == "auto":
        return "cpu"
    if name == "cpu":
        return name
    if name.startswith(_SIM):
        asked = str(device).strip()[len(_SIM) :]  # a path keeps its capitals
        return _SIM + (asked if asked.endswith(".json") else profiles.load(asked).name)
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

    if device.startswith(_SIM):
        return _simulated(model, device.removeprefix(_SIM), weights, clock, name)
    loaded = registry.load(model, device, weights)
    return Built(CpuExecutor(loaded, clock, name), loaded)


def _simulated(
    model: str, profile_name: str, weights: str | None, clock: Clock, name: str
) -> Built:
    """A simulated GPU; the model speaks on the CPU what is listened to."""
    from voxserve.engine.renderer import Renderer
    from voxserve.engine.simulated import SimulatedExecutor
    from voxserve.sim.device import prepared_of

    profile = profiles.load(profile_name)
    loaded = registry.load(model, "cpu", weights)
    if abs(loaded.info.frame_s - profile.frame_s) > 1e-6:
        raise DeviceUnavailable(
            f"profile {profile.name} is of a model with {profile.frame_s * 1e3:g} ms frames; "
            f"{model} has {loaded.info.frame_s * 1e3:g} ms: choose another profile"
        )
    voice = Renderer(loaded, clock, name)
    executor = SimulatedExecutor(profile, prepared_of(profile), clock, voice.info, voice.close)
    return Built(executor, voice, voice.prepare_load, speaks_ahead=True)
