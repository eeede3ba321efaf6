"""One kernel that turns logits into ids: masks, penalty, temperature, top-k, top-p and the draw.

Every setting is read per row from tensors indexed by slot, so one captured graph serves any
mixture of requests. The draw is the maximum of logits plus Gumbel noise (`philox`), which
samples from the softmax and needs no sum whose order could matter.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from voxserve.kernels.backend import next_power_of_2, tl, triton, use_reference
from voxserve.kernels.device_math import logarithm, start_next, wait_for_previous
from voxserve.kernels.early_launch import early_launch
from voxserve.kernels.philox import gumbel_noise
from voxserve.kernels.rms_norm import row_scale, scale_reference

_WARPS = 8


@dataclass(frozen=True)
class SamplingParams:
    """Per-slot sampling settings.

    temperature: `[slots]` float32; 0 takes the best id.
    top_k: `[slots]` int32; 0 keeps all. Ids that tie with the k-th are kept.
    top_p: `[slots]` float32; 1 keeps all.
    """

    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor


@dataclass(frozen=True)
class FirstCodebookRules:
    """What holds for the first codebook only.

    seen: `[slots, ceil(vocab / 32)]` int32 bitmap of ids drawn so far; updated by the op.
    penalty: `[slots]` float32 repetition penalty; 1 is none.
    min_frames: `[slots]` int32; the end id is impossible at earlier frames.
    first_suppressed: ids from here on are impossible, except the end id.
    end_id: the id that ends a stream.
    """

    seen: torch.Tensor
    penalty: torch.Tensor
    min_frames: torch.Tensor
    first_suppressed: int
    end_id: int


def seen_bitmap(num_slots: int, vocab: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """Returns an empty bitmap `[num_slots, ceil(vocab / 32)]` int32."""
    return torch.zeros((num_slots, -(-vocab // 32)), dtype=torch.int32, device=device)


def _apply_rules_reference(
    logits: torch.Tensor, slots: torch.Tensor, frames: torch.Tensor, rules: FirstCodebookRules
) -> torch.Tensor:
    ids = torch.arange(logits.shape[1], device=logits.device)
    seen = (rules.seen[slots][:, ids // 32] >> (ids % 32)) & 1
    penalty = rules.penalty[slots][:, None]
    penalised = torch.where(logits > 0, logits / penalty, logits * penalty)
    logits = torch.where(seen == 1, penalised, logits)
    is_end = ids == rules.end_id
    hidden = (ids >= rules.first_suppressed) & ~is_end
    early = frames[:, None] < rules.min_frames[slots][:, None]
    return logits.masked_fill(hidden[None] | (is_end[None] & early), float("-inf"))


def _top_p_threshold(logits: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """The largest value whose equals and betters together hold at least `top_p` of the mass."""
    ordered = logits.sort(-1, descending=True).values
    mass = (ordered - ordered[:, :1]).exp()
    cumulative = mass.cumsum(-1)
    reached = cumulative >= top_p[:, None] * cumulative[:, -1:]
    reached[:, -1] = True
    return ordered.gather(1, reached.int().argmax(-1, keepdim=True))


def sample_reference(
    logits: torch.Tensor,
    slots: torch.Tensor,
    params: SamplingParams,
    seeds: torch.Tensor,
    frames: torch.Tensor,
    codebook: int,
    rules: FirstCodebookRules | None = None,
    unscaled: torch.Tensor | None = None,
    eps: float = 1e-6,
) -> torch.Tensor:
    """Plain torch; returns `[rows]` int32 and updates the bitmap."""
    slots = slots.long()
    vocab = logits.shape[1]
    logits, frames = scale_reference(logits.float(), unscaled, eps), frames[slots]
    if rules is not None:
        logits = _apply_rules_reference(logits, slots, frames, rules)
    temperature = params.temperature[slots][:, None]
    greedy = temperature[:, 0] <= 0
    scaled = logits / torch.where(greedy[:, None], 1.0, temperature)
    top_k = params.top_k[slots]
    top_k = torch.where((top_k > 0) & (top_k < vocab), top_k, vocab).long()
    ordered = scaled.sort(-1, descending=True).values
    scaled = scaled.masked_fill(scaled < ordered.gather(1, top_k[:, None] - 1), float("-inf"))
    top_p = params.top_p[slots]
    cut = _top_p_threshold(scaled, top_p)
    scaled = scaled.masked_fill((scaled < cut) & (top_p < 1)[:, None], float("-inf"))
    noisy = scaled + gumbel_noise(seeds[slots], frames, codebook, vocab)
    score = torch.where(greedy[:, None], logits, noisy)
    best = score.max(-1, keepdim=True).values
    ids = torch.arange(vocab, device=logits.device)
    chosen = torch.where(score == best, ids, vocab).min(-1).values
    if rules is not None:
        bit = torch.ones_like(slots, dtype=torch.int32) << (chosen % 32).int()
        rules.seen[slots, chosen // 32] |= bit
    return chosen.int()


@triton.jit
def _ordered_key(x):
    """Maps floats to int32 so that the order is kept."""
    bits = x.to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@triton.jit
def _top_k_threshold_kernel(key, count, low, high):
    """A key in `low .. high` with exactly (with ties, at least) `count` keys not below it.

    Two thresholds a round, their counts packed into one sum: a round costs a barrier or two.
    """
    while low < high:
        step = ((high - low) * 11 >> 5) + 1  # a third, without a division
        first = low + step
        second = tl.minimum(first + step, high)
        above_first = (key >= first.to(tl.int32)).to(tl.int32)
        above_second = (key >= second.to(tl.int32)).to(tl.int32)
        packed = tl.sum(above_first + (above_second << 14))
        num_first = packed & 0x3FFF
        num_second = packed >> 14
        is_second = num_second >= count
        is_first = num_first >= count
        top = tl.where(is_second, high, tl.where(is_first, second - 1, first - 1))
        low = tl.where(is_second, second, tl.where(is_first, first, low))
        found = tl.where(is_second, num_second, tl.where(is_first, num_first, 0))
        high = tl.maximum(tl.where(found == count, low, top), low)
    return low.to(tl.int32)


@triton.jit
def _top_p_threshold_kernel(key, mass, needed):
    """The largest key such that the keys not below it hold at least `needed` of the mass."""
    low = tl.min(key).to(tl.int64)
    high = tl.max(key).to(tl.int64)
    while low < high:
        middle = (low + high + 1) >> 1
        above = tl.sum(tl.where(key >= middle.to(tl.int32), mass, 0.0))
        if above >= needed:
            low = middle
        else:
            high = middle - 1
    return low.to(tl.int32)


@triton.jit(do_not_specialize=["codebook"])
def _sample_kernel(
    logits,
    slots,
    temperature,
    top_k,
    top_p,
    seeds,
    frames,
    seen,
    penalty,
    min_frames,
    out,
    next_table,
    next_rows,
    unscaled,
    stride,
    out_stride,
    vocab,
    codebook,
    seen_words,
    first_suppressed,
    end_id,
    next_width,
    width,
    eps,
    HAS_RULES: tl.constexpr,
    HAS_NEXT: tl.constexpr,
    QUARTER: tl.constexpr,
    NEXT_BLOCK: tl.constexpr,
    HAS_UNSCALED: tl.constexpr,
    WIDTH: tl.constexpr,
    COARSE: tl.constexpr,
    EARLY: tl.constexpr,
):
    if EARLY:
        wait_for_previous()
        start_next()
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + row).to(tl.int64)
    # All at once: each would cost a trip to memory behind the branch that needs it.
    frame = tl.load(frames + slot)
    heat = tl.load(temperature + slot)
    count = tl.load(top_k + slot)
    share = tl.load(top_p + slot)
    seed = tl.load(seeds + slot)
    root = row_scale(unscaled, row, width, eps, HAS_UNSCALED, WIDTH)
    group = tl.arange(0, QUARTER)
    pair = tl.arange(0, 2)
    # Laid out as joined Philox words come, so that noise and logits meet without a shuffle.
    index = group[:, None, None] + QUARTER * (pair[None, :, None] + 2 * pair[None, None, :])
    valid = index < vocab
    x = tl.load(logits + row * stride + index, mask=valid, other=float("-inf")).to(tl.float32)
    if HAS_RULES:
        word = tl.load(seen + slot * seen_words + index // 32, mask=valid, other=0)
        factor = tl.load(penalty + slot)
        x = tl.where(
            (word >> (index % 32)) & 1 == 1,
            tl.where(x > 0, tl.div_rn(x, factor + tl.zeros_like(x)), x * factor),
            x,
        )
        early = frame < tl.load(min_frames + slot)
        hidden = tl.where(index == end_id, early, index >= first_suppressed)
        x = tl.where(hidden, float("-inf"), x)
    score = x
    if heat > 0:
        if (count > 0) & (count < vocab):
            # Dividing by the temperature keeps the order, so the search may come before it. With
            # COARSE all values are 16 bits wide and so are their keys.
            key = _ordered_key(x)
            limit = tl.full((), 0x7FFFFFFF, tl.int64)
            if COARSE:
                key = key >> 16
                limit = tl.full((), 0x7FFF, tl.int64)
            cut = _top_k_threshold_kernel(key, count, -1 - limit, limit)
            x = tl.where(key >= cut, x, float("-inf"))
        x = x * root
        x = tl.div_rn(x, heat + tl.zeros_like(x))
        if share < 1:
            mass = tl.exp(x - tl.max(x))
            key = _ordered_key(x)
            cut = _top_p_threshold_kernel(key, mass, share * tl.sum(mass))
            x = tl.where(key >= cut, x, float("-inf"))
        zero = tl.zeros((QUARTER,), tl.uint32)
        w0, w1, w2, w3 = tl.philox(
            seed.to(tl.uint64),
            group.to(tl.uint32),
            zero + frame.to(tl.uint32),
            zero + codebook.to(tl.uint32),
            zero,
        )
        bits = tl.join(tl.join(w0, w1), tl.join(w2, w3))
        uniform = ((bits >> 9).to(tl.float32) + 0.5) * 1.1920928955078125e-07
        score = x - logarithm(-logarithm(uniform))
    best = tl.max(score)
    chosen = tl.min(tl.where(score == best, index, vocab))
    tl.store(out + row * out_stride, chosen)
    if HAS_RULES:
        word_at = seen + slot * seen_words + chosen // 32
        tl.store(word_at, tl.load(word_at) | (1 << (chosen % 32)))
    if HAS_NEXT:
        i = tl.arange(0, NEXT_BLOCK)
        mask = i < next_width
        value = tl.load(next_table + chosen.to(tl.int64) * next_width + i, mask=mask)
        tl.store(next_rows + row * next_width + i, value, mask=mask)


def sample(
    logits: torch.Tensor,
    slots: torch.Tensor,
    params: SamplingParams,
    seeds: torch.Tensor,
    frames: torch.Tensor,
    codebook: int,
    out: torch.Tensor,
    *,
    rules: FirstCodebookRules | None = None,
    next_table: torch.Tensor | None = None,
    next_rows: torch.Tensor | None = None,
    unscaled: torch.Tensor | None = None,
    eps: float = 1e-6,
) -> torch.Tensor:
    """Draws one id per row.

    The order is: repetition penalty, impossible ids, temperature, top-k, top-p, draw. The same
    (seed, frame, codebook, logits) always gives the same id.

    Args:
        logits: `[rows, vocab]` any float type; rows may be strided.
        slots: `[rows]` int32; padding rows name the scratch slot.
        params: settings per slot.
        seeds: `[slots]` int64 request seeds.
        frames: `[slots]` int32 number of the frame being drawn.
        codebook: which codebook the logits are for.
        out: `[rows]` int32, may be a column of a matrix; overwritten.
        rules: the first codebook's masks and penalty.
        next_table: `[vocab, d]` rows to hand on, or None.
        next_rows: `[rows, d]`, receives `next_table[id]` of each row.
        unscaled: `[rows, in]` contiguous, if each row of `logits` must still be divided by the
            root mean square of this row (`linear_before_norm`). With the first codebook's
            penalty too: it only depends on signs.
        eps: that norm's epsilon.

    Returns:
        `out`.
    """
    if use_reference(logits):
        ids = sample_reference(logits, slots, params, seeds, frames, codebook, rules, unscaled, eps)
        out.copy_(ids)
        if next_table is not None and next_rows is not None:
            next_rows.copy_(next_table[out.long()])
        return out
    rows, vocab = logits.shape
    width = next_table.shape[1] if next_table is not None else 1
    depth = unscaled.shape[1] if unscaled is not None else 1
    _sample_kernel[(rows,)](
        logits,
        slots,
        params.temperature,
        params.top_k,
        params.top_p,
        seeds,
        frames,
        rules.seen if rules is not None else frames,
        rules.penalty if rules is not None else params.temperature,
        rules.min_frames if rules is not None else frames,
        out,
        next_table if next_table is not None else logits,
        next_rows if next_rows is not None else logits,
        unscaled if unscaled is not None else logits,
        logits.stride(0),
        out.stride(0),
        vocab,
        codebook,
        rules.seen.shape[1] if rules is not None else 0,
        rules.first_suppressed if rules is not None else 0,
        rules.end_id if rules is not None else 0,
        width,
        depth,
        eps,
        HAS_RULES=rules is not None,
        HAS_NEXT=next_table is not None,
        QUARTER=max(next_power_of_2(vocab) // 4, 1),
        NEXT_BLOCK=next_power_of_2(width),
        HAS_UNSCALED=unscaled is not None,
        WIDTH=next_power_of_2(depth),
        COARSE=rules is None and logits.dtype == torch.bfloat16,
        EARLY=early_launch(logits),
        launch_pdl=early_launch(logits),
        num_warps=_WARPS,
    )
    return out
