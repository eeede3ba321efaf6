"""The periodic activation of neural vocoders: `x + sin(alpha * x)**2 / beta` per channel."""

from __future__ import annotations

import torch

from voxserve.kernels.backend import cdiv, next_power_of_2, tl, triton, use_reference
from voxserve.kernels.device_math import sine


def snake_params(log_alpha: torch.Tensor, log_beta: torch.Tensor) -> torch.Tensor:
    """Turns a checkpoint's logarithmic SnakeBeta parameters into what the kernels read.

    Args:
        log_alpha: `[channels]`.
        log_beta: `[channels]`.

    Returns:
        `[2, channels]` float32 (float64 stays): `exp(log_alpha)`, `1 / (exp(log_beta) + 1e-9)`.
    """
    wide = torch.promote_types(log_alpha.dtype, torch.float32)
    alpha, beta = log_alpha.to(wide).exp(), log_beta.to(wide).exp()
    return torch.stack((alpha, 1.0 / (beta + 1e-9)))


def snake_reference(x: torch.Tensor, params: torch.Tensor) -> torch.Tensor:
    """Plain torch, in at least float32 inside; `x` is channels-last."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    alpha, inverse_beta = params.to(wide.dtype)
    return (wide + torch.sin(wide * alpha).square() * inverse_beta).to(x.dtype)


@triton.jit
def apply_snake(x, params, channel, mask, channels):
    """Snake on a `[rows, channel]` float32 tile; `channel` indexes `params [2, channels]`."""
    alpha = tl.load(params + channel, mask=mask, other=0.0).to(tl.float32)[None, :]
    inverse_beta = tl.load(params + channels + channel, mask=mask, other=0.0).to(tl.float32)
    wave = sine(x * alpha)
    return x + inverse_beta[None, :] * wave * wave


@triton.jit(do_not_specialize=["rows_per_batch"])
def _snake_kernel(
    x,
    table,
    out,
    rows_per_batch,
    channels,
    x_stride,
    out_stride,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    batch = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    channel = tl.arange(0, BLOCK)
    inside = channel < channels
    mask = (row < rows_per_batch)[:, None] & inside[None, :]
    offset = row[:, None] * channels + channel[None, :]
    value = tl.load(x + batch * x_stride + offset, mask=mask, other=0.0).to(tl.float32)
    value = apply_snake(value, table, channel, inside, channels)
    tl.store(out + batch * out_stride + offset, value.to(out.dtype.element_ty), mask=mask)


def snake(x: torch.Tensor, params: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """Applies the activation.

    Args:
        x: `[rows, frames, channels]`, each row dense.
        params: `[2, channels]` from `snake_params`.
        out: destination of `x`'s shape whose rows may be strided; new if None.

    Returns:
        `out`.
    """
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    if use_reference(x):
        return out.copy_(snake_reference(x, params))
    rows, frames, channels = x.shape
    block = next_power_of_2(channels)
    tile = max(4096 // block, 1)
    _snake_kernel[(cdiv(frames, tile), rows)](
        x, params, out, frames, channels, x.stride(0), out.stride(0), ROWS=tile, BLOCK=block
    )
    return out
