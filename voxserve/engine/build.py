"""Turns a model's name and a device's name into an executor that is ready to run jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from voxserve.core import profile as profiles
from voxserve.core.clock import Clock
from voxserve.core.errors import DeviceUnavailable
from voxserve.core.protocols import Executor
from voxserve.core.settings import Split
from voxserve.core.workload import Utterance
from voxserve.engine.sentences import text_of
from voxserve.models import registry
from voxserve.models.request import PreparedRequest, SpeechOptions

if TYPE_CHECKING:
    from voxserve.models.base import ModelInfo, SpeechModel

DEVICES = "auto, cpu, cuda[:N], sim:PROFILE (a simulated GPU, such as sim:h200)"
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
        prepare_load: `(utterance, seed) -> request` with the utterance's exact number of frames,
            on simulated devices and with random weights; None where load requests are spoken
            like any other.
    """

    executor: Executor
    model: Preparer
    prepare_load: Callable[[Utterance, int], Any] | None = None
    speaks_ahead: bool = False


def resolve_device(device: str, model: str = "vox-tiny") -> str:
    """The device "auto" stands for: a GPU if there is one that runs the model, else the CPU.

    Other names pass through.

    Raises:
        DeviceUnavailable: No such kind of device.
        InvalidInput: No such profile of a simulated device.
        UnknownModel: No such model.
    """
    name = str(device).strip().lower()
    if name == "auto":
        return "cuda" if "cuda" in registry.find(model).devices and _has_gpu() else "cpu"
    if name == "cpu":
        return name
    kind, colon, index = name.partition(":")
    if kind == "cuda" and (not colon or index.isdecimal()):
        return name
    if name.startswith(_SIM):
        asked = str(device).strip()[len(_SIM) :]  # a path keeps its capitals
        return _SIM + (asked if asked.endswith(".json") else profiles.load(asked).name)
    raise DeviceUnavailable(f"no device {device!r}; there are {DEVICES}")


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def build_executor(
    model: str,
    device: str,
    *,
    weights: str | None,
    clock: Clock,
    name: str,
    settings: Mapping[str, Any],
) -> Built:
    """Loads a model onto a device and times its stages.

    Args:
        model: A registered model's name.
        device: As `resolve_device` gave it.
        weights: A checkpoint folder or repo id, "random", or None for the bundled ones.
        clock: The engine's.
        name: The engine's, for thread names.
        settings: Asked for at the start: a device that prepares splits prepares that one.

    Raises:
        UnknownModel, CheckpointError, DeviceUnavailable: Says what is missing.
    """
    entry = registry.find(model)  # a mistake is told before torch is imported
    kind = device.partition(":")[0]
    if kind != "sim" and kind not in entry.devices:
        raise DeviceUnavailable(f"{model} runs on {', '.join(entry.devices)}, not on {kind}")
    from voxserve.runtime.cpu import CpuExecutor

    if device.startswith(_SIM):
        return _simulated(model, device.removeprefix(_SIM), weights, clock, name)
    loaded = registry.load(model, device, weights)
    # Random weights say nothing, and end nowhere: the workload fixes each request's length.
    prepare_load = partial(fixed_length, loaded) if weights == "random" else None
    if device.startswith("cuda"):
        executor = _on_gpu(loaded, model, clock, settings, is_random=weights == "random")
        return Built(executor, loaded, prepare_load)
    return Built(CpuExecutor(loaded, clock, name), loaded, prepare_load)


def fixed_length(model: SpeechModel, utterance: Utterance, seed: int) -> PreparedRequest:
    """A request of an utterance with exactly its number of frames, whatever the model says.

    Args:
        model: Prepares the text.
        utterance: Its words and its length.
        seed: Of the request.
    """
    frames = utterance.num_frames(model.info.frame_s)
    options = SpeechOptions(seed=seed, min_frames=frames, max_frames=frames)
    return model.preprocess(text_of(utterance, seed), options)


def _on_gpu(
    model: SpeechModel, name: str, clock: Clock, settings: Mapping[str, Any], is_random: bool
) -> Executor:
    from tqdm import tqdm

    from voxserve.runtime.cuda import CudaExecutor
    from voxserve.runtime.cuda_driver import CudaDriver

    asked = settings.get("sm_split")
    if asked is None:
        split, why = _default_split(model, name)
    else:
        split, why = Split.parse(asked), "asked for"
    with tqdm(desc="capturing executables", unit="", leave=False) as bar:

        def progress(label: str, done: int, total: int) -> None:
            bar.total = total
            bar.set_postfix_str(label, refresh=False)
            bar.update(done - bar.n)

        executor = CudaExecutor(
            model,
            CudaDriver(model.device, clock),
            clock,
            # Without a split costs nothing more: the whole device's executables are there anyway.
            splits=tuple(dict.fromkeys((split, Split()))),
            cuts_silence=not is_random,
            progress=progress,
        )
    executor.start_report["sm_split"] = {"chosen": str(split), "why": why}
    return executor


def _default_split(model: SpeechModel, name: str) -> tuple[Split, str]:
    import torch

    from voxserve.engine.gpu_split import default_split
    from voxserve.runtime.partition import can_partition, num_sms, usual_split

    sms = num_sms(model.device)
    device = torch.cuda.get_device_name(model.device)
    return default_split(name, device, sms, can_partition(), usual_split(sms))


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
