"""A whole vocoder residual unit: dilated convolution, snake, pointwise product, sum, next snake."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from voxserve.kernels.backend import TensorDescriptor, cdiv, tl, triton, use_reference
from voxserve.kernels.causal_conv import causal_conv
from voxserve.kernels.device_math import start_next, wait_for_previous
from voxserve.kernels.early_launch import early_launch
from voxserve.kernels.snake import apply_snake


@dataclass(frozen=True)
class ResidualUnitWeights:
    """Weights of one residual unit.

    conv1: `[taps, channels, channels]`; bias1: `[channels]`; dilation: of conv1, in frames.
    snake2: `[2, channels]`, between the two products.
    conv2: `[1, channels, channels]`; bias2: `[channels]`.
    """

    conv1: torch.Tensor
    bias1: torch.Tensor
    dilation: int
    snake2: torch.Tensor
    conv2: torch.Tensor
    bias2: torch.Tensor


@triton.jit
def _load_tile(source, row, column, BULK: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr, C):
    """A `[BR, BC]` tile of a `[.., C]` matrix; columns and rows beyond C read as zero."""
    if BULK:
        tile = source.load([row, column])
    else:
        r = row + tl.arange(0, BR)[:, None]
        c = column + tl.arange(0, BC)[None, :]
        tile = tl.load(source + r * C + c, mask=c < C, other=0.0)
    return tile


@triton.jit
def _finish(
    acc,
    bias,
    residual,
    snake,
    out,
    snake_out,
    row,
    t,
    real,
    n,
    C,
    HAS_OUT: tl.constexpr,
    residual_stride,
    out_stride,
    snake_stride,
):
    inside = n < C
    mask = real[:, None] & inside[None, :]
    offset = t[:, None] * C + n[None, :]
    acc += tl.load(bias + n, mask=inside, other=0.0).to(tl.float32)[None, :]
    old = tl.load(residual + row * residual_stride + offset, mask=mask, other=0.0)
    acc += old.to(tl.float32)
    if HAS_OUT:
        tl.store(out + row * out_stride + offset, acc.to(out.dtype.element_ty), mask=mask)
    acc = apply_snake(acc, snake, n, inside, C)
    target = snake_out + row * snake_stride + offset
    tl.store(target, acc.to(snake_out.dtype.element_ty), mask=mask)


@triton.jit
def _hidden(acc, bias, snake, n, C, dtype: tl.constexpr):
    inside = n < C
    acc += tl.load(bias + n, mask=inside, other=0.0).to(tl.float32)[None, :]
    return apply_snake(acc, snake, n, inside, C).to(dtype)


@triton.jit(do_not_specialize=["frames", "padded_frames", "dilation"])
def _residual_unit_kernel(
    activated,
    conv1_a,
    conv1_b,
    bias1,
    snake2,
    conv2_aa,
    conv2_ab,
    conv2_ba,
    conv2_bb,
    bias2,
    residual,
    next_snake,
    out,
    snake_out,
    frames,
    padded_frames,
    dilation,
    residual_stride,
    out_stride,
    snake_stride,
    TAPS: tl.constexpr,
    C: tl.constexpr,
    NA: tl.constexpr,
    NB: tl.constexpr,
    BM: tl.constexpr,
    BK: tl.constexpr,
    HAS_OUT: tl.constexpr,
    BULK: tl.constexpr,
    EARLY: tl.constexpr,
):
    if EARLY:
        wait_for_previous()
        start_next()
    # All C channels of BM frames stay in registers between the two products. C = NA + NB (powers
    # of two), or NA >= C and NB = 0 with the columns beyond C read as zero.
    t_tiles = tl.cdiv(frames, BM)
    row = (tl.program_id(0) // t_tiles).to(tl.int64)
    t0 = tl.program_id(0) % t_tiles * BM
    t = t0 + tl.arange(0, BM)
    real = t < frames
    na = tl.arange(0, NA)
    dtype: tl.constexpr = snake_out.dtype.element_ty
    per_tap: tl.constexpr = C // BK
    acc_a = tl.zeros((BM, NA), tl.float32)
    x_row = (row * padded_frames).to(tl.int32) + t0
    k = tl.arange(0, BK)
    x_rows = (row * padded_frames + tl.minimum(t, frames - 1))[:, None] * C + k[None, :]
    nb = na
    acc_b = acc_a
    if NB > 0:
        nb = NA + tl.arange(0, NB)
        acc_b = tl.zeros((BM, NB), tl.float32)
    for step in range(TAPS * per_tap):
        tap = step // per_tap
        c0 = step % per_tap * BK
        if BULK:
            a = activated.load([x_row + tap * dilation, c0])
        else:
            a = tl.load(activated + (tap * dilation * C + c0) + x_rows)
        b = _load_tile(conv1_a, step * BK, 0, BULK, BK, NA, C)
        acc_a = tl.dot(a, b, acc_a, input_precision="ieee")
        if NB > 0:
            b = _load_tile(conv1_b, step * BK, NA, BULK, BK, NB, C)
            acc_b = tl.dot(a, b, acc_b, input_precision="ieee")
    hidden_a = _hidden(acc_a, bias1, snake2, na, C, dtype)
    if NB > 0:
        hidden_b = _hidden(acc_b, bias1, snake2, nb, C, dtype)
        acc = tl.dot(hidden_a, _load_tile(conv2_aa, 0, 0, BULK, NA, NA, C), input_precision="ieee")
        acc = tl.dot(
            hidden_b, _load_tile(conv2_ba, NA, 0, BULK, NB, NA, C), acc, input_precision="ieee"
        )
        _finish(
            acc,
            bias2,
            residual,
            next_snake,
            out,
            snake_out,
            row,
            t,
            real,
            na,
            C,
            HAS_OUT,
            residual_stride,
            out_stride,
            snake_stride,
        )
        acc = tl.dot(hidden_a, _load_tile(conv2_ab, 0, NA, BULK, NA, NB, C), input_precision="ieee")
        acc = tl.dot(
            hidden_b, _load_tile(conv2_bb, NA, NA, BULK, NB, NB, C), acc, input_precision="ieee"
        )
        _finish(
            acc,
            bias2,
            residual,
            next_snake,
            out,
            snake_out,
            row,
            t,
            real,
            nb,
            C,
            HAS_OUT,
            residual_stride,
            out_stride,
            snake_stride,
        )
    else:
        acc = tl.dot(hidden_a, _padded_square(conv2_aa, BULK, NA, C), input_precision="ieee")
        _finish(
            acc,
            bias2,
            residual,
            next_snake,
            out,
            snake_out,
            row,
            t,
            real,
            na,
            C,
            HAS_OUT,
            residual_stride,
            out_stride,
            snake_stride,
        )


@triton.jit
def _padded_square(source, BULK: tl.constexpr, N: tl.constexpr, C):
    if BULK:
        tile = source.load([0, 0])
    else:
        r = tl.arange(0, N)[:, None]
        c = tl.arange(0, N)[None, :]
        tile = tl.load(source + r * C + c, mask=(r < C) & (c < C), other=0.0)
    return tile


@dataclass(frozen=True)
class UnitTile:
    """Shape of one program: frames, column split, inputs per step, warps, stages, bulk copies."""

    bm: int
    na: int
    nb: int
    bk: int
    warps: int
    stages: int
    bulk: bool


def unit_tile(rows: int, frames: int, channels: int) -> UnitTile | None:
    """Chooses the fused kernel's program shape; None where two convolutions are faster."""
    if channels == 192:
        return UnitTile(64, 128, 64, 64, 4, 3, True)
    if channels == 96:
        return UnitTile(128, 128, 0, 32, 4, 3, True)
    return None


