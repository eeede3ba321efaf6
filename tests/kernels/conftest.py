"""Where kernels run in these tests: an NVIDIA GPU, or Triton's interpreter when asked for."""

from __future__ import annotations

import pytest
import torch

from voxserve.kernels.backend import HAS_TRITON, INTERPRETED


@pytest.fixture
def kernel_device() -> str:
    """A device on which the Triton source really runs."""
    if torch.cuda.is_available():
        return "cuda"
    if HAS_TRITON and INTERPRETED:
        return "cpu"
    pytest.skip("needs an NVIDIA GPU, or Triton with TRITON_INTERPRET=1")
