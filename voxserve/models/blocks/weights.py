"""Where weights come from: safetensors files of a checkpoint, random numbers, or given tensors.

A source hands out one tensor by its checkpoint name, on the model's device and in its type. Names
and shapes are declared by the model; whatever is missing, unexpected or misshapen is an error
that says so.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from voxserve.core.errors import CheckpointError, UnknownModel

Shapes = Mapping[str, tuple[int, ...]]
WeightSource = Callable[[str], torch.Tensor]

_REPO_ID = re.compile(r"[\w.-]+/[\w.-]+")
_MAX_NAMED = 5


def find_checkpoint(weights: str, patterns: Iterable[str]) -> Path:
    """The folder of a checkpoint: `weights` itself, or a snapshot of the repo of that id.

    Args:
        weights: A folder or a Hugging Face repo id ("owner/name").
        patterns: Files to fetch of a repo.

    Raises:
        UnknownModel: Neither a folder nor a repo that can be fetched.
    """
    folder = Path(weights).expanduser()
    if folder.is_dir():
        return folder
    if not _REPO_ID.fullmatch(weights):
        raise UnknownModel(f"{weights!r} is neither a folder nor a repo id like 'owner/name'")
    from huggingface_hub import snapshot_download  # a heavy import that folders do not need

    try:
        return Path(snapshot_download(weights, allow_patterns=list(patterns)))
    except (OSError, ValueError) as problem:
        raise UnknownModel(
            f"repo {weights!r} could not be fetched ({problem}); a local folder works offline"
        ) from problem


def read_json(path: Path) -> dict[str, object]:
    """A JSON object of a checkpoint.

    Raises:
        CheckpointError: Missing or malformed.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing") from None
    except ValueError as problem:
        raise CheckpointError(f"{path} is not JSON: {problem}") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} does not hold a JSON object")
    return value


class CheckpointFiles:
    """The safetensors files of one folder, with names and shapes checked.

    Args:
        folder: Holds `model.safetensors`, or shards named `model-*.safetensors`.
        shapes: Every tensor the model uses.
        unused: Prefixes of tensors that are published with the model and not used by it.
        device: Where tensors go.
        dtype: Their type.

    Raises:
        CheckpointError: No files, or tensors missing, unexpected or misshapen.
    """

    def __init__(
        self,
        folder: Path,
        shapes: Shapes,
        unused: tuple[str, ...],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self._device, self._dtype = device, dtype
        self._files: dict[str, Path] = {}
        found: dict[str, tuple[int, ...]] = {}
        paths = sorted(folder.glob("model*.safetensors"))
        if not paths:
            raise CheckpointError(f"{folder} has no model*.safetensors")
        for path in paths:
            for name, shape in _shapes_in(path).items():
                self._files[name] = path
                found[name] = shape
        _check(folder, shapes, found, unused)

    def __call__(self, name: str) -> torch.Tensor:
        """The tensor called `name`."""
        with safe_open(self._files[name], "pt", device=str(self._device)) as file:
            return file.get_tensor(name).to(self._dtype)


class RandomWeights:
    """Random tensors of the declared shapes, made on the device; a name's values depend on it only.

    Matrices keep the size of what they are applied to, norms and scales are one, biases and
    logarithmic activation parameters zero, so activations look like a trained model's.

    Args:
        shapes: Every tensor the model uses.
        device: Where tensors are made.
        dtype: Their type.
        seed: Other seeds give other weights.
        gain: Factor on the matrix of a name.
    """

    def __init__(
        self,
        shapes: Shapes,
        device: torch.device,
        dtype: torch.dtype,
        seed: int = 0,
        gain: Callable[[str], float] = lambda _name: 1.0,
    ) -> None:
        self._shapes, self._device, self._dtype = shapes, device, dtype
        self._seed, self._gain = seed, gain

    def __call__(self, name: str) -> torch.Tensor:
        """The tensor called `name`."""
        shape = self._shapes[name]
        leaf = name.rsplit(".", 1)[-1]
        if leaf in ("bias", "alpha", "beta"):
            return torch.zeros(shape, dtype=self._dtype, device=self._device)
        if len(shape) == 1:
            return torch.ones(shape, dtype=self._dtype, device=self._device)
        generator = torch.Generator(self._device)
        # 32 bits: the CPU's generator takes no more of a seed.
        generator.manual_seed(zlib.crc32(f"{self._seed}:{name}".encode()))
        fan_in = 1 if "embedding" in name else math.prod(shape[1:])
        value = torch.randn(shape, generator=generator, device=self._device, dtype=self._dtype)
        return value.mul_(self._gain(name) * fan_in**-0.5)


def _shapes_in(path: Path) -> dict[str, tuple[int, ...]]:
    try:
        with safe_open(path, "pt") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}
    except SafetensorError as problem:
        raise CheckpointError(f"{path} cannot be read: {problem}") from problem


def _check(folder: Path, wanted: Shapes, found: Shapes, unused: tuple[str, ...]) -> None:
    missing = [name for name in wanted if name not in found]
    extra = [name for name in found if name not in wanted and not name.startswith(unused)]
    wrong = [
        f"{name} is {list(found[name])}, not {list(shape)}"
        for name, shape in wanted.items()
        if name in found and found[name] != tuple(shape)
    ]
    problems = [
        f"{len(names)} {what}: {_some(names)}"
        for what, names in (("missing", missing), ("unexpected", extra), ("misshapen", wrong))
        if names
    ]
    if problems:
        raise CheckpointError(f"tensors in {folder} do not fit its config: {'; '.join(problems)}")


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:_MAX_NAMED])
    return shown if len(names) <= _MAX_NAMED else f"{shown} and {len(names) - _MAX_NAMED} more"
