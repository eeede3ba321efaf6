"""Causal convolution over channels-last activations, as a matrix product per tap.

The input is a padded buffer whose first `(taps - 1) * dilation` rows are history (`conv_state`
puts it there), so the op itself knows nothing of chunks. A transposed convolution of kernel
`2 * stride` whose right overhang is trimmed is the same op with two taps and `stride *
out_channels` outputs (`transposed_weight`); a pointwise product has one tap.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from voxserve.kernels.backend import (
    TensorDescriptor,
    cdiv,
    tl,
    triton,
    use_reference,
)
from voxserve.kernels.device_math import error_function, start_next, wait_for_previous
from voxserve.kernels.early_launch import early_launch
from voxserve.kernels.snake import apply_snake, snake_reference


def conv_weight(weight: torch.Tensor) -> torch.Tensor:
    """Reorders a convolution's `[out, in, taps]` weight to `[taps, in, out]`."""
    return weight.permute(2, 1, 0).contiguous()


def transposed_weight(weight: torch.Tensor, stride: int) -> torch.Tensor:
    """Reorders a transposed convolution's weight for `causal_conv`.

    Args:
        weight: `[in, out, taps]` with `taps` equal to `stride` or `2 * stride`.
        stride: upsampling factor.

    Returns:
        `[taps / stride, in, stride * out]`; output `t` holds samples `t * stride ...` in a row.
        Biases and snake parameters must be repeated `stride` times to match.
    """
    channels_in, channels_out, taps = weight.shape
    assert taps in (stride, 2 * stride), "taps must be the stride or twice the stride"
    phases = weight.view(channels_in, channels_out, taps // stride, stride)
    # Sample j of frame t sums weight[j] * x[t] and weight[j + stride] * x[t - 1]: oldest first.
    return phases.flip(2).permute(2, 0, 3, 1).reshape(taps // stride, channels_in, -1).contiguous()


def fits_kernel(x: torch.Tensor) -> bool:
    """Whether a convolution's input channels fill the kernels' tiles: a multiple of 16.

    Narrower inputs, which only tiny test models have, take plain torch on any device.
    """
    return x.shape[-1] % 16 == 0


def causal_conv_reference(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    dilation: int,
    gelu: bool,
    residual: torch.Tensor | None,
) -> torch.Tensor:
    """Plain torch: one product per tap, summed oldest tap first."""
    taps = weight.shape[0]
    frames = x.shape[1] - (taps - 1) * dilation
    total = x[:, :frames] @ weight[0]
    for tap in range(1, taps):
        total += x[:, tap * dilation : tap * dilation + frames] @ weight[tap]
    if bias is not None:
        total = total + bias.to(total.dtype)
    if gelu:
        total = F.gelu(total)
    return total if residual is None else total + residual


@triton.jit(do_not_specialize=["num_rows", "frames", "padded_frames", "dilation"])
def _conv_kernel(
    x,
    weight,
    bias,
    residual,
    snake,
    out,
    snake_out,
    num_rows,
    frames,
    channels_out,
    padded_frames,
    dilation,
    residual_stride,
    out_stride,
    snake_stride,
    TAPS: tl.constexpr,
    CHANNELS_IN: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    BULK: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    GELU: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    HAS_OUT: tl.constexpr,
    HAS_SNAKE: tl.constexpr,
    EARLY: tl.constexpr,
):
    if EARLY:
        wait_for_previous()
        start_next()
    # BULK: x and weight are tensor descriptors and a tile lies within one row, so that the bulk
    # copy engine can fetch it. Otherwise tiles run over the rows of a batch without a gap.
    n_tiles = tl.cdiv(channels_out, BN)
    tile = tl.program_id(0) // n_tiles
    n0 = tl.program_id(0) % n_tiles * BN
    n = n0 + tl.arange(0, BN)
    if BULK:
        t_tiles = tl.cdiv(frames, BM)
        row0 = tile // t_tiles
        t0 = tile % t_tiles * BM
        t = t0 + tl.arange(0, BM)
        row = row0 + tl.zeros((BM,), tl.int32)
        real = t < frames
    else:
        m = tile * BM + tl.arange(0, BM)
        real = m < num_rows * frames
        m = tl.minimum(m, num_rows * frames - 1)
        row = m // frames
        t = m % frames
        row0 = 0
        t0 = 0
    k = tl.arange(0, BK)
    x_rows = (row.to(tl.int64) * padded_frames + t)[:, None] * CHANNELS_IN + k[None, :]
    per_tap: tl.constexpr = CHANNELS_IN // BK
    inside = n < channels_out
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(TAPS * per_tap):
        tap = step // per_tap
        c0 = step % per_tap * BK
        if BULK:
            a = x.load([row0 * padded_frames + t0 + tap * dilation, c0])
            b = weight.load([step * BK, n0])
        else:
            a = tl.load(x + (tap * dilation * CHANNELS_IN + c0) + x_rows)
            w_rows = (step * BK + k)[:, None] * channels_out + n[None, :]
            b = tl.load(weight + w_rows, mask=inside[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    if HAS_BIAS:
        acc += tl.load(bias + n, mask=inside, other=0.0).to(tl.float32)[None, :]
    if GELU:
        acc = 0.5 * acc * (1.0 + error_function(acc * 0.7071067811865476))
    mask = real[:, None] & inside[None, :]
    row = row.to(tl.int64)
    offset = t[:, None] * channels_out + n[None, :]
    if HAS_RESIDUAL:
        old = tl.load(residual + (row * residual_stride)[:, None] + offset, mask=mask, other=0.0)
        acc += old.to(tl.float32)
    if HAS_OUT:
        target = out + (row * out_stride)[:, None] + offset
        tl.store(target, acc.to(out.dtype.element_ty), mask=mask)
    if HAS_SNAKE:
        acc = apply_snake(acc, snake, n, inside, channels_out)
        target = snake_out + (row * snake_stride)[:, None] + offset
        tl.store(target, acc.to(snake_out.dtype.element_ty), mask=mask)


@dataclass(frozen=True)
class ConvTile:
    """Shape of one program: rows, outputs and inputs per step, warps, stages, bulk copies."""

    bm: int
    bn: int
    bk: int
    warps: int
    stages: int
    bulk: bool


def conv_tile(rows: int, frames: int, channels_in: int, channels_out: int) -> ConvTile:
    """Chooses a program shape: large tiles where they fill the GPU, small ones where not.

    Source: the fastest of 6 to 11 shapes for each convolution of a 12.5 Hz codec at 1, 8, 16 and
    64 chunks on an H200, whole and on 32 multiprocessors.
    """
    total = rows * frames
    if channels_in % 64:
        return ConvTile(64, 32, 32 if channels_in % 32 == 0 else 16, 4, 4, False)
    if cdiv(total, 128) * cdiv(channels_out, 128) >= 100:
        if frames < 160:
            return ConvTile(128, 128, 64, 4, 3, False)
        if channels_out < 1024 and frames < 1024:
            return ConvTile(64, 128, 64, 4, 4, True)
        return ConvTile(128, 128, 64, 4, 3, True)
    if frames >= 160:
        if cdiv(total, 64) * cdiv(channels_out, 64) >= 100:
            return ConvTile(64, 64, 64, 4, 4, True)
        return ConvTile(64, 32, 64, 4, 4, False)
    if total <= 64:
        if channels_out < 1536 and channels_in % 128 == 0:
            return ConvTile(16, 32, 128, 4, 4, False)
        return ConvTile(16, 64, 64, 4, 5, False)
    if cdiv(total, 64) * cdiv(channels_out, 128) >= 60:
        return ConvTile(64, 128, 64, 4, 4, False)
    return ConvTile(64, 64, 64, 4, 4, False)


def launch_conv(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    dilation: int,
    gelu: bool,
    residual: torch.Tensor | None,
    snake: torch.Tensor | None,
    out: torch.Tensor | None,
    snake_out: torch.Tensor | None,
    tile: ConvTile,
) -> None:
    """Launches the kernel with a given program shape; arguments as in `causal_conv`."""
    taps, channels_in, channels_out = weight.shape
    rows, padded_frames = x.shape[0], x.shape[1]
    frames = padded_frames - (taps - 1) * dilation
    if x.stride(0) != padded_frames * channels_in and rows > 1:
        x = x.contiguous()
    if tile.bulk:
        tiles = rows * cdiv(frames, tile.bm)
        flat_x = x.reshape(-1, channels_in) if rows > 1 else x[0]
        x_arg = TensorDescriptor.from_tensor(flat_x, [tile.bm, tile.bk])
        w_arg = TensorDescriptor.from_tensor(weight.view(-1, channels_out), [tile.bk, tile.bn])
    else:
        tiles = cdiv(rows * frames, tile.bm)
        x_arg, w_arg = x, weight
    _conv_kernel[(tiles * cdiv(channels_out, tile.bn),)](
        x_arg,
        w_arg,
        bias if bias is not None else weight,
        residual if residual is not None else weight,
        snake if snake is not None else weight,
        out if out is not None else weight,
        snake_out if snake_out is not None else weight,
        rows,
        frames,
        channels_out,
        padded_frames,
        dilation,
        residual.stride(0) if residual is not None else 0,
        out.stride(0) if out is not None else 0,
        snake_out.stride(0) if snake_out is not None else 0,
        TAPS=taps,
        CHANNELS_IN=channels_in,
        BM=tile.bm,
        BN=tile.bn,
        BK=tile.bk,
        BULK=tile.bulk,
        HAS_BIAS=bias is not None,
        GELU=gelu,
        HAS_RESIDUAL=residual is not None,
        HAS_OUT=out is not None,
        HAS_SNAKE=snake is not None,
        EARLY=early_launch(x),
        launch_pdl=early_launch(x),
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


def causal_conv(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    dilation: int = 1,
    gelu: bool = False,
    residual: torch.Tensor | None = None,
    snake: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    snake_out: torch.Tensor | None = None,
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Convolves, then optionally GELU, then adds a residual, then optionally applies snake.

    With `snake` given, `snake_out` receives the activated result and `out` (if given) the result
    before the activation; without it only `out` is written (allocated if None).

    Args:
        x: `[rows, (taps - 1) * dilation + frames, in]`; rows may be strided, each dense.
        weight: `[taps, in, out]` contiguous.
        bias: `[out]` or None.
        dilation: distance between taps in frames.
        gelu: whether to apply the (exact) GELU after the bias.
        residual: `[rows, frames, out]`, rows may be strided; added after GELU.
        snake: `[2, out]` from `snake_params`, or None.
        out: `[rows, frames, out]`, rows may be strided, each dense.
        snake_out: the same for the activated result; allocated if None and `snake` is given.

    Returns:
        `(out, snake_out)`, None for what was not asked for.
    """
    rows, frames = x.shape[0], x.shape[1] - (weight.shape[0] - 1) * dilation
    shape = (rows, frames, weight.shape[2])
    if snake is None and out is None:
        out = torch.empty(shape, dtype=x.dtype, device=x.device)
    if snake is not None and snake_out is None:
        snake_out = torch.empty(shape, dtype=x.dtype, device=x.device)
    for target in (out, snake_out, residual):
        assert target is None or target.shape == shape, "destination does not match the product"
    if use_reference(x) or not fits_kernel(x):
        result = causal_conv_reference(x, weight, bias, dilation, gelu, residual)
        if out is not None:
            out.copy_(result)
        if snake_out is not None and snake is not None:
            snake_out.copy_(snake_reference(result, snake))
        return out, snake_out
    tile = conv_tile(rows, frames, weight.shape[1], weight.shape[2])
    launch_conv(x, weight, bias, dilation, gelu, residual, snake, out, snake_out, tile)
    return out, snake_out
