"""The gated activation of a SwiGLU feed-forward: `silu(gate) * up`."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from voxserve.kernels.backend import cdiv, next_power_of_2, tl, triton, use_reference
from voxserve.kernels.device_math import start_next, wait_for_previous
from voxserve.kernels.early_launch import early_launch
from voxserve.kernels.rms_norm import row_scale, scale_reference


def silu_mul_reference(
    gate_up: torch.Tensor, unscaled: torch.Tensor | None = None, eps: float = 1e-6
) -> torch.Tensor:
    """Plain torch, in at least float32 inside."""
    wide = scale_reference(gate_up, unscaled, eps)
    wide = wide.to(torch.promote_types(gate_up.dtype, torch.float32))
    gate, up = wide.chunk(2, -1)
    return (F.silu(gate) * up).to(gate_up.dtype)


@triton.jit
def _silu_mul_kernel(
    gate_up,
    unscaled,
    out,
    d,
    width,
    eps,
    HAS_UNSCALED: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):
    if EARLY:
        wait_for_previous()
        start_next()
    row = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = i < d
    gate = tl.load(gate_up + row * 2 * d + i, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * d + d + i, mask=mask, other=0.0).to(tl.float32)
    scale = row_scale(unscaled, row, width, eps, HAS_UNSCALED, WIDTH)
    gate = gate * scale
    value = gate * tl.sigmoid(gate) * (up * scale)
    tl.store(out + row * d + i, value.to(out.dtype.element_ty), mask=mask)


def silu_mul(
    gate_up: torch.Tensor, unscaled: torch.Tensor | None = None, eps: float = 1e-6
) -> torch.Tensor:
    """Returns `silu(gate) * up`.

    Args:
        gate_up: `[rows, 2 * d]` contiguous; the first half of each row is the gate.
        unscaled: `[rows, in]` contiguous, if each row of `gate_up` must still be divided by the
            root mean square of this row.
        eps: that norm's epsilon.

    Returns:
        `[rows, d]` of the same type.
    """
    if use_reference(gate_up):
        return silu_mul_reference(gate_up, unscaled, eps)
    rows, d = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty((rows, d), dtype=gate_up.dtype, device=gate_up.device)
    block = 1024
    width = unscaled.shape[1] if unscaled is not None else 1
    early = early_launch(gate_up)
    _silu_mul_kernel[(rows, cdiv(d, block))](
        gate_up,
        unscaled if unscaled is not None else gate_up,
        out,
        d,
        width,
        eps,
        HAS_UNSCALED=unscaled is not None,
        WIDTH=next_power_of_2(width),
        BLOCK=block,
        EARLY=early,
        num_warps=4,
        launch_pdl=early,
    )
    return out
