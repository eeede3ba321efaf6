"""Draws codes by inverse transform: one keyed uniform number per draw, top-k and top-p."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True, slots=True)
class DrawRule:
    """How one code is drawn from its logits; rows with equal rules are drawn together.

    Attributes:
        temperature: 0 takes the largest logit.
        top_k: Candidates kept; 0 keeps all.
        top_p: Candidates kept by cumulative probability; 1 keeps all.
    """

    temperature: float
    top_k: int
    top_p: float


def draw(logits: torch.Tensor, uniforms: torch.Tensor, rules: Sequence[DrawRule]) -> torch.Tensor:
    """Draws one code per row.

    Args:
        logits: [rows, codes] float32.
        uniforms: [rows] in [0, 1).
        rules: One per row.

    Returns:
        [rows] int64.
    """
    first = rules[0]
    if all(rule == first for rule in rules):
        return _draw_alike(logits, uniforms, first)
    codes = torch.empty(len(rules), dtype=torch.int64)
    for rule in dict.fromkeys(rules):
        rows = torch.tensor([i for i, other in enumerate(rules) if other == rule])
        codes[rows] = _draw_alike(logits[rows], uniforms[rows], rule)
    return codes


def _draw_alike(logits: torch.Tensor, uniforms: torch.Tensor, rule: DrawRule) -> torch.Tensor:
    if rule.temperature == 0.0:
        return logits.argmax(-1)
    width = logits.shape[1]
    kept = min(rule.top_k, width) if rule.top_k else width
    likeliest, codes = torch.topk(logits, kept)
    # A few numbers per row from here on, which numpy handles in a fraction of torch's time.
    values = likeliest.numpy()
    chances = np.exp((values - values[:, :1]) / np.float32(rule.temperature))
    sums = chances.cumsum(1)
    reach = sums[:, -1:]
    if rule.top_p < 1.0:
        # Candidates up to and including the one that crosses top_p; at least the likeliest.
        inside = (sums - chances < rule.top_p * reach).sum(1, keepdims=True).clip(min=1)
        reach = np.take_along_axis(sums, inside - 1, 1)
    place = (sums <= uniforms.numpy()[:, None] * reach).sum(1, keepdims=True).clip(max=kept - 1)
    return torch.from_numpy(np.take_along_axis(codes.numpy(), place, 1)[:, 0])


def penalise(logits: torch.Tensor, earlier: torch.Tensor, penalty: float) -> torch.Tensor:
    """Makes earlier codes of one row less likely: positive logits divided, others multiplied.

    Args:
        logits: [codes].
        earlier: [any] codes drawn before.
        penalty: 1 changes nothing.

    Returns:
        A changed copy.
    """
    seen = earlier.long().unique()
    values = logits[seen]
    changed = logits.clone()
    changed[seen] = torch.where(values > 0, values / penalty, values * penalty)
    return changed
