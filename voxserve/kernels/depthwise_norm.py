"""Head of a ConvNeXt block: causal depthwise convolution, then layer norm over channels."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from voxserve.kernels.backend import next_power_of_2, tl, triton, use_reference
from voxserve.kernels.device_math import start_next, wait_for_previous
from voxserve.kernels.early_launch import early_launch


def depthwise_norm_reference(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    norm_weight: torch.Tensor,
    norm_bias: torch.Tensor,
    eps: float,
) -> torch.Tensor:
    """Plain torch, in at least float32 inside."""
    taps = weight.shape[0]
    frames = x.shape[1] - taps + 1
    wide = torch.promote_types(x.dtype, torch.float32)
    total = bias.to(wide).expand(x.shape[0], frames, -1)
    for tap in range(taps):
        total = total + x[:, tap : tap + frames].to(wide) * weight[tap].to(wide)
    normed = F.layer_norm(total, total.shape[-1:], norm_weight.to(wide), norm_bias.to(wide), eps)
    return normed.to(x.dtype)


@triton.jit(do_not_specialize=["frames"])
def _depthwise_norm_kernel(
    x,
    weight,
    bias,
    norm_weight,
    norm_bias,
    out,
    frames,
    channels,
    x_stride,
    eps,
    TAPS: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):
    if EARLY:
        wait_for_previous()
        start_next()
    token = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    mask = i < channels
    base = x + (token // frames).to(tl.int64) * x_stride + (token % frames) * channels + i
    total = tl.load(bias + i, mask=mask, other=0.0).to(tl.float32)
    for tap in tl.static_range(TAPS):
        value = tl.load(base + tap * channels, mask=mask, other=0.0).to(tl.float32)
        total += value * tl.load(weight + tap * channels + i, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(total, 0) / channels
    centred = tl.where(mask, total - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 0) / channels + eps)
    value = centred * scale * tl.load(norm_weight + i, mask=mask, other=0.0).to(tl.float32)
    value += tl.load(norm_bias + i, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + token.to(tl.int64) * channels + i, value.to(out.dtype.element_ty), mask=mask)


def depthwise_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    norm_weight: torch.Tensor,
    norm_bias: torch.Tensor,
    eps: float = 1e-6,
) -> torch.Tensor:
    """Convolves each channel with its own taps and normalises each frame.

    Args:
        x: `[rows, taps - 1 + frames, channels]`, history first; rows may be strided, each dense.
        weight: `[taps, channels]`.
        bias: `[channels]`.
        norm_weight: `[channels]`.
        norm_bias: `[channels]`.
        eps: the norm's epsilon.

    Returns:
        `[rows, frames, channels]`.
    """
    if use_reference(x):
        return depthwise_norm_reference(x, weight, bias, norm_weight, norm_bias, eps)
    rows, channels, taps = x.shape[0], x.shape[2], weight.shape[0]
    frames = x.shape[1] - taps + 1
    out = torch.empty((rows, frames, channels), dtype=x.dtype, device=x.device)
    _depthwise_norm_kernel[(rows * frames,)](
        x,
        weight,
        bias,
        norm_weight,
        norm_bias,
        out,
        frames,
        channels,
        x.stride(0),
        eps,
        TAPS=taps,
        BLOCK=next_power_of_2(channels),
        EARLY=early_launch(x),
        launch_pdl=early_launch(x),
        num_warps=4,
    )
    return out
