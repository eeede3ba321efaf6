"""Attention of the depth transformer: a few positions, its cache cleared each frame."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from voxserve.kernels.backend import next_power_of_2, tl, triton, use_reference
from voxserve.kernels.device_math import start_next, wait_for_previous
from voxserve.kernels.early_launch import early_launch
from voxserve.kernels.kv_cache import rotate_head, split_heads
from voxserve.kernels.rms_norm import row_scale, scale_reference
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
    unscaled: torch.Tensor | None = None,
) -> torch.Tensor:
    """Plain torch."""
    qkv = scale_reference(qkv, unscaled, eps)
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
    unscaled,
    out,
    qkv_stride,
    unscaled_stride,
    out_stride,
    position,
    width,
    scale,
    eps,
    LENGTH: tl.constexpr,
    CAPACITY: tl.constexpr,
    GROUP: tl.constexpr,
    KV_HEADS: tl.constexpr,
    D: tl.constexpr,
    HAS_NORM: tl.constexpr,
    HAS_UNSCALED: tl.constexpr,
    WIDTH: tl.constexpr,
    EARLY: tl.constexpr,
):
    # Few queries and keys: plain arithmetic in registers beats a padded matrix product.
    if EARLY:
        wait_for_previous()
        start_next()
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    half: tl.constexpr = D // 2
    dtype = cache.dtype.element_ty
    i = tl.arange(0, half)
    d = tl.arange(0, D)
    q_row = qkv + row * qkv_stride
    k_row = q_row + GROUP * KV_HEADS * D + head * D
    rope_row = table + position * D
    token = tl.arange(0, LENGTH)
    old = (token < position)[:, None]
    base = cache + (row * 2 * KV_HEADS + head) * CAPACITY * D
    keys = base + token[:, None] * D
    key1 = tl.load(keys + i[None, :], mask=old, other=0.0).to(tl.float32)
    key2 = tl.load(keys + half + i[None, :], mask=old, other=0.0).to(tl.float32)
    values = tl.load(keys + KV_HEADS * CAPACITY * D + d[None, :], mask=old, other=0.0)
    values = values.to(tl.float32)
    root = row_scale(unscaled + row * unscaled_stride, 0, width, eps, HAS_UNSCALED, WIDTH)
    k1, k2 = rotate_head(k_row, k_norm, rope_row, root, eps, HAS_NORM, half)
    k1 = k1.to(dtype)
    k2 = k2.to(dtype)
    value = (tl.load(k_row + KV_HEADS * D + d).to(tl.float32) * root).to(dtype)
    tl.store(base + position * D + i, k1)
    tl.store(base + position * D + half + i, k2)
    tl.store(base + KV_HEADS * CAPACITY * D + position * D + d, value)
    k1 = k1.to(tl.float32)
    k2 = k2.to(tl.float32)
    value = value.to(tl.float32)
    for g in tl.static_range(GROUP):
        q_head = q_row + (head * GROUP + g) * D
        q1, q2 = rotate_head(q_head, q_norm, rope_row, root, eps, HAS_NORM, half)
        q1 = q1.to(dtype).to(tl.float32)
        q2 = q2.to(dtype).to(tl.float32)
        new_score = tl.sum(q1 * k1 + q2 * k2, 0) * scale
        score = tl.sum(key1 * q1[None, :] + key2 * q2[None, :], 1) * scale
        score = tl.where(token < position, score, float("-inf"))
        best = tl.maximum(new_score, tl.max(score, 0))
        weight = tl.exp(score - best)
        new_weight = tl.exp(new_score - best)
        total = new_weight + tl.sum(weight, 0)
        acc = tl.sum(weight[:, None] * values, 0) + new_weight * value
        target = out + row * out_stride + (head * GROUP + g) * D + d
        tl.store(target, (acc / total).to(out.dtype.element_ty))


def depth_attention(
    qkv: torch.Tensor,
    q_norm: torch.Tensor | None,
    k_norm: torch.Tensor | None,
    table: torch.Tensor,
    cache: torch.Tensor,
    position: int,
    eps: float = 1e-6,
    unscaled: torch.Tensor | None = None,
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
        unscaled: `[rows, in]`, rows may be strided, if each row of `qkv` must still be divided by
            the root mean square of this row (`linear_before_norm`).

    Returns:
        `[rows, q_heads * head_dim]`.
    """
    assert position < cache.shape[3], "position beyond the depth cache's capacity"
    if use_reference(qkv):
        return depth_attention_reference(qkv, q_norm, k_norm, table, cache, position, eps, unscaled)
    kv_heads, capacity, head_dim = cache.shape[2:]
    q_heads = qkv.shape[1] // head_dim - 2 * kv_heads
    group = q_heads // kv_heads
    rows = qkv.shape[0]
    out = torch.empty((rows, q_heads * head_dim), dtype=qkv.dtype, device=qkv.device)
    width = unscaled.shape[1] if unscaled is not None else 1
    _depth_attention_kernel[(rows, kv_heads)](
        qkv,
        q_norm if q_norm is not None else table,
        k_norm if k_norm is not None else table,
        table,
        cache,
        unscaled if unscaled is not None else qkv,
        out,
        qkv.stride(0),
        unscaled.stride(0) if unscaled is not None else 0,
        out.stride(0),
        position,
        width,
        head_dim**-0.5,
        eps,
        LENGTH=next_power_of_2(max(position, 1)),
        CAPACITY=capacity,
        GROUP=group,
        KV_HEADS=kv_heads,
        D=head_dim,
        HAS_NORM=q_norm is not None,
        HAS_UNSCALED=unscaled is not None,
        WIDTH=next_power_of_2(width),
        EARLY=early_launch(qkv),
        launch_pdl=early_launch(qkv),
        num_warps=_WARPS,
    )
    return out
