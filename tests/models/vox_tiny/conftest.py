"""The bundled model, loaded once."""

from __future__ import annotations

import pytest
import torch

from voxserve.models.vox_tiny.load import load
from voxserve.models.vox_tiny.model import VoxTiny


@pytest.fixture(scope="session")
def vox_tiny() -> VoxTiny:
    """vox-tiny with one intra-op thread, as a lane runs it."""
    torch.set_num_threads(1)
    return load("cpu")
