"""Sums one table row per codebook: frame embeddings of the backbone and of the codec."""

from __future__ import annotations

import torch

from voxserve.kernels.backend import cdiv, tl, triton, use_reference
from voxserve.kernels.device_math import start_next, wait_for_previous
from voxserve.kernels.early_launch import early_launch


def embedding_sum_reference(
    ids: torch.Tensor, tables: torch.Tensor, extra: torch.Tensor | None = None
) -> torch.Tensor:
    """Plain torch, summed in at least float32 in codebook order; returns `[..., d]`."""
    wide = torch.promote_types(tables.dtype, torch.float32)
    total = torch.zeros((*ids.shape[:-1], tables.shape[-1]), dtype=wide, device=tables.device)
    for codebook in range(ids.shape[-1]):
        total += tables[codebook][ids[..., codebook].long()].to(wide)
    if extra is not None:
        total += extra.to(wide)
    return total.to(tables.dtype)


@triton.jit(do_not_specialize=["frames"])
def _embedding_sum_kernel(
    ids,
    tables,
    extra,
    out,
    frames,
    vocab,
    d,
    ids_stride,
    out_stride,
    CODEBOOKS: tl.constexpr,
    HAS_EXTRA: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):
    if EARLY:
        wait_for_previous()
        start_next()
    token = tl.program_id(0)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = i < d
    total = tl.zeros((BLOCK,), tl.float32)
    for codebook in tl.static_range(CODEBOOKS):
        code = tl.load(ids + token.to(tl.int64) * ids_stride + codebook)
        row = (codebook * vocab + code).to(tl.int64) * d
        total += tl.load(tables + row + i, mask=mask, other=0.0).to(tl.float32)
    if HAS_EXTRA:
        total += tl.load(extra + token.to(tl.int64) * d + i, mask=mask, other=0.0).to(tl.float32)
    target = out + (token // frames).to(tl.int64) * out_stride + (token % frames) * d + i
    tl.store(target, total.to(out.dtype.element_ty), mask=mask)


def embedding_sum(
    ids: torch.Tensor,
    tables: torch.Tensor,
    *,
    extra: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Returns the sum over codebooks of `tables[codebook, id]`, plus `extra`.

    Args:
        ids: `[rows, codebooks]` or `[rows, frames, codebooks]` int32, last axis contiguous and
            frames dense.
        tables: `[codebooks, vocab, d]` contiguous.
        extra: one more row per token, `[rows, d]` or `[rows, frames, d]`, or None.
        out: where to put the result, e.g. the part of a padded buffer behind its history
            (`[rows, frames, d]` whose rows may be strided); new if None.

    Returns:
        `[rows, d]` or `[rows, frames, d]`.
    """
    codebooks, vocab, d = tables.shape
    assert ids.shape[-1] == codebooks, "one id per codebook"
    if out is None:
        out = torch.empty((*ids.shape[:-1], d), dtype=tables.dtype, device=tables.device)
    if use_reference(tables):
        return out.copy_(embedding_sum_reference(ids, tables, extra))
    tokens = ids.shape[:-1].numel()
    frames = ids.shape[1] if ids.dim() == 3 else 1
    if ids.dim() == 3 and ids.stride(0) != frames * ids.stride(1):
        ids = ids.contiguous()
    block = min(1024, triton.next_power_of_2(d))
    _embedding_sum_kernel[(tokens, cdiv(d, block))](
        ids,
        tables,
        extra.contiguous() if extra is not None else tables,
        out,
        frames,
        vocab,
        d,
        ids.stride(-2),
        out.stride(0),
        CODEBOOKS=codebooks,
        HAS_EXTRA=extra is not None,
        BLOCK=block,
        EARLY=early_launch(tables),
        launch_pdl=early_launch(tables),
        num_warps=4,
    )
    return out
