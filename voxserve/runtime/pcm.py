"""Float samples of a codec batch to the int16 samples that are delivered."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

FULL_SCALE = 32767.0


def to_int16(samples: torch.Tensor) -> NDArray[np.int16]:
    """Clips to [-1, 1] and rounds.

    Args:
        samples: [..., samples] float in [-1, 1], on any device.

    Returns:
        The same shape, int16, in memory of its own.
    """
    scaled = samples.clamp(-1.0, 1.0).mul(FULL_SCALE).round_()
    return scaled.to(device="cpu", dtype=torch.int16).numpy()
