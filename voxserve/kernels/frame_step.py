"""Ends of a decode step: what a row reads before the backbone, and what is kept of its new frame.

Both are one small kernel where plain torch would launch about forty. `status` is 0 while a
sequence goes on, 1 at its end, 2 when it runs away; a row whose sequence does not go on, and a
row that pads the batch, works on the scratch slot, which is only read.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from voxserve.kernels.backend import cdiv, next_power_of_2, tl, triton, use_reference
from voxserve.kernels.device_math import start_next, wait_for_previous
from voxserve.kernels.early_launch import early_launch
from voxserve.kernels.embedding_sum import embedding_sum_reference

GOES_ON, ENDED, RAN_AWAY = 0, 1, 2


@dataclass(frozen=True)
class Sequences:
    """What is known of every slot's sequence; the last slot is scratch.

    codes: `[slots, max_frames, codebooks]` int32.
    num_frames: `[slots]` int32, frames made.
    status: `[slots]` int8.
    lengths: `[slots]` int32, tokens of context.
    piece_start: `[slots]` int32, frames made before the current piece of text.
    repeats: `[slots]` int32, how often the last first code has come in a row.
    min_frames: `[slots]` int32, before which no repetition counts.
    """

    codes: torch.Tensor
    num_frames: torch.Tensor
    status: torch.Tensor
    lengths: torch.Tensor
    piece_start: torch.Tensor
    repeats: torch.Tensor
    min_frames: torch.Tensor

    @property
    def scratch(self) -> int:
        """The last slot."""
        return self.codes.shape[0] - 1


@dataclass(frozen=True)
class StepText:
    """Text added to steps: the n-th id of a slot to the n-th step of its piece, then padding.

    ids: `[slots, capacity]` int32.
    count: `[slots]` int32, ids there are.
    table: `[text ids, d]`.
    pad_id: row of the table where a slot has no id (left).
    """

    ids: torch.Tensor
    count: torch.Tensor
    table: torch.Tensor
    pad_id: int


def step_input_reference(
    slots: torch.Tensor, sequences: Sequences, tables: torch.Tensor, text: StepText
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain torch."""
    ended = sequences.status[slots.long()] != GOES_ON
    live = slots.masked_fill(ended, sequences.scratch)
    index = live.long()
    last = (sequences.num_frames[index].long() - 1).clamp(min=0)
    place = (last - sequences.piece_start[index]).clamp(min=0)
    has_text = place < text.count[index]
    ids = text.ids[index, place.clamp(max=text.ids.shape[1] - 1)]
    ids = torch.where(has_text, ids, text.pad_id)
    rows = text.table[ids.long()]
    return live, embedding_sum_reference(sequences.codes[index, last], tables, rows)


@triton.jit
def _step_input_kernel(
    slots,
    live,
    out,
    codes,
    num_frames,
    status,
    piece_start,
    tables,
    text_ids,
    text_count,
    text_table,
    scratch,
    max_frames,
    vocab,
    d,
    text_capacity,
    pad_id,
    CODEBOOKS: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):
    if EARLY:
        wait_for_previous()
        start_next()
    row = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = i < d
    slot = tl.load(slots + row)
    slot = tl.where(tl.load(status + slot) == 0, slot, scratch).to(tl.int64)
    if tl.program_id(1) == 0:
        tl.store(live + row, slot.to(tl.int32))
    last = tl.maximum(tl.load(num_frames + slot) - 1, 0)
    place = tl.maximum(last - tl.load(piece_start + slot), 0)
    has_text = place < tl.load(text_count + slot)
    text = tl.load(text_ids + slot * text_capacity + place, mask=has_text, other=0)
    text = tl.where(has_text, text, pad_id).to(tl.int64)
    frame = codes + (slot * max_frames + last) * CODEBOOKS
    total = tl.zeros((BLOCK,), tl.float32)
    for codebook in tl.static_range(CODEBOOKS):
        line = (codebook * vocab + tl.load(frame + codebook)).to(tl.int64) * d
        total += tl.load(tables + line + i, mask=mask, other=0.0).to(tl.float32)
    total += tl.load(text_table + text * d + i, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + row * d + i, total.to(out.dtype.element_ty), mask=mask)


def step_input(
    slots: torch.Tensor, sequences: Sequences, tables: torch.Tensor, text: StepText
) -> tuple[torch.Tensor, torch.Tensor]:
    """Finds the rows that go on and sums the embeddings of their last frame and next text.

    Args:
        slots: `[rows]` int32.
        sequences: Of all slots.
        tables: `[codebooks, vocab, d]` contiguous.
        text: Of all slots.

    Returns:
        `[rows]` int32, each row's slot or the scratch slot, and `[rows, d]`.
    """
    if use_reference(tables):
        return step_input_reference(slots, sequences, tables, text)
    codebooks, vocab, d = tables.shape
    rows = slots.shape[0]
    live = torch.empty_like(slots)
    out = torch.empty((rows, d), dtype=tables.dtype, device=tables.device)
    block = min(1024, next_power_of_2(d))
    _step_input_kernel[(rows, cdiv(d, block))](
        slots,
        live,
        out,
        sequences.codes,
        sequences.num_frames,
        sequences.status,
        sequences.piece_start,
        tables,
        text.ids,
        text.count,
        text.table,
        sequences.scratch,
        sequences.codes.shape[1],
        vocab,
        d,
        text.ids.shape[1],
        text.pad_id,
        CODEBOOKS=codebooks,
        BLOCK=block,
        EARLY=early_launch(tables),
        num_warps=4,
        launch_pdl=early_launch(tables),
    )
    return live, out


