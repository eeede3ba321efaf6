"""Loads vox-tiny from the package's data, a file or folder, or with random weights."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import torch

from voxserve.core.errors import CheckpointError, DeviceUnavailable
from voxserve.models.vox_tiny.checkpoint import randomised, read
from voxserve.models.vox_tiny.model import VoxTiny

_FILE_NAME = "tinyvox_int8.safetensors"


def load(device: str, weights: str | None = None) -> VoxTiny:
    """Loads the model.

    Args:
        device: "cpu"; the bundled model has no other executables.
        weights: A weights file, a folder that holds one, "random", or None for the bundled ones.

    Raises:
        DeviceUnavailable: Another device was asked for.
        CheckpointError: The file is missing or malformed.
    """
    if torch.device(device).type != "cpu":
        raise DeviceUnavailable(f"vox-tiny runs on 'cpu', not on {device!r}")
    config, tensors = read(weights_path(weights))
    if weights == "random":
        tensors = randomised(tensors)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # what is probed there must be what a lane's one thread computes
    try:
        with torch.inference_mode():
            return VoxTiny(config, tensors)
    finally:
        torch.set_num_threads(threads)


def weights_path(weights: str | None) -> Path:
    """The weights file that `load` reads.

    Raises:
        CheckpointError: There is none.
    """
    if weights is None or weights == "random":
        return Path(str(resources.files("voxserve") / "data" / "vox-tiny" / _FILE_NAME))
    path = Path(weights)
    if path.is_dir():
        path = path / _FILE_NAME
    if not path.is_file():
        raise CheckpointError(f"no vox-tiny weights at {path}")
    return path
