"""The paged key/value cache's layout and the op that fills it during prefill.

One layer's cache is `kv_pages [num_pages, 2, kv_heads, PAGE_SIZE, head_dim]` (keys at 0, values
at 1). `page_table [slots, max_pages] int32` gives the pages of a slot in order. Lengths and
tables are read on the device, so a captured graph serves any mixture of requests.
"""

from __future__ import annotations

import torch

from voxserve.kernels.backend import next_power_of_2, tl, triton, use_reference
from voxserve.kernels.rms_norm import row_scale, scale_reference
from voxserve.kernels.rope import norm_rope_reference

PAGE_SIZE = 64


def split_heads(
    qkv: torch.Tensor, kv_heads: int, head_dim: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Views `[n, (q_heads + 2 * kv_heads) * head_dim]` as query, key and value heads."""
    q_width = qkv.shape[-1] - 2 * kv_heads * head_dim
    sizes = (q_width, kv_heads * head_dim, kv_heads * head_dim)
    q, k, v = qkv.split(sizes, -1)
    return (
        q.unflatten(-1, (-1, head_dim)),
        k.unflatten(-1, (-1, head_dim)),
        v.unflatten(-1, (-1, head_dim)),
    )


def write_kv_reference(
    k: torch.Tensor,
    v: torch.Tensor,
    kv_pages: torch.Tensor,
    page_table: torch.Tensor,
    slots: torch.Tensor,
    positions: torch.Tensor,
) -> None:
    """Stores keys and values `[n, kv_heads, head_dim]` at their slots' positions."""
    pages = page_table[slots.long(), (positions // PAGE_SIZE).long()].long()
    offsets = (positions % PAGE_SIZE).long()
    kv_pages[pages, 0, :, offsets] = k
    kv_pages[pages, 1, :, offsets] = v


def qk_norm_rope_write_reference(
    qkv: torch.Tensor,
    q_norm: torch.Tensor | None,
    k_norm: torch.Tensor | None,
    table: torch.Tensor,
    kv_pages: torch.Tensor,
    page_table: torch.Tensor,
    slots: torch.Tensor,
    positions: torch.Tensor,
    eps: float,
    unscaled: torch.Tensor | None = None,
) -> torch.Tensor:
    """Plain torch."""
    qkv = scale_reference(qkv, unscaled, eps)
    kv_heads, head_dim = kv_pages.shape[2], kv_pages.shape[4]
    q, k, v = split_heads(qkv, kv_heads, head_dim)
    k = norm_rope_reference(k, k_norm, table, positions, eps)
    write_kv_reference(k, v, kv_pages, page_table, slots, positions)
    return norm_rope_reference(q, q_norm, table, positions, eps)


@triton.jit
def rotate_heads(
    base,
    norm,
    table_row,
    num_heads,
    scale,
    eps,
    HAS_NORM: tl.constexpr,
    HEADS: tl.constexpr,
    HALF: tl.constexpr,
):
    """Loads `[num_heads, 2 * HALF]` at `base`, scales, normalises, rotates; returns both halves."""
    heads = tl.arange(0, HEADS)[:, None]
    i = tl.arange(0, HALF)
    mask = heads < num_heads
    first = (
        tl.load(base + heads * 2 * HALF + i[None, :], mask=mask, other=0.0).to(tl.float32) * scale
    )
    second = tl.load(base + heads * 2 * HALF + HALF + i[None, :], mask=mask, other=0.0)
    second = second.to(tl.float32) * scale
    if HAS_NORM:
        square = tl.sum(first * first, 1) + tl.sum(second * second, 1)
        root = tl.rsqrt(square / (2 * HALF) + eps)[:, None]
        first = first * root * tl.load(norm + i).to(tl.float32)[None, :]
        second = second * root * tl.load(norm + HALF + i).to(tl.float32)[None, :]
    cos = tl.load(table_row + i)[None, :]
    sin = tl.load(table_row + HALF + i)[None, :]
    return first * cos - second * sin, second * cos + first * sin


@triton.jit
def rotate_head(base, norm, table_row, scale, eps, HAS_NORM: tl.constexpr, HALF: tl.constexpr):
    """`rotate_heads` of a single head; returns two vectors."""
    i = tl.arange(0, HALF)
    first = tl.load(base + i).to(tl.float32) * scale
    second = tl.load(base + HALF + i).to(tl.float32) * scale
    if HAS_NORM:
        square = tl.sum(first * first + second * second, 0)
        root = tl.rsqrt(square / (2 * HALF) + eps)
        first = first * root * tl.load(norm + i).to(tl.float32)
        second = second * root * tl.load(norm + HALF + i).to(tl.float32)
    cos = tl.load(table_row + i)
    sin = tl.load(table_row + HALF + i)
    return first * cos - second * sin, second * cos + first * sin


@triton.jit(do_not_specialize=["max_pages"])
def _qk_norm_rope_write_kernel(
    qkv,
    q_out,
    q_norm,
    k_norm,
    table,
    kv_pages,
    page_table,
    slots,
    positions,
    unscaled,
    max_pages,
    width,
    Q_HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    Q_BLOCK: tl.constexpr,
    KV_BLOCK: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    HAS_NORM: tl.constexpr,
    HAS_UNSCALED: tl.constexpr,
    WIDTH: tl.constexpr,
    eps,
):
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + token).to(tl.int64)
    position = tl.load(positions + token)
    page = tl.load(page_table + slot * max_pages + position // PAGE).to(tl.int64)
    half: tl.constexpr = D // 2
    i = tl.arange(0, half)[None, :]
    row = qkv + token * (Q_HEADS + 2 * KV_HEADS) * D
    rope_row = table + position * D
    root = row_scale(unscaled, token, width, eps, HAS_UNSCALED, WIDTH)
    q1, q2 = rotate_heads(row, q_norm, rope_row, Q_HEADS, root, eps, HAS_NORM, Q_BLOCK, half)
    heads = tl.arange(0, Q_BLOCK)[:, None]
    q_row = q_out + token * Q_HEADS * D + heads * D + i
    tl.store(q_row, q1.to(q_out.dtype.element_ty), mask=heads < Q_HEADS)
    tl.store(q_row + half, q2.to(q_out.dtype.element_ty), mask=heads < Q_HEADS)
    row += Q_HEADS * D
    k1, k2 = rotate_heads(row, k_norm, rope_row, KV_HEADS, root, eps, HAS_NORM, KV_BLOCK, half)
    heads = tl.arange(0, KV_BLOCK)[:, None]
    mask = heads < KV_HEADS
    target = kv_pages + page * 2 * KV_HEADS * PAGE * D + heads * PAGE * D + position % PAGE * D + i
    tl.store(target, k1.to(kv_pages.dtype.element_ty), mask=mask)
    tl.store(target + half, k2.to(kv_pages.dtype.element_ty), mask=mask)
    row += KV_HEADS * D
    target += KV_HEADS * PAGE * D
    v1 = tl.load(row + heads * D + i, mask=mask).to(tl.float32) * root
    v2 = tl.load(row + heads * D + half + i, mask=mask).to(tl.float32) * root
    tl.store(target, v1.to(kv_pages.dtype.element_ty), mask=mask)
    tl.store(target + half, v2.to(kv_pages.dtype.element_ty), mask=mask)


def qk_norm_rope_write(
    qkv: torch.Tensor,
    q_norm: torch.Tensor | None,
    k_norm: torch.Tensor | None,
    table: torch.Tensor,
    kv_pages: torch.Tensor,
    page_table: torch.Tensor,
    slots: torch.Tensor,
    positions: torch.Tensor,
    eps: float = 1e-6,
    unscaled: torch.Tensor | None = None,
) -> torch.Tensor:
    """Normalises and rotates queries and keys and writes keys and values into their pages.

    Args:
        qkv: `[tokens, (q_heads + 2 * kv_heads) * head_dim]` contiguous.
        q_norm: `[head_dim]` per-head norm of the queries, or None.
        k_norm: the same for the keys (both or neither).
        table: `[positions, head_dim]` float32 from `rope_table`.
        kv_pages: this layer's cache, `[num_pages, 2, kv_heads, PAGE_SIZE, head_dim]`.
        page_table: `[slots, max_pages]` int32.
        slots: `[tokens]` int32; padding tokens name the scratch slot.
        positions: `[tokens]` int32, place of each token in its request.
        eps: the norms' epsilon.
        unscaled: `[tokens, in]` contiguous, if each row of `qkv` must still be divided by the
            root mean square of this row (`linear_before_norm`).

    Returns:
        Queries `[tokens, q_heads, head_dim]`.
    """
    if use_reference(qkv):
        return qk_norm_rope_write_reference(
            *(qkv, q_norm, k_norm, table, kv_pages, page_table, slots, positions, eps, unscaled)
        )
    kv_heads, head_dim = kv_pages.shape[2], kv_pages.shape[4]
    q_heads = qkv.shape[1] // head_dim - 2 * kv_heads
    q = torch.empty((qkv.shape[0], q_heads, head_dim), dtype=qkv.dtype, device=qkv.device)
    width = unscaled.shape[1] if unscaled is not None else 1
    _qk_norm_rope_write_kernel[(qkv.shape[0],)](
        qkv,
        q,
        q_norm if q_norm is not None else table,
        k_norm if k_norm is not None else table,
        table,
        kv_pages,
        page_table,
        slots,
        positions,
        unscaled if unscaled is not None else qkv,
        page_table.shape[1],
        width,
        Q_HEADS=q_heads,
        KV_HEADS=kv_heads,
        Q_BLOCK=next_power_of_2(q_heads),
        KV_BLOCK=next_power_of_2(kv_heads),
        D=head_dim,
        PAGE=PAGE_SIZE,
        HAS_NORM=q_norm is not None,
        HAS_UNSCALED=unscaled is not None,
        WIDTH=next_power_of_2(width),
        eps=eps,
        num_warps=4,
    )
    return q
