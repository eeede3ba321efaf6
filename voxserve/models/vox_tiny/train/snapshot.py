"""Weights between the stages: fp16 safetensors in a few files, with the model's shape."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from voxserve.core.errors import CheckpointError
from voxserve.models.vox_tiny.checkpoint import Tensors
from voxserve.models.vox_tiny.train.network import ModelShape

_FILES = "lm-*.safetensors"
_LARGEST_BYTES = 15_000_000  # of a file, so that no transfer limit is in the way


def save(weights: Tensors, shape: ModelShape, folder: Path) -> None:
    """Writes weights in place of what the folder holds, all files at once."""
    folder.mkdir(parents=True, exist_ok=True)
    parts: list[Tensors] = [{}]
    size = 0
    for name, tensor in sorted(weights.items()):
        half = tensor.detach().half().cpu().contiguous()
        if size + half.nbytes > _LARGEST_BYTES and parts[-1]:
            parts.append({})
            size = 0
        parts[-1][name] = half
        size += half.nbytes
    metadata = {"shape": json.dumps(shape.as_dict())}
    written = [folder / f"lm-{number}.safetensors" for number in range(len(parts))]
    for path, part in zip(written, parts, strict=True):
        save_file(part, path.with_suffix(".part"), metadata)
    for path in written:  # only now: a run that is stopped leaves no mixture
        path.with_suffix(".part").rename(path)
    for path in set(folder.glob(_FILES)) - set(written):
        path.unlink()


def load(folder: Path) -> tuple[ModelShape, Tensors]:
    """Shape and fp32 weights.

    Raises:
        CheckpointError: The folder holds no snapshot.
    """
    paths = sorted(folder.glob(_FILES))
    weights: Tensors = {}
    shape = None
    try:
        for path in paths:
            with safe_open(path, framework="pt") as file:
                shape = ModelShape(**json.loads(file.metadata()["shape"]))
                weights |= {name: file.get_tensor(name).float() for name in file.keys()}
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"cannot read the snapshot in {folder}: {error}") from error
    if shape is None:
        raise CheckpointError(f"no snapshot ({_FILES}) in {folder}")
    return shape, weights
