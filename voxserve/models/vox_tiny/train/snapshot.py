"""Weights between the stages: fp16 safetensors in a few files, with the model's shape."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from voxserve.core.errors import CheckpointError
from voxserve.models.vox_tiny.checkpoint import Tensors
from voxserve.models.vox_tiny.train.network import ModelShape

_LARGEST_BYTES = 15_000_000  # of a file, so that no transfer limit is in the way


def save(weights: Tensors, shape: ModelShape, folder: Path) -> None:
    """Writes weights over what the folder holds."""
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
    for number, part in enumerate(parts):
        save_file(part, folder / f"lm-{number}.safetensors", metadata)


def load(folder: Path) -> tuple[ModelShape, Tensors]:
    """Shape and fp32 weights.

    Raises:
        CheckpointError: The folder holds no snapshot.
    """
    paths = sorted(folder.glob("lm-*.safetensors"))
    weights: Tensors = {}
    shape = None
    try:
        for path in paths:
            with safe_open(path, framework="pt") as file:
                shape = ModelShape(**json.loads(file.metadata()["shape"]))
                weights |= {name: file.get_tensor(name).float() for name in file.keys()}
    except (OSError, SafetensorError, KeyError, TypeError) as error:
        raise CheckpointError(f"cannot read the snapshot in {folder}: {error}") from error
    if shape is None:
        raise CheckpointError(f"no snapshot (lm-*.safetensors) in {folder}")
    return shape, weights
