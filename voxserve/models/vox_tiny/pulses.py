"""The pulse train that excites the decoder's harmonic filter: band-limited impulses at a pitch."""

from __future__ import annotations

import math

import torch

_LOWEST_HZ = 40.0  # below it a block is unvoiced and its phase runs on at this pitch
_BANDWIDTH_HZ = 11_000.0  # harmonics up to here
_NEAR_PULSE = 2e-3  # |2 sin(t/2)| below which the closed form is replaced by its limit


def pulse_train(
    pitch: torch.Tensor,
    phase: torch.Tensor,
    last_pitch: torch.Tensor,
    blocks: torch.Tensor,
    hop_samples: int,
    sample_rate_hz: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Makes the excitation of a chunk.

    The pitch runs linearly from one block's end to the next; where either is unvoiced it is
    constant. Phases are carried in cycles and in double precision, block by block, so that any
    chunking gives the same samples.

    Args:
        pitch: [rows, blocks] float64 Hz at block ends, 0 where unvoiced.
        phase: [rows] float64 cycles at the start.
        last_pitch: [rows] float64 Hz before the first block; negative at a stream's start.
        blocks: [rows] int64 valid blocks.
        hop_samples: Samples per block.
        sample_rate_hz: Of the audio.

    Returns:
        [rows, blocks * hop] float32 samples; phase and last pitch after the valid blocks.
    """
    earlier = torch.where(last_pitch < 0, pitch[:, 0], last_pitch)
    before = torch.cat([earlier[:, None], pitch[:, :-1]], 1)
    voiced = pitch > _LOWEST_HZ
    start = torch.where(voiced & (before > _LOWEST_HZ), before, pitch).clamp(min=_LOWEST_HZ)
    end = pitch.clamp(min=_LOWEST_HZ)

    # Cycles after sample i of a block: i * start + (end - start) * i (i + 1) / (2 hop), over rate.
    cycles = (hop_samples * start + (end - start) * (hop_samples + 1) / 2) / sample_rate_hz
    totals = torch.cat([phase[:, None], phase[:, None] + cycles.cumsum(1)], 1)
    opening = torch.frac(totals[:, :-1])
    count = torch.arange(1, hop_samples + 1, dtype=torch.float64)
    ramp = count * (count + 1) / (2 * hop_samples)
    inside = (start[..., None] * count + (end - start)[..., None] * ramp) / sample_rate_hz
    turns = torch.frac(opening[..., None] + inside).float().flatten(1)

    now = (start[..., None] + (end - start)[..., None] * (count / hop_samples)).float().flatten(1)
    samples = _impulses(turns, now) * voiced.repeat_interleave(hop_samples, 1)
    rows = torch.arange(len(pitch))
    last = torch.cat([last_pitch[:, None], pitch], 1)[rows, blocks]
    return samples, torch.frac(totals[rows, blocks]), last


def _impulses(turns: torch.Tensor, pitch_hz: torch.Tensor) -> torch.Tensor:
    """Sum of cosines of all harmonics up to the bandwidth, at `turns` cycles, in closed form."""
    angle = turns * (2 * math.pi)
    harmonics = torch.floor(_BANDWIDTH_HZ / pitch_hz) + 0.5
    divisor = 2 * torch.sin(angle * 0.5)
    near = divisor.abs() <= _NEAR_PULSE
    ratio = torch.sin(harmonics * angle) / torch.where(near, 1.0, divisor)
    return torch.where(near, harmonics, ratio) - 0.5
