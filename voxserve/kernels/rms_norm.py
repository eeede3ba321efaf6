"""Root-mean-square normalisation of the last axis."""

from __future__ import annotations

import torch

from voxserve.kernels.backend import next_power_of_2, tl, triton, use_reference


def rms_norm_reference(x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
    """Plain torch; the mean square and the scaling are taken in at least float32."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    if weight is not None:
        wide = wide * weight.to(wide.dtype)
    return wide.to(x.dtype)


def scale_reference(y: torch.Tensor, unscaled: torch.Tensor | None, eps: float) -> torch.Tensor:
    """Divides each row of `y` by the root mean square of the same row of `unscaled`, if given."""
    if unscaled is None:
        return y
    wide = unscaled.to(torch.promote_types(unscaled.dtype, torch.float32))
    return (y * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(y.dtype)


@triton.jit
def row_scale(x, row, width, eps, HAS_X: tl.constexpr, BLOCK: tl.constexpr):
    """One over the root mean square of a row of `x [.., width]`; 1 without `x`."""
    if HAS_X:
        i = tl.arange(0, BLOCK)
        value = tl.load(x + row * width + i, mask=i < width, other=0.0).to(tl.float32)
        scale = tl.rsqrt(tl.sum(value * value, 0) / width + eps)
    else:
        scale = 1.0
    return scale


@triton.jit
def _rms_norm_kernel(x, weight, y, stride, d, eps, HAS_WEIGHT: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    mask = i < d
    v = tl.load(x + row * stride + i, mask=mask, other=0.0).to(tl.float32)
    v = v * tl.rsqrt(tl.sum(v * v, 0) / d + eps)
    if HAS_WEIGHT:
        v = v * tl.load(weight + i, mask=mask, other=0.0).to(tl.float32)
    tl.store(y + row * d + i, v.to(y.dtype.element_ty), mask=mask)


def rms_norm(x: torch.Tensor, weight: torch.Tensor | None, eps: float = 1e-6) -> torch.Tensor:
    """Divides each row by its root mean square and scales it.

    Args:
        x: `[..., d]`, any float type; rows may be strided if `x` has two axes.
        weight: `[d]`, or None when it was folded into the product that follows.
        eps: added to the mean square.

    Returns:
        `[..., d]` of `x`'s type, contiguous.
    """
    if use_reference(x):
        return rms_norm_reference(x, weight, eps)
    d = x.shape[-1]
    rows = x if x.dim() == 2 and x.stride(-1) == 1 else x.reshape(-1, d)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    block = next_power_of_2(d)
    _rms_norm_kernel[(rows.shape[0],)](
        rows,
        weight if weight is not None else rows,
        out,
        rows.stride(0),
        d,
        eps,
        HAS_WEIGHT=weight is not None,
        BLOCK=block,
        num_warps=4 if block <= 2048 else 8,
    )
    return out
