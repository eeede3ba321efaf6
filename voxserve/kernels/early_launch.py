"""Whether kernels of a chain may launch before their predecessors end.

A kernel launched early does what does not depend on its predecessor (set-up, fetching weights)
and then waits for it on the device. Every kernel that is launched so waits before it reads
anything that is written during a step.
"""

from __future__ import annotations

import os

import torch

from voxserve.kernels.backend import INTERPRETED

_ENABLED = os.environ.get("VOXSERVE_NO_EARLY_LAUNCH", "0") != "1"


def early_launch(x: torch.Tensor) -> bool:
    """Tells whether kernels on `x`'s device are launched early (Hopper and newer)."""
    if INTERPRETED or not _ENABLED:
        return False
    return torch.cuda.get_device_capability(x.device) >= (9, 0)
