"""Text tokens and speech frames in one training sequence: the order, and attention to the text."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Utterances with the order in which text and frames stand in their sequences.

    Step n of an utterance predicts frame n; step `frames` predicts the end.

    Attributes:
        text: [rows, tokens] int64, padded with PADDING at the end.
        segments: [rows, tokens] int64, which arrival a token belongs to.
        arrivals: [rows, tokens] int64, the step before which it arrived; ascending.
        text_lengths: [rows] int64.
        codes: [rows, frames, codebooks] int64.
        frames: [rows] int64.
        sounding: [rows, frames + 1, tokens] bool, tokens whose sound is in a frame.
        real_frames: [all frames] int64 index into rows times frames, without padding.
        positions: Of the longest sequence (host number: no wait for the device).
    """

    text: torch.Tensor
    segments: torch.Tensor
    arrivals: torch.Tensor
    text_lengths: torch.Tensor
    codes: torch.Tensor
    frames: torch.Tensor
    sounding: torch.Tensor
    real_frames: torch.Tensor
    positions: int


def sequence_order(batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Where text tokens and steps stand in the sequences.

    Returns:
        order: [rows, positions] index into text tokens followed by steps.
        step_places: [rows, frames + 1] position of each step.
        text_places: [rows, tokens] position of each text token.
    """
    rows, tokens = batch.text.shape
    steps = batch.codes.shape[1] + 1
    device = batch.text.device
    is_text = _within(tokens, batch.text_lengths)
    # Padding "arrives" after every step, so that it stands at the end.
    arrivals = torch.where(is_text, batch.arrivals, steps)
    step = torch.arange(steps, device=device)
    earlier = torch.searchsorted(arrivals, step.expand(rows, -1).contiguous(), right=True)
    step_places = step + earlier
    text_places = torch.arange(tokens, device=device) + arrivals
    order = torch.zeros(rows, tokens + steps, dtype=torch.int64, device=device)
    places = torch.cat([text_places, step_places], 1)
    sources = torch.arange(tokens + steps, device=device).expand(rows, -1)
    order.scatter_(1, places, sources)
    last = batch.positions - 1
    return order[:, : last + 1], step_places.clamp(max=last), text_places.clamp(max=last)


def _within(length: int, counts: torch.Tensor) -> torch.Tensor:
    """[rows, length] bool."""
    return torch.arange(length, device=counts.device) < counts[:, None]


def guide_loss(
    queries: torch.Tensor,
    keys: torch.Tensor,
    step_places: torch.Tensor,
    text_places: torch.Tensor,
    batch: Batch,
) -> torch.Tensor:
    """Mean of -log(attention mass) on what sounds now (head 0) and in the next frame (head 1)."""
    rows, _, positions, width = queries.shape
    steps = step_places.shape[1]
    total = queries.new_zeros((), dtype=torch.float32)
    place = torch.arange(positions, device=queries.device)
    visible = place <= step_places[..., None]
    at_text = text_places[:, None].expand(-1, steps, -1)
    # Step n makes frame n.
    ahead = F.pad(batch.sounding[:, 1:], (0, 0, 0, 1))
    for head, wanted in enumerate((batch.sounding, ahead)):
        index = step_places[..., None].expand(-1, -1, width)
        asked = torch.gather(queries[:, head].float(), 1, index)
        logits = asked @ keys[:, 0].float().transpose(1, 2) / math.sqrt(width)
        logits = logits.masked_fill(~visible, -torch.inf)
        wanted = wanted & visible.gather(2, at_text)
        found = logits.gather(2, at_text).masked_fill(~wanted, -1e4)
        miss = torch.logsumexp(logits, -1) - torch.logsumexp(found, -1)
        is_meant = wanted.any(-1)
        total = total + (miss * is_meant).sum() / is_meant.sum().clamp(min=1) / 2
    return total
