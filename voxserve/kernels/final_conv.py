"""The codec's last convolution: many channels to one sample, clamped."""

from __future__ import annotations

import torch

from voxserve.kernels.backend import cdiv, next_power_of_2, tl, triton, use_reference
from voxserve.kernels.device_math import start_next, wait_for_previous
from voxserve.kernels.early_launch import early_launch


def final_conv_reference(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Plain torch, in at least float32 inside."""
    taps = weight.shape[0]
    samples = x.shape[1] - taps + 1
    wide = torch.promote_types(x.dtype, torch.float32)
    total = bias.to(wide).expand(x.shape[0], samples).clone()
    for tap in range(taps):
        total += x[:, tap : tap + samples].to(wide) @ weight[tap].to(wide)
    return total.clamp_(-1.0, 1.0)


@triton.jit(do_not_specialize=["samples"])
def _final_conv_kernel(
    x,
    weight,
    bias,
    out,
    samples,
    channels,
    x_stride,
    PCM: tl.constexpr,
    TAPS: tl.constexpr,
    SAMPLES: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):
    if EARLY:
        wait_for_previous()
        start_next()
    row = tl.program_id(1).to(tl.int64)
    t = tl.program_id(0) * SAMPLES + tl.arange(0, SAMPLES)
    c = tl.arange(0, BLOCK)
    inside = c < channels
    mask = (t < samples)[:, None] & inside[None, :]
    base = x + row * x_stride + t[:, None] * channels + c[None, :]
    total = tl.zeros((SAMPLES, BLOCK), tl.float32)
    for tap in tl.static_range(TAPS):
        tap_weight = tl.load(weight + tap * channels + c, mask=inside, other=0.0).to(tl.float32)
        value = tl.load(base + tap * channels, mask=mask, other=0.0).to(tl.float32)
        total += value * tap_weight[None, :]
    wave = tl.sum(total, 1) + tl.load(bias).to(tl.float32)
    wave = tl.minimum(tl.maximum(wave, -1.0), 1.0)
    if PCM:
        scaled = wave * 32767.0
        wave = tl.where(scaled >= 0, scaled + 0.5, scaled - 0.5)
    tl.store(out + row * samples + t, wave.to(out.dtype.element_ty), mask=t < samples)


def final_conv(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Convolves to one channel and clamps to -1 ... 1.

    Args:
        x: `[rows, taps - 1 + samples, channels]`, history first; rows may be strided, each dense.
        weight: `[taps, channels]`.
        bias: `[1]`.
        out: `[rows, samples]` contiguous; float for the wave, int16 for PCM (scaled by 32767 and
            rounded half away from zero). A new float32 tensor if None.

    Returns:
        `out`.
    """
    rows, channels, taps = x.shape[0], x.shape[2], weight.shape[0]
    samples = x.shape[1] - taps + 1
    if out is None:
        out = torch.empty((rows, samples), dtype=torch.float32, device=x.device)
    if use_reference(x):
        wave = final_conv_reference(x, weight, bias)
        if out.dtype == torch.int16:
            scaled = wave * 32767.0
            wave = torch.where(scaled >= 0, scaled + 0.5, scaled - 0.5)
        return out.copy_(wave)
    tile = 64
    _final_conv_kernel[(cdiv(samples, tile), rows)](
        x,
        weight,
        bias,
        out,
        samples,
        channels,
        x.stride(0),
        PCM=out.dtype == torch.int16,
        TAPS=taps,
        SAMPLES=tile,
        BLOCK=next_power_of_2(channels),
        EARLY=early_launch(x),
        launch_pdl=early_launch(x),
        num_warps=4,
    )
    return out
