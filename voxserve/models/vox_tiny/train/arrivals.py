"""How streamed texts arrive in training: at the pace of pace.py, varied, never after their sound.

A whole text arrives before the first step.
"""

from __future__ import annotations

import torch

from voxserve.models.vox_tiny.pace import Pace, expected_frames

SERVED_LEAD_WORDS = 2

_MOST_LEAD_WORDS = 4
_SLOWEST, _FASTEST = 0.8, 1.1  # of the expected pace, in training
_SAFE_FRAMES = 2  # a word is known so long before it sounds
_LATEST_END_STEPS = 4


def expected_starts(text: str) -> list[float]:
    """Frame at which each word is expected to begin, counted from the first word."""
    starts, now = [], 0.0
    for word in text.split(" "):
        starts.append(now)
        now += expected_frames(word)
    return starts


def paced_steps(expected: torch.Tensor, lead: torch.Tensor, pace: torch.Tensor) -> torch.Tensor:
    """Step before which each word of streamed texts joins its sequence.

    Args:
        expected: [rows, words] float, from `expected_starts`.
        lead: [rows] int64, words that are known ahead.
        pace: [rows] float, of the expected one.

    Returns:
        [rows, words] int64, ascending by at least one.
    """
    place = torch.arange(expected.shape[1], device=expected.device)
    before = (place - lead[:, None]).clamp(min=0)
    wanted = (expected.gather(1, before) * pace[:, None]).long()
    return torch.cummax(wanted - place, 1).values + place


def limited_steps(steps: torch.Tensor, spoken: torch.Tensor) -> torch.Tensor:
    """Steps of words whose true times are known, none after its word sounds.

    Args:
        steps: [rows, words] int64, from `paced_steps`.
        spoken: [rows, words] int64, frame in which each word really begins.
    """
    latest = (spoken - _SAFE_FRAMES).clamp(min=0)
    return torch.cummin(torch.minimum(steps, latest).flip(1), 1).values.flip(1)


def served_steps(text: str) -> list[int]:
    """Step of each word of a text as it is served."""
    pace = Pace(SERVED_LEAD_WORDS)
    return [pace.step(word) for word in text.split(" ")]


def random_leads(rows: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Leads and paces of training rows, around those that are served."""
    lead = torch.randint(1, _MOST_LEAD_WORDS + 1, (rows,), generator=generator)
    pace = torch.rand(rows, generator=generator) * (_FASTEST - _SLOWEST) + _SLOWEST
    return lead, pace


def random_end_delays(rows: int, generator: torch.Generator) -> torch.Tensor:
    """Steps from the last word to the news that it was the last."""
    return torch.randint(0, _LATEST_END_STEPS, (rows,), generator=generator)
