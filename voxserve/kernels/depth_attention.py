"""Attention of the depth transformer: a few positions, its cache cleared each frame."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from voxserve.kernels.backend import next_power_of_2, tl, triton, use_reference
from voxserve.kernels.device_math import start_next, wait_for_previous
from voxserve.kernels.early_launch import early_launch
from voxserve.kernels.kv_cache import rotate_heads, split_heads
from voxserve.kernels.rope import norm_rope_reference

_WARPS = 1


def depth_attention_reference(
    qkv: torch.Tensor,
    q_norm: torch.Tensor | None,
    k_norm: torch.Tensor | None,
    table: torch.Tensor,
    cache: torch.Tensor,
    position: int,
    eps: float,
) -> torch.Tensor:
    """Plain torch."""
    kv_heads, head_dim = cache.shape[2], cache.shape[4]
    q, k, v = split_heads(qkv, kv_heads, head_dim)
    positions = torch.full((qkv.shape[0],), position, device=qkv.device)
    cache[:, 0, :, position] = norm_rope_reference(k, k_norm, table, positions, eps)
    cache[:, 1, :, position] = v
    q = norm_rope_reference(q, q_norm, table, positions, eps)
    keys, values = cache[:, :, :, : position + 1].unbind(1)
    out = F.scaled_dot_product_attention(q[:, :, None], keys, values, enable_gqa=True)
    return out.flatten(1)


@triton.jit(do_not_specialize=["position"])
def _depth_attention_kernel(
    qkv,
    q_norm,
    k_norm,
    table,
    cache,
    out,
    qkv_stride,
    out_stride,
    position,
    scale,
    eps,
    LENGTH: tl.constexpr,
    CAPACITY: tl.constexpr,
    GROUP: tl.constexpr,
    KV_HEADS: tl.constexpr,
    D: tl.constexpr,
    HAS_NORM: tl.constexpr,
    EARLY: tl.constexpr,
):
    if EARLY:
        wait_for_previous()
        start_next()
    # GROUP queries against LENGTH >= position cached keys, all in registers: no matrix unit.
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    half: tl.constexpr = D // 2
    dtype = cache.dtype.element_ty
    i = tl.arange(0, half)
    d = tl.arange(0, D)
    q_row = qkv + row * qkv_stride
    k_row = q_row + GROUP * KV_HEADS * D + head * D
    rope_row = table + position * D
    k1, k2 = rotate_heads(k_row, k_norm, rope_row, 1, eps, HAS_NORM, 1, half)
    k1 = k1.to(dtype)
    k2 = k2.to(dtype)
    value = tl.load(k_row + KV_HEADS * D + d)
    base = cache + (row * 2 * KV_HEADS + head) * CAPACITY * D
    tl.store(base + position * D + i[None, :], k1)
    tl.store(base + position * D + half + i[None, :], k2)
    tl.store(base + KV_HEADS * CAPACITY * D + position * D + d, value)
    q1, q2 = rotate_heads(
        q_row + head * GROUP * D, q_norm, rope_row, GROUP, eps, HAS_NORM, GROUP, half
    )
    q1 = q1.to(dtype).to(tl.float32)
    q2 = q2.to(dtype).to(tl.float32)
    new_score = tl.sum(q1 * k1.to(tl.float32), 1) + tl.sum(q2 * k2.to(tl.float32), 1)
    new_score = new_score * scale
    token = tl.arange(0, LENGTH)
    old = token < position
    keys = base + token[:, None] * D
    key1 = tl.load(keys + i[None, :], mask=old[:, None], other=0.0).to(tl.float32)
    key2 = tl.load(keys + half + i[None, :], mask=old[:, None], other=0.0).to(tl.float32)
    values = tl.load(keys + KV_HEADS * CAPACITY * D + d[None, :], mask=old[:, None], other=0.0)
    score = tl.sum(q1[:, None, :] * key1[None, :, :], 2)
    score = (score + tl.sum(q2[:, None, :] * key2[None, :, :], 2)) * scale
    score = tl.where(old[None, :], score, float("-inf"))
    best = tl.maximum(new_score, tl.max(score, 1))
    weight = tl.exp(score - best[:, None])
    new_weight = tl.exp(new_score - best)
    total = new_weight + tl.sum(weight, 1)
    acc = tl.sum(weight[:, :, None] * values.to(tl.float32)[None, :, :], 1)
    acc = (acc + new_weight[:, None] * value.to(tl.float32)[None, :]) / total[:, None]
    group = tl.arange(0, GROUP)
    target = out + row * out_stride + (head * GROUP + group[:, None]) * D + d[None, :]
    tl.store(target, acc.to(out.dtype.element_ty))


def depth_attention(
    qkv: torch.Tensor,
    q_norm: torch.Tensor | None,
    k_norm: torch.Tensor | None,
    table: torch.Tensor,
    cache: torch.Tensor,
    position: int,
    eps: float = 1e-6,
) -> torch.Tensor:
    """Writes one token per row at `position` of a dense cache and attends over `0 .. position`.

    Args:
        qkv: `[rows, (q_heads + 2 * kv_heads) * head_dim]`; rows may be strided.
        q_norm: `[head_dim]` per-head norm of the queries, or None.
        k_norm: the same for the keys (both or neither).
        table: `[positions, head_dim]` float32 from `rope_table`.
        cache: this layer's scratch, `[rows, 2, kv_heads, capacity, head_dim]` contiguous.
        position: the same for all rows, below `capacity`.
        eps: the norms' epsilon.

    Returns:
        `[rows, q_heads * head_dim]`.
    """
    assert position < cache.shape[3], "position beyond the depth cache's capacity"
    if use_reference(qkv):
        return depth_attention_reference(qkv, q_norm, k_norm, table, cache, position, eps)
    kv_heads, capacity, head_dim = cache.shape[2:]
    q_heads = qkv.shape[1] // head_dim - 2 * kv_heads
    group = q_heads // kv_heads
    assert group == next_power_of_2(group), "query heads per key/value head: a power of two"
    rows = qkv.shape[0]
    out = torch.empty((rows, q_heads * head_dim), dtype=qkv.dtype, device=qkv.device)
    _depth_attention_kernel[(rows, kv_heads)](
        qkv,
        q_norm if q_norm is not None else table,
        k_norm if k_norm is not None else table,
        table,
        cache,
        out,
        qkv.stride(0),
        out.stride(0),
        position,
        head_dim**-0.5,
        eps,
        LENGTH=next_power_of_2(max(position, 1)),
        CAPACITY=capacity,
        GROUP=group,
        KV_HEADS=kv_heads,
        D=head_dim,
        HAS_NORM=q_norm is not None,
        EARLY=early_launch(qkv),
        launch_pdl=early_launch(qkv),
        num_warps=_WARPS,
    )
    return out
