"""Matrix products of the decode step with the pointwise work around them inside.

Weights are `[out, in]` as checkpoints have them. `norm_linear` and `norm_gate_up` normalise
their input on the way in; `linear_residual` adds into the residual stream on the way out.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from voxserve.kernels.backend import TensorDescriptor, cdiv, tl, triton, use_reference
from voxserve.kernels.rms_norm import rms_norm, rms_norm_reference
from voxserve.kernels.silu_mul import silu_mul, silu_mul_reference


def fold_norm(weight: torch.Tensor, norm_weight: torch.Tensor) -> torch.Tensor:
    """Folds a norm's scale into the product behind it, so that the product's norm_weight is None.

    Args:
        weight: `[out, in]`.
        norm_weight: `[in]`.

    Returns:
        `[out, in]` of `weight`'s type, multiplied in float32 and rounded once.
    """
    return (weight.float() * norm_weight.float()).to(weight.dtype)


@triton.jit(do_not_specialize=["num_rows"])
def _linear_kernel(
    x,
    weight,
    residual,
    out,
    num_rows,
    x_stride,
    outputs,
    eps,
    INPUTS: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    NORM: tl.constexpr,
    GATED: tl.constexpr,
    RESIDUAL: tl.constexpr,
    BULK: tl.constexpr,
):
    # Programs next to each other share a weight tile, so that weights leave memory once. With
    # NORM the sum of squares of each row is taken from the tiles that pass by anyway and scales
    # the finished product. BULK: x and weight are tensor descriptors.
    m_tiles = tl.cdiv(num_rows, BM)
    m0 = tl.program_id(0) % m_tiles * BM
    n0 = tl.program_id(0) // m_tiles * BN
    m = m0 + tl.arange(0, BM)
    n = n0 + tl.arange(0, BN)
    k = tl.arange(0, BK)
    x_rows = tl.minimum(m, num_rows - 1)[:, None] * x_stride + k[None, :]
    w_rows = tl.minimum(n, outputs - 1)[None, :] * INPUTS + k[:, None]
    acc = tl.zeros((BM, BN), tl.float32)
    up = acc
    if GATED:
        up = tl.zeros((BM, BN), tl.float32)
    square = tl.zeros((BM,), tl.float32)
    for k0 in range(0, INPUTS, BK):
        if BULK:
            a = x.load([m0, k0])
            b = weight.load([n0, k0]).T
        else:
            a = tl.load(x + x_rows + k0)
            b = tl.load(weight + w_rows + k0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        if GATED:
            if BULK:
                b = weight.load([outputs + n0, k0]).T
            else:
                b = tl.load(weight + outputs * INPUTS + w_rows + k0)
            up = tl.dot(a, b, up, input_precision="ieee")
        if NORM:
            wide = a.to(tl.float32)
            square += tl.sum(wide * wide, 1)
    if NORM:
        scale = tl.rsqrt(square / INPUTS + eps)[:, None]
        acc = acc * scale
        if GATED:
            up = up * scale
    if GATED:
        acc = acc * tl.sigmoid(acc) * up
    mask = (m < num_rows)[:, None] & (n < outputs)[None, :]
    offset = m[:, None] * outputs + n[None, :]
    if RESIDUAL:
        acc += tl.load(residual + offset, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + offset, acc.to(out.dtype.element_ty), mask=mask)


@dataclass(frozen=True)
class LinearTile:
    """Shape of one program: rows, outputs and inputs per step, warps, stages, bulk copies."""

    bm: int
    bn: int
    bk: int
    warps: int
    stages: int
    bulk: bool


def linear_tile(rows: int, inputs: int, outputs: int, kind: str) -> LinearTile | None:
    """Chooses a program shape, or None where the vendor's library is faster.

    Args:
        rows: rows of the batch.
        inputs: width of a row.
        outputs: width of the result.
        kind: `norm`, `gated` or `residual`.
    """
    return None


def launch_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    tile: LinearTile,
    *,
    norm: bool = False,
    gated: bool = False,
    residual: torch.Tensor | None = None,
    eps: float = 1e-6,
) -> torch.Tensor:
    """Launches the kernel with a given program shape.

    Args:
        x: `[rows, in]`, rows may be strided.
        weight: `[out, in]`, or `[2 * out, in]` if gated.
        tile: the program shape; `in` must be a multiple of `tile.bk`.
        norm: divides each row of `x` by its root mean square.
        gated: computes `silu(gate) * up`.
        residual: `[rows, out]`, added and overwritten with the result.
        eps: the norm's epsilon.

    Returns:
        `[rows, out]`; `residual` if given.
    """
    rows, inputs = x.shape
    outputs = weight.shape[0] // 2 if gated else weight.shape[0]
    assert inputs % tile.bk == 0, "inputs must be whole steps"
    out = residual
    if out is None:
        out = torch.empty((rows, outputs), dtype=x.dtype, device=x.device)
    x_arg, w_arg = x, weight
    if tile.bulk:
        x_arg = TensorDescriptor.from_tensor(x, [tile.bm, tile.bk])
        w_arg = TensorDescriptor.from_tensor(weight, [tile.bn, tile.bk])
    _linear_kernel[(cdiv(rows, tile.bm) * cdiv(outputs, tile.bn),)](
        x_arg,
        w_arg,
        out,
        out,
        rows,
        x.stride(0),
        outputs,
        eps,
        INPUTS=inputs,
        BM=tile.bm,
        BN=tile.bn,
        BK=tile.bk,
        NORM=norm,
        GATED=gated,
        RESIDUAL=residual is not None,
        BULK=tile.bulk,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    return out


def norm_linear_reference(
    x: torch.Tensor, norm_weight: torch.Tensor | None, weight: torch.Tensor, eps: float
) -> torch.Tensor:
    """Plain torch: norm, then product."""
    return F.linear(rms_norm_reference(x, norm_weight, eps), weight)


def norm_linear(
    x: torch.Tensor, norm_weight: torch.Tensor | None, weight: torch.Tensor, eps: float = 1e-6
) -> torch.Tensor:
    """Returns `rms_norm(x) @ weight.T`.

    Args:
        x: `[rows, in]`.
        norm_weight: `[in]`, or None when folded into `weight` (`fold_norm`).
        weight: `[out, in]`.
        eps: the norm's epsilon.

    Returns:
        `[rows, out]`.
    """
    if use_reference(x):
        return norm_linear_reference(x, norm_weight, weight, eps)
    tile = linear_tile(x.shape[0], x.shape[1], weight.shape[0], "norm")
    if tile is not None and norm_weight is None:
        return launch_linear(x, weight, tile, norm=True, eps=eps)
    return F.linear(rms_norm(x, norm_weight, eps), weight)


def norm_gate_up_reference(
    x: torch.Tensor, norm_weight: torch.Tensor | None, gate_up: torch.Tensor, eps: float
) -> torch.Tensor:
    """Plain torch: norm, product, gated activation."""
    return silu_mul_reference(norm_linear_reference(x, norm_weight, gate_up, eps))


def norm_gate_up(
    x: torch.Tensor, norm_weight: torch.Tensor | None, gate_up: torch.Tensor, eps: float = 1e-6
) -> torch.Tensor:
    """Returns `silu(h @ gate.T) * (h @ up.T)` with `h = rms_norm(x)`.

    Args:
        x: `[rows, in]`.
        norm_weight: `[in]`, or None when folded into `gate_up`.
        gate_up: `[2 * ffn, in]`, the gate's rows first.
        eps: the norm's epsilon.

    Returns:
        `[rows, ffn]`.
    """
    if use_reference(x):
        return norm_gate_up_reference(x, norm_weight, gate_up, eps)
    tile = linear_tile(x.shape[0], x.shape[1], gate_up.shape[0] // 2, "gated")
    if tile is not None and norm_weight is None:
        return launch_linear(x, gate_up, tile, norm=True, gated=True, eps=eps)
    return silu_mul(F.linear(rms_norm(x, norm_weight, eps), gate_up))


def linear_residual(x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    """Adds `x @ weight.T` to `residual` in place and returns it.

    Args:
        x: `[rows, in]`.
        weight: `[out, in]`.
        residual: `[rows, out]`, updated in place.

    Returns:
        `residual`.
    """
    if not use_reference(x):
        tile = linear_tile(x.shape[0], x.shape[1], weight.shape[0], "residual")
        if tile is not None:
            return launch_linear(x, weight, tile, residual=residual)
    return torch.addmm(residual, x, weight.t(), out=residual)
