"""Names of the models and how to load each; importing this loads no model code."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

from voxserve.core.errors import InvalidInput, UnknownModel

if TYPE_CHECKING:
    from voxserve.models.base import SpeechModel


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One registered model.

    Attributes:
        name: What users type.
        module: Module with `load(device, weights, **options) -> SpeechModel`.
        summary: One line for `voxserve models`.
        bundled: Weights ship with the package.
        devices: Kinds of device it runs on.
        options: Passed on to `load`.
    """

    name: str
    module: str
    summary: str
    bundled: bool = False
    devices: tuple[str, ...] = ("cpu", "cuda")
    options: Mapping[str, str] = field(default_factory=dict[str, str])


_ENTRIES = (
    ModelEntry(
        name="vox-tiny",
        module="voxserve.models.vox_tiny.load",
        summary="14 M parameters, one English voice, 24 kHz; bundled, runs on any CPU",
        bundled=True,
        devices=("cpu",),
    ),
    ModelEntry(
        name="qwen3-tts-1.7b",
        module="voxserve.models.qwen3_tts.load",
        summary="Qwen3-TTS 12 Hz CustomVoice, 1.9 B parameters, 9 voices, 10 languages, 24 kHz",
        options={"size": "1.7b"},
    ),
    ModelEntry(
        name="qwen3-tts-0.6b",
        module="voxserve.models.qwen3_tts.load",
        summary="Qwen3-TTS 12 Hz CustomVoice, 0.9 B parameters, 9 voices, 10 languages, 24 kHz",
        options={"size": "0.6b"},
    ),
)


def entries() -> tuple[ModelEntry, ...]:
    """All registered models."""
    return _ENTRIES


def find(name: str) -> ModelEntry:
    """The entry called `name`.

    Raises:
        UnknownModel: No such name; suggests the nearest.
    """
    known = [entry.name for entry in _ENTRIES]
    if name in known:
        return _ENTRIES[known.index(name)]
    near = difflib.get_close_matches(str(name), known, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    raise UnknownModel(f"no model {name!r}{hint}; registered: {', '.join(known)}")


def load(name: str, device: str, weights: str | None = None) -> SpeechModel:
    """Loads a model onto a device.

    Args:
        name: A registered name.
        device: "cpu" or "cuda[:n]".
        weights: A checkpoint folder or repo id, "random" for random weights of the same shapes,
            None for the bundled ones or, where none are bundled, the published repo.

    Raises:
        InvalidInput: `weights` is empty, which a path would take for the current folder.
    """
    if weights is not None and not weights.strip():
        raise InvalidInput("weights is empty; name a folder or repo id, or leave it out")
    entry = find(name)
    return import_module(entry.module).load(device=device, weights=weights, **entry.options)
