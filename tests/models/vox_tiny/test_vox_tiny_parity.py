"""The codec decodes as the code that it was trained with (tests/golden/make_vox_tiny.py)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from models import contract
from safetensors import safe_open

from voxserve.models.vox_tiny.model import VoxTiny

SAMPLE_TOLERANCE = 1e-4

_GOLDEN = Path(__file__).parents[2] / "golden" / "vox_tiny.safetensors"


@pytest.fixture(scope="module")
def golden() -> dict[str, torch.Tensor]:
    with safe_open(_GOLDEN, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}


def test_samples(
    vox_tiny: VoxTiny, golden: dict[str, torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vox_tiny.decoder, "noise", torch.zeros_like(vox_tiny.decoder.noise))
    state = contract.allocate(vox_tiny, 1)
    frames = len(golden["samples"]) // vox_tiny.info.frame_samples
    contract.load_codes(vox_tiny, state, 0, golden["codes"][:frames], seed=0)
    samples = contract.decode_chunks(vox_tiny, state, 0, frames, [frames])
    assert np.abs(samples - golden["samples"].numpy()).max() < SAMPLE_TOLERANCE
