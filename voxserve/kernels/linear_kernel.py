"""The matrix product kernel of the decode step: a chain of small products bound by latency.

Three things shorten the chain. Norm, gated activation and residual sum happen inside. A program
launches while its predecessor still runs and pulls its weights into the L2 cache before it waits
for it. And where one pass over the inputs leaves multiprocessors idle, the inputs are split: the
last program of a tile to finish adds the parts in a fixed order, so results repeat exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from voxserve.kernels.backend import TensorDescriptor, cdiv, tl, triton
from voxserve.kernels.device_math import prefetch_l2, start_next, wait_for_previous
from voxserve.kernels.early_launch import early_launch
from voxserve.kernels.kept import kept

_PREFETCH = 256  # inputs of each weight row fetched before waiting


@triton.jit
def _prefetch_weights(
    weight, n0, k0, outputs, INPUTS: tl.constexpr, BN: tl.constexpr, KS: tl.constexpr
):
    """Asks for a `[BN, KS]` slab of the weights, one 128-byte line an address."""
    per_row: tl.constexpr = KS * 2 // 128
    lines = tl.arange(0, 256)
    for first in range(0, BN * per_row, 256):
        line = tl.minimum(first + lines, BN * per_row - 1)
        row = tl.minimum(n0 + line // per_row, outputs - 1)
        prefetch_l2(weight + row.to(tl.int64) * INPUTS + k0 + line % per_row * 64)


@triton.jit(do_not_specialize=["num_rows"])
def _linear_kernel(
    x,
    weight,
    raw_weight,
    residual,
    out,
    parts,
    arrivals,
    num_rows,
    outputs,
    eps,
    INPUTS: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    SPLIT: tl.constexpr,
    NORM: tl.constexpr,
    GATED: tl.constexpr,
    RESIDUAL: tl.constexpr,
    EARLY: tl.constexpr,
    PREFETCH: tl.constexpr,
):
    # Programs next to each other share a weight tile, so that weights leave memory once. With
    # NORM the sum of squares of each row is taken from the tiles that pass by anyway and scales
    # the finished product.
    m_tiles = tl.cdiv(num_rows, BM)
    m0 = tl.program_id(0) % m_tiles * BM
    n0 = tl.program_id(0) // m_tiles * BN
    KS: tl.constexpr = INPUTS // SPLIT
    first_k = tl.program_id(1) * KS
    m = m0 + tl.arange(0, BM)
    n = n0 + tl.arange(0, BN)
    if EARLY:
        if PREFETCH > 0:
            _prefetch_weights(raw_weight, n0, first_k, outputs, INPUTS, BN, PREFETCH)
            if GATED:
                up_weight = raw_weight + outputs.to(tl.int64) * INPUTS
                _prefetch_weights(up_weight, n0, first_k, outputs, INPUTS, BN, PREFETCH)
        wait_for_previous()
        start_next()
    acc = tl.zeros((BM, BN), tl.float32)
    up = acc
    if GATED:
        up = tl.zeros((BM, BN), tl.float32)
    square = tl.zeros((BM,), tl.float32)
    for k0 in range(0, KS, BK):
        a = x.load([m0, first_k + k0])
        acc = tl.dot(a, weight.load([n0, first_k + k0]).T, acc, input_precision="ieee")
        if GATED:
            b = weight.load([outputs + n0, first_k + k0]).T
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
    if SPLIT > 1:
        # Every part goes through memory, the last one's too: the order of the sum is fixed.
        size = num_rows * outputs
        tl.store(parts + tl.program_id(1) * size + offset, acc, mask=mask)
        tl.debug_barrier()
        arrived = tl.atomic_add(arrivals + tl.program_id(0), 1, sem="acq_rel")
        if arrived == SPLIT - 1:
            tl.store(arrivals + tl.program_id(0), 0)
            total = tl.zeros((BM, BN), tl.float32)
            for part in tl.static_range(SPLIT):
                total += tl.load(
                    parts + part * size + offset, mask=mask, other=0.0, cache_modifier=".cg"
                )
            if RESIDUAL:
                total += tl.load(residual + offset, mask=mask, other=0.0).to(tl.float32)
            tl.store(out + offset, total.to(out.dtype.element_ty), mask=mask)
    else:
        if RESIDUAL:
            acc += tl.load(residual + offset, mask=mask, other=0.0).to(tl.float32)
        tl.store(out + offset, acc.to(out.dtype.element_ty), mask=mask)


@dataclass(frozen=True)
class LinearTile:
    """Shape of one program: rows, outputs, inputs per step, warps, stages, parts of the inputs."""

    bm: int
    bn: int
    bk: int
    warps: int
    stages: int
    split: int = 1


def _arrivals(device: torch.device, stream: int) -> torch.Tensor:
    """Arrival counters of split products, zero between launches; work of one stream is ordered."""
    key = ("arrivals", device, stream)
    return kept(key, lambda: torch.zeros(4096, dtype=torch.int32, device=device))


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
        tile: the program shape; `in` must be whole steps in each part, and one part with `norm`.
        norm: divides each row of `x` by its root mean square.
        gated: computes `silu(gate) * up`.
        residual: `[rows, out]`, added and overwritten with the result.
        eps: the norm's epsilon.

    Returns:
        `[rows, out]`; `residual` if given.
    """
    rows, inputs = x.shape
    outputs = weight.shape[0] // 2 if gated else weight.shape[0]
    assert inputs % (tile.bk * tile.split) == 0, "inputs must be whole steps in each part"
    assert tile.split == 1 or not (norm or gated), "only plain sums can be split"
    out = residual
    if out is None:
        out = torch.empty((rows, outputs), dtype=x.dtype, device=x.device)
    parts = arrivals = out
    tiles = cdiv(rows, tile.bm) * cdiv(outputs, tile.bn)
    if tile.split > 1:
        parts = torch.empty((tile.split, rows, outputs), dtype=torch.float32, device=x.device)
        stream = torch.cuda.current_stream(x.device).cuda_stream if x.is_cuda else 0
        arrivals = _arrivals(x.device, stream)
        assert tiles <= arrivals.numel(), "too many tiles for the arrival counters"
    early = early_launch(x)
    _linear_kernel[(tiles, tile.split)](
        TensorDescriptor.from_tensor(x, [tile.bm, tile.bk]),
        TensorDescriptor.from_tensor(weight, [tile.bn, tile.bk]),
        weight,
        out,
        out,
        parts,
        arrivals,
        rows,
        outputs,
        eps,
        INPUTS=inputs,
        BM=tile.bm,
        BN=tile.bn,
        BK=tile.bk,
        SPLIT=tile.split,
        NORM=norm,
        GATED=gated,
        RESIDUAL=residual is not None,
        EARLY=early,
        PREFETCH=min(_PREFETCH, inputs // tile.split),
        num_warps=tile.warps,
        num_stages=tile.stages,
        launch_pdl=early,
    )
    return out
