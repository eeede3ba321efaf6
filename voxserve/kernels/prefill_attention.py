"""Causal attention of packed prompts over their own cached keys and values."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from voxserve.kernels.backend import cdiv, next_power_of_2, tl, triton, use_reference
from voxserve.kernels.kv_cache import PAGE_SIZE

_WARPS = 4
_STAGES = 2


def prefill_attention_reference(
    q: torch.Tensor,
    kv_pages: torch.Tensor,
    page_table: torch.Tensor,
    slots: torch.Tensor,
    positions: torch.Tensor,
) -> torch.Tensor:
    """Plain torch: one attention call per distinct slot."""
    out = torch.zeros_like(q)
    for slot in slots.unique().tolist():
        rows = (slots == slot).nonzero().flatten()
        where = positions[rows]
        num_pages = cdiv(int(where.max()) + 1, PAGE_SIZE)
        pages = kv_pages[page_table[slot, :num_pages].long()]
        k, v = pages.permute(1, 2, 0, 3, 4).flatten(2, 3).unbind(0)
        visible = torch.arange(k.shape[1], device=q.device) <= where[:, None]
        v = v.masked_fill(~visible.any(0)[None, :, None], 0.0)
        part = F.scaled_dot_product_attention(
            q[rows].transpose(0, 1)[None], k[None], v[None], visible[None, None], enable_gqa=True
        )
        out[rows] = part[0].transpose(0, 1)
    return out.flatten(1)


@triton.jit(do_not_specialize=["num_tokens", "max_pages"])
def _prefill_attention_kernel(
    q,
    kv_pages,
    page_table,
    slots,
    positions,
    out,
    num_tokens,
    max_pages,
    scale,
    GROUP: tl.constexpr,
    KV_HEADS: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    TOKENS: tl.constexpr,
):
    # One program: TOKENS packed tokens times the GROUP query heads of one key/value head. Tokens
    # of a tile may belong to several prompts; each distinct slot is visited in turn.
    head = tl.program_id(1)
    rows: tl.constexpr = TOKENS * GROUP
    m = tl.arange(0, rows)
    token = tl.program_id(0) * TOKENS + m // GROUP
    real = token < num_tokens
    d = tl.arange(0, D)
    key_index = tl.arange(0, PAGE)
    slot = tl.load(slots + token, mask=real, other=-1)
    position = tl.load(positions + token, mask=real, other=-1)
    offset = (token.to(tl.int64) * KV_HEADS * GROUP + head * GROUP + m % GROUP) * D
    query = tl.load(q + offset[:, None] + d[None, :], mask=real[:, None], other=0.0)
    dtype = kv_pages.dtype.element_ty
    page_stride: tl.constexpr = 2 * KV_HEADS * PAGE * D
    acc = tl.zeros((rows, D), tl.float32)
    best = tl.full((rows,), -1.0e30, tl.float32)
    total = tl.zeros((rows,), tl.float32)
    current = tl.min(tl.where(real, slot, 2147483647), 0)
    while current < 2147483647:
        mine = slot == current
        last = tl.max(tl.where(mine, position, -1), 0)
        for index in range(0, last // PAGE + 1):
            page = tl.load(page_table + current.to(tl.int64) * max_pages + index).to(tl.int64)
            base = kv_pages + page * page_stride + head * PAGE * D + key_index[:, None] * D
            where = index * PAGE + key_index
            filled = where <= last
            keys = tl.load(base + d[None, :], mask=filled[:, None], other=0.0)
            values = tl.load(
                base + KV_HEADS * PAGE * D + d[None, :], mask=filled[:, None], other=0.0
            )
            score = tl.dot(query, tl.trans(keys), input_precision="ieee") * scale
            visible = mine[:, None] & (where[None, :] <= position[:, None])
            score = tl.where(visible, score, -1.0e30)
            new_best = tl.maximum(best, tl.max(score, 1))
            weight = tl.where(visible, tl.exp(score - new_best[:, None]), 0.0)
            shrink = tl.exp(best - new_best)
            total = total * shrink + tl.sum(weight, 1)
            acc = tl.dot(weight.to(dtype), values, acc * shrink[:, None], input_precision="ieee")
            best = new_best
        current = tl.min(tl.where(real & (slot > current), slot, 2147483647), 0)
    acc = acc / tl.maximum(total, 1.0e-30)[:, None]
    tl.store(out + offset[:, None] + d[None, :], acc.to(out.dtype.element_ty), mask=real[:, None])


def prefill_attention(
    q: torch.Tensor,
    kv_pages: torch.Tensor,
    page_table: torch.Tensor,
    slots: torch.Tensor,
    positions: torch.Tensor,
) -> torch.Tensor:
    """Attends each packed prompt token to its own slot's cached tokens up to itself.

    Keys and values must be in the cache already (`qk_norm_rope_write`), those of earlier parts
    of the same prompt included.

    Args:
        q: `[tokens, q_heads, head_dim]` contiguous, normalised and rotated.
        kv_pages: this layer's cache, `[num_pages, 2, kv_heads, PAGE_SIZE, head_dim]`.
        page_table: `[slots, max_pages]` int32.
        slots: `[tokens]` int32; padding tokens name the scratch slot.
        positions: `[tokens]` int32.

    Returns:
        `[tokens, q_heads * head_dim]`.
    """
    if use_reference(q):
        return prefill_attention_reference(q, kv_pages, page_table, slots, positions)
    num_tokens, q_heads, head_dim = q.shape
    kv_heads = kv_pages.shape[2]
    group = q_heads // kv_heads
    assert group == next_power_of_2(group), "query heads per key/value head: a power of two"
    out = torch.empty((num_tokens, q_heads * head_dim), dtype=q.dtype, device=q.device)
    tokens = max(32 // group, 1)
    _prefill_attention_kernel[(cdiv(num_tokens, tokens), kv_heads)](
        q,
        kv_pages,
        page_table,
        slots,
        positions,
        out,
        num_tokens,
        page_table.shape[1],
        head_dim**-0.5,
        GROUP=group,
        KV_HEADS=kv_heads,
        D=head_dim,
        PAGE=PAGE_SIZE,
        TOKENS=tokens,
        num_warps=_WARPS,
        num_stages=_STAGES,
    )
    return out
