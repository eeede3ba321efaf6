"""Reads the vox-tiny weights file into fp32 tensors, or makes random ones of the same shapes."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from voxserve.core.errors import CheckpointError
from voxserve.models.vox_tiny.config import VoxTinyConfig

Tensors = dict[str, torch.Tensor]


def read(path: Path) -> tuple[VoxTinyConfig, Tensors]:
    """Reads and dequantises a weights file.

    Matrices are stored as `name.int8` with one fp16 factor per row in `name.scale`; everything
    else is fp16.

    Args:
        path: A safetensors file with the configuration in its metadata.

    Returns:
        The configuration and fp32 tensors by name.

    Raises:
        CheckpointError: The file is missing or is not such a file.
    """
    try:
        with safe_open(path, framework="pt") as file:
            config = VoxTinyConfig.from_metadata(file.metadata())
            stored = {name: file.get_tensor(name) for name in file.keys()}
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot read vox-tiny weights from {path}: {error}") from error
    return config, {
        name.removesuffix(".int8"): _restore(name, stored)
        for name in stored
        if not name.endswith(".scale")
    }


def _restore(name: str, stored: Tensors) -> torch.Tensor:
    tensor = stored[name].float()
    if not name.endswith(".int8"):
        return tensor
    return tensor.mul_(stored[name.removesuffix(".int8") + ".scale"].float())


def randomised(tensors: Tensors, seed: int = 0) -> Tensors:
    """Replaces every tensor by a random one of its shape and scale, for performance work."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(tensor.shape, generator=generator) * _scale(tensor)
        for name, tensor in tensors.items()
    }


def _scale(tensor: torch.Tensor) -> float:
    return 1.0 / math.sqrt(tensor.shape[-1]) if tensor.dim() > 1 else 0.1
