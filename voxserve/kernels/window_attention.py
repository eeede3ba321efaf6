"""Sliding-window attention of a streaming codec over a ring of cached keys and values.

Position `p` of a slot lives at ring place `p % ring`. A chunk's own keys are used from registers
and written to the ring for the next chunk; `ring >= window - 1 + frames`, so nothing a query may
still see is overwritten, and rows written beyond a chunk's valid length are overwritten by the
next chunk before anything sees them.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from voxserve.kernels.backend import next_power_of_2, tl, triton, use_reference
from voxserve.kernels.device_math import start_next, wait_for_previous
from voxserve.kernels.early_launch import early_launch
from voxserve.kernels.kv_cache import split_heads
from voxserve.kernels.rms_norm import scale_reference
from voxserve.kernels.rope import norm_rope_reference

_WARPS = 4


def _ring_positions(positions: torch.Tensor, ring: int) -> torch.Tensor:
    """The newest position before `positions [rows]` at each ring place; negative where none."""
    last = (positions - 1)[:, None]
    return last - (last - torch.arange(ring, device=positions.device)) % ring


def window_attention_reference(
    qkv: torch.Tensor,
    table: torch.Tensor,
    cache: torch.Tensor,
    slots: torch.Tensor,
    positions: torch.Tensor,
    window: int,
    unscaled: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """Plain torch."""
    qkv = scale_reference(qkv, unscaled, eps)
    rows, frames, _ = qkv.shape
    _, _, num_heads, ring, head_dim = cache.shape
    slots = slots.long()
    start = positions[slots]
    where = start[:, None] + torch.arange(frames, device=qkv.device)
    q, k, v = split_heads(qkv.flatten(0, 1), num_heads, head_dim)
    q = norm_rope_reference(q, None, table, where.flatten(), 0.0).view(rows, frames, num_heads, -1)
    k = norm_rope_reference(k, None, table, where.flatten(), 0.0).view(rows, frames, num_heads, -1)
    v = v.reshape(rows, frames, num_heads, -1)
    old_where = _ring_positions(start, ring)
    old_k, old_v = cache[slots].unbind(1)
    all_where = torch.cat((old_where, where), 1)
    keys = torch.cat((old_k, k.transpose(1, 2)), 2)
    values = torch.cat((old_v, v.transpose(1, 2)), 2)
    distance = where[:, :, None] - all_where[:, None]
    visible = (all_where >= 0)[:, None] & (distance >= 0) & (distance < window)
    out = F.scaled_dot_product_attention(
        q.transpose(1, 2), keys, values, attn_mask=visible[:, None]
    )
    places = (where % ring).long()
    cache[slots[:, None], 0, :, places] = k
    cache[slots[:, None], 1, :, places] = v
    return out.transpose(1, 2).flatten(2)


@triton.jit
def _rotate_rows(base, table_rows, row_stride, scale, mask, HALF: tl.constexpr):
    i = tl.arange(0, HALF)[None, :]
    first = tl.load(base + row_stride + i, mask=mask, other=0.0).to(tl.float32) * scale
    second = tl.load(base + row_stride + HALF + i, mask=mask, other=0.0).to(tl.float32) * scale
    cos = tl.load(table_rows + i, mask=mask, other=0.0)
    sin = tl.load(table_rows + HALF + i, mask=mask, other=0.0)
    return first * cos - second * sin, second * cos + first * sin


@triton.jit(do_not_specialize=["frames"])
def _window_attention_kernel(
    qkv,
    table,
    cache,
    slots,
    positions,
    out,
    unscaled,
    frames,
    window,
    ring,
    width,
    scale,
    eps,
    HEADS: tl.constexpr,
    D: tl.constexpr,
    RING_BLOCK: tl.constexpr,
    FRAMES_BLOCK: tl.constexpr,
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
    start = tl.load(positions + slot)
    half: tl.constexpr = D // 2
    dtype = cache.dtype.element_ty
    t = tl.arange(0, FRAMES_BLOCK)
    i = tl.arange(0, half)[None, :]
    d = tl.arange(0, D)[None, :]
    place = tl.arange(0, RING_BLOCK)
    real = (t < frames)[:, None]
    where = start + t
    base = qkv + row * frames * 3 * HEADS * D + head * D
    step = t[:, None] * 3 * HEADS * D
    rope_rows = table + where[:, None] * D
    root = tl.full((FRAMES_BLOCK, 1), 1.0, tl.float32)
    if HAS_UNSCALED:
        w = tl.arange(0, WIDTH)[None, :]
        x = unscaled + (row * frames + t)[:, None] * width + w
        x = tl.load(x, mask=real & (w < width), other=0.0).to(tl.float32)
        root = tl.rsqrt(tl.sum(x * x, 1) / width + eps)[:, None]
    q1, q2 = _rotate_rows(base, rope_rows, step, root, real, half)
    k1, k2 = _rotate_rows(base + HEADS * D, rope_rows, step, root, real, half)
    value = tl.load(base + 2 * HEADS * D + step + d, mask=real, other=0.0)
    value = (value.to(tl.float32) * root).to(dtype)
    q1 = q1.to(dtype)
    q2 = q2.to(dtype)
    k1 = k1.to(dtype)
    k2 = k2.to(dtype)
    new_score = tl.dot(q1, tl.trans(k1), input_precision="ieee")
    new_score = tl.dot(q2, tl.trans(k2), new_score, input_precision="ieee") * scale
    distance = t[:, None] - t[None, :]
    visible = (distance >= 0) & (distance < window)
    new_score = tl.where(visible, new_score, float("-inf"))
    # The newest position before `start` that lives at each ring place.
    behind = (start - 1 - place + ring) % ring
    old_where = start - 1 - behind
    held = (place < ring) & (old_where >= 0) & (start > 0) & (old_where > start - window)
    old = cache + (slot * 2 * HEADS + head) * ring * D
    keys = old + place[:, None] * D
    old_k1 = tl.load(keys + i, mask=held[:, None], other=0.0)
    old_k2 = tl.load(keys + half + i, mask=held[:, None], other=0.0)
    old_values = tl.load(keys + HEADS * ring * D + d, mask=held[:, None], other=0.0)
    old_score = tl.dot(q1, tl.trans(old_k1), input_precision="ieee")
    old_score = tl.dot(q2, tl.trans(old_k2), old_score, input_precision="ieee") * scale
    visible = held[None, :] & (where[:, None] - old_where[None, :] < window)
    old_score = tl.where(visible, old_score, float("-inf"))
    best = tl.maximum(tl.max(new_score, 1), tl.max(old_score, 1))
    new_weight = tl.exp(new_score - best[:, None])
    old_weight = tl.exp(old_score - best[:, None])
    total = tl.sum(new_weight, 1) + tl.sum(old_weight, 1)
    acc = tl.dot(old_weight.to(dtype), old_values, input_precision="ieee")
    acc = tl.dot(new_weight.to(dtype), value, acc, input_precision="ieee") / total[:, None]
    target = out + row * frames * HEADS * D + t[:, None] * HEADS * D + head * D + d
    tl.store(target, acc.to(out.dtype.element_ty), mask=real)
    target = old + (where % ring)[:, None] * D
    # Every read of the ring must be done before a new row may take an old row's place.
    tl.debug_barrier()
    tl.store(target + i, k1, mask=real)
    tl.store(target + half + i, k2, mask=real)
    tl.store(target + HEADS * ring * D + d, value, mask=real)


def window_attention(
    qkv: torch.Tensor,
    table: torch.Tensor,
    cache: torch.Tensor,
    slots: torch.Tensor,
    positions: torch.Tensor,
    window: int,
    unscaled: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """Rotates, attends over the last `window` positions and stores the chunk's keys and values.

    Args:
        qkv: `[rows, frames, 3 * heads * head_dim]` contiguous: queries, keys, values.
        table: `[positions, head_dim]` float32 from `rope_table`.
        cache: this layer's ring, `[slots, 2, heads, ring, head_dim]` contiguous.
        slots: `[rows]` int32; no two real rows share one.
        positions: `[slots]` int32 frames decoded so far. The caller adds each row's valid frames
            after the last layer.
        window: how many positions a query sees, itself included.
        unscaled: `[rows, frames, in]` contiguous, if each frame of `qkv` must still be divided by
            the root mean square of this one (`linear_before_norm`).
        eps: that norm's epsilon.

    Returns:
        `[rows, frames, heads * head_dim]`; frames beyond a row's valid ones are meaningless.
    """
    rows, frames, _ = qkv.shape
    heads, ring, head_dim = cache.shape[2:]
    assert ring >= window - 1 + frames, "the ring must hold window - 1 positions and the chunk"
    if use_reference(qkv):
        return window_attention_reference(
            qkv, table, cache, slots, positions, window, unscaled, eps
        )
    out = torch.empty((rows, frames, heads * head_dim), dtype=qkv.dtype, device=qkv.device)
    width = unscaled.shape[-1] if unscaled is not None else 1
    early = early_launch(qkv)
    _window_attention_kernel[(rows, heads)](
        qkv,
        table,
        cache,
        slots,
        positions,
        out,
        unscaled if unscaled is not None else qkv,
        frames,
        window,
        ring,
        width,
        head_dim**-0.5,
        eps,
        HEADS=heads,
        D=head_dim,
        RING_BLOCK=next_power_of_2(ring),
        FRAMES_BLOCK=max(16, next_power_of_2(frames)),
        HAS_UNSCALED=unscaled is not None,
        WIDTH=next_power_of_2(width),
        EARLY=early,
        launch_pdl=early,
        num_warps=_WARPS,
    )
    return out