def launch_residual_unit(
    x: torch.Tensor,
    activated: torch.Tensor,
    weights: ResidualUnitWeights,
    next_snake: torch.Tensor,
    out: torch.Tensor | None,
    snake_out: torch.Tensor,
    tile: UnitTile,
) -> None:
    """Launches the fused kernel with a given program shape; arguments as in `residual_unit`."""
    rows, frames, channels = x.shape
    padded_frames = activated.shape[1]
    conv1 = weights.conv1.view(-1, channels)
    conv2 = weights.conv2.view(-1, channels)
    na, nb = tile.na, tile.nb
    inputs = [activated, *[conv1] * 2, *[conv2] * 4]
    if tile.bulk:
        shapes = [(tile.bm, tile.bk), (tile.bk, na), (tile.bk, nb)]
        shapes += [(na, na), (na, nb), (nb, na), (nb, nb)]
        flat = [activated.reshape(-1, channels), *inputs[1:]]
        inputs = [
            TensorDescriptor.from_tensor(tensor, list(shape)) if 0 not in shape else tensor
            for tensor, shape in zip(flat, shapes, strict=True)
        ]
    activated_arg, conv1_a, conv1_b, aa, ab, ba, bb = inputs
    _residual_unit_kernel[(rows * cdiv(frames, tile.bm),)](
        activated_arg,
        conv1_a,
        conv1_b,
        weights.bias1,
        weights.snake2,
        aa,
        ab,
        ba,
        bb,
        weights.bias2,
        x,
        next_snake,
        out if out is not None else x,
        snake_out,
        frames,
        padded_frames,
        weights.dilation,
        x.stride(0),
        out.stride(0) if out is not None else 0,
        snake_out.stride(0),
        TAPS=weights.conv1.shape[0],
        C=channels,
        NA=na,
        NB=nb,
        BM=tile.bm,
        BK=tile.bk,
        HAS_OUT=out is not None,
        BULK=tile.bulk,
        EARLY=early_launch(x),
        launch_pdl=early_launch(x),
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


def residual_unit(
    x: torch.Tensor,
    activated: torch.Tensor,
    weights: ResidualUnitWeights,
    next_snake: torch.Tensor,
    *,
    out: torch.Tensor | None,
    snake_out: torch.Tensor,
) -> None:
    """Computes `y = x + conv2(snake2(conv1(activated)))` and the snake of what follows it.

    Args:
        x: `[rows, frames, channels]`, rows may be strided.
        activated: `[rows, (taps - 1) * dilation + frames, channels]`: this unit's first snake of
            `x` behind its history.
        weights: the unit's weights.
        next_snake: `[2, channels]` of the snake that reads `y`.
        out: receives `y`, or None where only its snake is needed; may be `x` itself.
        snake_out: receives `snake(y)`, rows may be strided.
    """
    if not use_reference(x):
        tile = unit_tile(*x.shape)
        if tile is not None:
            launch_residual_unit(x, activated, weights, next_snake, out, snake_out, tile)
            return
    _, hidden = causal_conv(
        activated, weights.conv1, weights.bias1, dilation=weights.dilation, snake=weights.snake2
    )
    assert hidden is not None, "a snake output was asked for"
    causal_conv(
        hidden,
        weights.conv2,
        weights.bias2,
        residual=x,
        snake=next_snake,
        out=out,
        snake_out=snake_out,
    )