def commit_frame_reference(
    frame: torch.Tensor,
    slots: torch.Tensor,
    sequences: Sequences,
    added: int,
    end_id: int,
    max_repeats: int,
    max_tokens: int,
) -> None:
    """Plain torch."""
    real = slots != sequences.scratch
    slots, frame = slots[real].long(), frame[real]
    first, made = frame[:, 0], sequences.num_frames[slots]
    before = sequences.codes[slots, (made.long() - 1).clamp(min=0), 0]
    is_repeat = (first == before) & (made > sequences.piece_start[slots])
    repeats = torch.where(is_repeat, sequences.repeats[slots] + 1, 0)
    lengths = sequences.lengths[slots] + added
    is_full = (made >= sequences.codes.shape[1]) | (lengths >= max_tokens)
    is_stuck = (repeats >= max_repeats) & (made >= sequences.min_frames[slots])
    status = torch.where(is_full | is_stuck, RAN_AWAY, GOES_ON)
    status = torch.where(first == end_id, ENDED, status)
    sequences.lengths[slots] = lengths
    sequences.status[slots] = status.to(torch.int8)
    goes_on = status == GOES_ON
    slots, made = slots[goes_on], made[goes_on]
    sequences.codes[slots, made.long()] = frame[goes_on]
    sequences.repeats[slots] = repeats[goes_on].to(torch.int32)
    sequences.num_frames[slots] = made + 1


@triton.jit
def _commit_frame_kernel(
    frame,
    slots,
    codes,
    num_frames,
    status,
    lengths,
    piece_start,
    repeats,
    min_frames,
    scratch,
    max_frames,
    added,
    end_id,
    max_repeats,
    max_tokens,
    CODEBOOKS: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):
    if EARLY:
        wait_for_previous()
        start_next()
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + row).to(tl.int64)
    is_real = slot != scratch
    first = tl.load(frame + row * CODEBOOKS)
    made = tl.load(num_frames + slot)
    before = tl.load(codes + (slot * max_frames + tl.maximum(made - 1, 0)) * CODEBOOKS)
    is_repeat = (first == before) & (made > tl.load(piece_start + slot))
    count = tl.where(is_repeat, tl.load(repeats + slot) + 1, 0)
    length = tl.load(lengths + slot) + added
    is_full = (made >= max_frames) | (length >= max_tokens)
    is_stuck = (count >= max_repeats) & (made >= tl.load(min_frames + slot))
    state = tl.where(first == end_id, 1, tl.where(is_full | is_stuck, 2, 0))
    tl.store(lengths + slot, length, mask=is_real)
    tl.store(status + slot, state.to(tl.int8), mask=is_real)
    goes_on = is_real & (state == 0)
    i = tl.arange(0, BLOCK)
    mask = (i < CODEBOOKS) & goes_on
    values = tl.load(frame + row * CODEBOOKS + i, mask=mask, other=0)
    tl.store(codes + (slot * max_frames + made) * CODEBOOKS + i, values, mask=mask)
    tl.store(repeats + slot, count, mask=goes_on)
    tl.store(num_frames + slot, made + 1, mask=goes_on)


def commit_frame(
    frame: torch.Tensor,
    slots: torch.Tensor,
    sequences: Sequences,
    *,
    added: int,
    end_id: int,
    max_repeats: int,
    max_tokens: int,
) -> None:
    """Keeps each row's frame where its sequence goes on, and says where it does not.

    A sequence ends with the end id as first code. It runs away when its first code came
    `max_repeats` times over, or when its codes or its context are full. Such a row makes no frame.

    Args:
        frame: `[rows, codebooks]` int32 contiguous.
        slots: `[rows]` int32 from `step_input`; no two real rows share one.
        sequences: Updated in place.
        added: Tokens of context of this step that are not in the lengths yet.
        end_id: First code that ends a sequence.
        max_repeats: Repetitions that end it.
        max_tokens: Longest context.
    """
    if use_reference(sequences.codes):
        limits = (added, end_id, max_repeats, max_tokens)
        commit_frame_reference(frame, slots, sequences, *limits)
        return
    rows, codebooks = frame.shape
    _commit_frame_kernel[(rows,)](
        frame,
        slots,
        sequences.codes,
        sequences.num_frames,
        sequences.status,
        sequences.lengths,
        sequences.piece_start,
        sequences.repeats,
        sequences.min_frames,
        sequences.scratch,
        sequences.codes.shape[1],
        added,
        end_id,
        max_repeats,
        max_tokens,
        CODEBOOKS=codebooks,
        BLOCK=next_power_of_2(codebooks),
        EARLY=early_launch(frame),
        num_warps=1,
        launch_pdl=early_launch(frame),
    )
