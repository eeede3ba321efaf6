"""Counter-based random numbers: Philox 4x32 with ten rounds, in plain torch.

The key is a request's seed and the counter names (group of candidates, frame, codebook), so a
draw depends on nothing else: not on the batch, not on the device, not on how often it is asked
for. The sampling kernel draws the same numbers.

Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011), constants included.
"""

from __future__ import annotations

import torch

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)


def philox(
    seeds: torch.Tensor, counters: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Four 32-bit words per counter; all arguments broadcast together.

    Args:
        seeds: int64 keys.
        counters: three int64 tensors of values below 2**32; the fourth counter word is 0.

    Returns:
        Four int64 tensors of values below 2**32.
    """
    c0, c1, c2 = torch.broadcast_tensors(*counters)
    c3 = torch.zeros_like(c0)
    k0, k1 = seeds & _MASK, (seeds >> 32) & _MASK
    for _ in range(10):
        # int64 products wrap, but their bits are right; the mask drops the shifted-in sign.
        product0, product1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c2 = (
            ((product1 >> 32) & _MASK) ^ c1 ^ k0,
            ((product0 >> 32) & _MASK) ^ c3 ^ k1,
        )
        c1, c3 = product1 & _MASK, product0 & _MASK
        k0, k1 = (k0 + _KEY_STEPS[0]) & _MASK, (k1 + _KEY_STEPS[1]) & _MASK
    return c0, c1, c2, c3


def gumbel_noise(
    seeds: torch.Tensor, frames: torch.Tensor, codebook: int, num_candidates: int
) -> torch.Tensor:
    """Gumbel noise of each candidate id.

    Candidate `i` takes word `i // quarter` of counter group `i % quarter`, where `quarter` is a
    quarter of `num_candidates` rounded up to a power of two.

    Args:
        seeds: `[rows]` int64.
        frames: `[rows]` integer.
        codebook: index of the codebook drawn from.
        num_candidates: size of the vocabulary.

    Returns:
        `[rows, num_candidates]` float32.
    """
    quarter = 1 << max((num_candidates - 1).bit_length() - 2, 0)
    group = torch.arange(quarter, device=seeds.device)
    frame = frames.long()[:, None]
    words = philox(seeds.long()[:, None], (group, frame, torch.full_like(frame, codebook)))
    bits = torch.cat(words, 1)[:, :num_candidates]
    uniform = ((bits >> 9).float() + 0.5) * 2.0**-23
    return -torch.log(-torch.log(uniform))
