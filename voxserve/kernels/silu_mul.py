"""The gated activation of a SwiGLU feed-forward: `silu(gate) * up`."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from voxserve.kernels.backend import cdiv, tl, triton, use_reference


def silu_mul_reference(gate_up: torch.Tensor) -> torch.Tensor:
    """Plain torch, in at least float32 inside."""
    wide = gate_up.to(torch.promote_types(gate_up.dtype, torch.float32))
    gate, up = wide.chunk(2, -1)
    return (F.silu(gate) * up).to(gate_up.dtype)


@triton.jit
def _silu_mul_kernel(gate_up, out, d, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = i < d
    gate = tl.load(gate_up + row * 2 * d + i, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * d + d + i, mask=mask, other=0.0).to(tl.float32)
    value = gate * tl.sigmoid(gate) * up
    tl.store(out + row * d + i, value.to(out.dtype.element_ty), mask=mask)


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """Returns `silu(gate) * up`.

    Args:
        gate_up: `[rows, 2 * d]` contiguous; the first half of each row is the gate.

    Returns:
        `[rows, d]` of the same type.
    """
    if use_reference(gate_up):
        return silu_mul_reference(gate_up)
    rows, d = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty((rows, d), dtype=gate_up.dtype, device=gate_up.device)
    block = 1024
    _silu_mul_kernel[(rows, cdiv(d, block))](gate_up, out, d, BLOCK=block, num_warps=4)
    return out
