"""One decode step's attention: head norms, rotation, cache write and paged attention together.

Each program serves one (row, key/value head): it writes the new key and value into the cache and
attends over everything the slot's length says is there, plus the new token from registers.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from voxserve.kernels.backend import cdiv, next_power_of_2, tl, triton, use_reference
from voxserve.kernels.device_math import start_next, wait_for_previous
from voxserve.kernels.early_launch import early_launch
from voxserve.kernels.kv_cache import (
    PAGE_SIZE,
    qk_norm_rope_write_reference,
    rotate_head,
)
from voxserve.kernels.rms_norm import row_scale, scale_reference

_STAGES = 2


def decode_attention_reference(
    qkv: torch.Tensor,
    q_norm: torch.Tensor | None,
    k_norm: torch.Tensor | None,
    table: torch.Tensor,
    kv_pages: torch.Tensor,
    page_table: torch.Tensor,
    lengths: torch.Tensor,
    slots: torch.Tensor,
    eps: float,
    unscaled: torch.Tensor | None = None,
) -> torch.Tensor:
    """Plain torch."""
    qkv = scale_reference(qkv, unscaled, eps)
    positions = lengths[slots.long()]
    q = qk_norm_rope_write_reference(
        qkv, q_norm, k_norm, table, kv_pages, page_table, slots, positions, eps
    )
    num_pages = cdiv(int(positions.max()) + 1, PAGE_SIZE)
    pages = kv_pages[page_table[slots.long(), :num_pages].long()]
    k, v = pages.permute(2, 0, 3, 1, 4, 5).flatten(3, 4).unbind(0)
    visible = torch.arange(k.shape[2], device=q.device) <= positions[:, None]
    # Pages beyond a row's length may hold anything, also infinities.
    v = v.masked_fill(~visible[:, None, :, None], 0.0)
    out = F.scaled_dot_product_attention(
        q[:, :, None], k, v, attn_mask=visible[:, None, None], enable_gqa=True
    )
    return out.flatten(1)


@triton.jit
def _attend(q1, q2, key1, key2, values, seen, scale, best, total, acc):
    """Adds one page of keys and values to a running softmax."""
    score = tl.dot(q1, tl.trans(key1), input_precision="ieee")
    score = tl.dot(q2, tl.trans(key2), score, input_precision="ieee") * scale
    score = tl.where(seen[None, :], score, float("-inf"))
    new_best = tl.maximum(best, tl.max(score, 1))
    weight = tl.exp(score - new_best[:, None])
    shrink = tl.exp(best - new_best)
    total = total * shrink + tl.sum(weight, 1)
    acc = tl.dot(weight.to(values.dtype), values, acc * shrink[:, None], input_precision="ieee")
    return new_best, total, acc


@triton.jit(do_not_specialize=["max_pages"])
def _decode_attention_kernel(
    qkv,
    q_norm,
    k_norm,
    table,
    kv_pages,
    page_table,
    lengths,
    slots,
    out,
    unscaled,
    max_pages,
    width,
    scale,
    eps,
    GROUP: tl.constexpr,
    KV_HEADS: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    HAS_NORM: tl.constexpr,
    HAS_UNSCALED: tl.constexpr,
    WIDTH: tl.constexpr,
    EARLY: tl.constexpr,
):
    if EARLY:
        wait_for_previous()
        start_next()
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    slot = tl.load(slots + row).to(tl.int64)
    position = tl.load(lengths + slot)
    half: tl.constexpr = D // 2
    dtype = kv_pages.dtype.element_ty
    page_stride: tl.constexpr = 2 * KV_HEADS * PAGE * D
    value_offset: tl.constexpr = KV_HEADS * PAGE * D
    m = tl.arange(0, 16)
    i = tl.arange(0, half)
    d = tl.arange(0, D)
    token = tl.arange(0, PAGE)
    q_row = qkv + row * (GROUP + 2) * KV_HEADS * D
    k_row = q_row + GROUP * KV_HEADS * D + head * D
    v_row = k_row + KV_HEADS * D
    rope_row = table + position * D
    root = row_scale(unscaled, row, width, eps, HAS_UNSCALED, WIDTH)
    k1, k2 = rotate_head(k_row, k_norm, rope_row, root, eps, HAS_NORM, half)
    k1 = k1.to(dtype)
    k2 = k2.to(dtype)
    value = (tl.load(v_row + d).to(tl.float32) * root).to(dtype)
    page = tl.load(page_table + slot * max_pages + position // PAGE).to(tl.int64)
    target = kv_pages + page * page_stride + head * PAGE * D + position % PAGE * D
    tl.store(target + i, k1)
    tl.store(target + half + i, k2)
    tl.store(target + value_offset + d, value)
    # The matrix unit wants 16 rows: the group's queries, then zeros.
    q1 = tl.zeros((16, half), tl.float32)
    q2 = tl.zeros((16, half), tl.float32)
    for g in tl.static_range(GROUP):
        q_head = q_row + (head * GROUP + g) * D
        first, second = rotate_head(q_head, q_norm, rope_row, root, eps, HAS_NORM, half)
        q1 = tl.where(m[:, None] == g, first[None, :], q1)
        q2 = tl.where(m[:, None] == g, second[None, :], q2)
    q1 = q1.to(dtype)
    q2 = q2.to(dtype)
    new_score = tl.sum(q1.to(tl.float32) * k1.to(tl.float32)[None, :], 1)
    best = (new_score + tl.sum(q2.to(tl.float32) * k2.to(tl.float32)[None, :], 1)) * scale
    total = tl.full((16,), 1.0, tl.float32)
    acc = tl.zeros((16, D), tl.float32) + value.to(tl.float32)[None, :]
    for index in range(0, tl.cdiv(position, PAGE)):
        page = tl.load(page_table + slot * max_pages + index).to(tl.int64)
        base = kv_pages + page * page_stride + head * PAGE * D + token[:, None] * D
        seen = index * PAGE + token < position
        key1 = tl.load(base + i[None, :], mask=seen[:, None], other=0.0)
        key2 = tl.load(base + half + i[None, :], mask=seen[:, None], other=0.0)
        values = tl.load(base + value_offset + d[None, :], mask=seen[:, None], other=0.0)
        best, total, acc = _attend(q1, q2, key1, key2, values, seen, scale, best, total, acc)
    acc = acc / total[:, None]
    target = out + row * GROUP * KV_HEADS * D + (head * GROUP + m[:, None]) * D + d[None, :]
    tl.store(target, acc.to(out.dtype.element_ty), mask=m[:, None] < GROUP)


def decode_attention(
    qkv: torch.Tensor,
    q_norm: torch.Tensor | None,
    k_norm: torch.Tensor | None,
    table: torch.Tensor,
    kv_pages: torch.Tensor,
    page_table: torch.Tensor,
    lengths: torch.Tensor,
    slots: torch.Tensor,
    eps: float = 1e-6,
    unscaled: torch.Tensor | None = None,
) -> torch.Tensor:
    """Appends one token per row to the cache and attends over its slot's tokens.

    The new token takes position `lengths[slot]`; the caller adds 1 to the lengths after the last
    layer. Rows are independent: a row's result does not depend on its batch.

    Args:
        qkv: `[rows, (q_heads + 2 * kv_heads) * head_dim]` contiguous.
        q_norm: `[head_dim]` per-head norm of the queries, or None.
        k_norm: the same for the keys (both or neither).
        table: `[positions, head_dim]` float32 from `rope_table`.
        kv_pages: this layer's cache, `[num_pages, 2, kv_heads, PAGE_SIZE, head_dim]`.
        page_table: `[slots, max_pages]` int32.
        lengths: `[slots]` int32, tokens in the cache before this step.
        slots: `[rows]` int32; padding rows name the scratch slot.
        eps: the norms' epsilon.
        unscaled: `[rows, in]` contiguous, if each row of `qkv` must still be divided by the root
            mean square of this row (`linear_before_norm`).

    Returns:
        `[rows, q_heads * head_dim]`.
    """
    if use_reference(qkv):
        return decode_attention_reference(
            qkv, q_norm, k_norm, table, kv_pages, page_table, lengths, slots, eps, unscaled
        )
    kv_heads, head_dim = kv_pages.shape[2], kv_pages.shape[4]
    q_heads = qkv.shape[1] // head_dim - 2 * kv_heads
    out = torch.empty((qkv.shape[0], q_heads * head_dim), dtype=qkv.dtype, device=qkv.device)
    width = unscaled.shape[1] if unscaled is not None else 1
    _decode_attention_kernel[(qkv.shape[0], kv_heads)](
        qkv,
        q_norm if q_norm is not None else table,
        k_norm if k_norm is not None else table,
        table,
        kv_pages,
        page_table,
        lengths,
        slots,
        out,
        unscaled if unscaled is not None else qkv,
        page_table.shape[1],
        width,
        head_dim**-0.5,
        eps,
        GROUP=q_heads // kv_heads,
        KV_HEADS=kv_heads,
        D=head_dim,
        PAGE=PAGE_SIZE,
        HAS_NORM=q_norm is not None,
        HAS_UNSCALED=unscaled is not None,
        WIDTH=next_power_of_2(width),
        EARLY=early_launch(qkv),
        launch_pdl=early_launch(qkv),
        # Many programs hide each other's waits; few are faster with two warps each.
        num_warps=1 if qkv.shape[0] >= 192 else 2,
        num_stages=_STAGES,
    )
    return out
