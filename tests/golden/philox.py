"""An independent numpy Philox 4x32-10 and the sampler's Gumbel noise made from it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def philox(seed: int, group: NDArray[np.uint64], frame: int, codebook: int) -> NDArray[np.uint64]:
    """Four words [4, groups] for the counters (group, frame, codebook, 0) under a 64-bit key."""
    c = [group, np.full_like(group, frame), np.full_like(group, codebook), np.zeros_like(group)]
    key = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    for _ in range(10):
        a = c[0] * np.uint64(0xD2511F53)
        b = c[2] * np.uint64(0xCD9E8D57)
        c = [
            (b >> _HALF) ^ c[1] ^ np.uint64(key[0]),
            b & _LOW,
            (a >> _HALF) ^ c[3] ^ np.uint64(key[1]),
            a & _LOW,
        ]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(c)


def gumbel(seed: int, frame: int, codebook: int, candidates: int) -> NDArray[np.float64]:
    """Gumbel noise [candidates] of one draw."""
    quarter = 1 << max((candidates - 1).bit_length() - 2, 0)
    words = philox(seed, np.arange(quarter, dtype=np.uint64), frame, codebook)
    uniform = ((words.reshape(-1)[:candidates] >> np.uint64(9)).astype(np.float64) + 0.5) * 2.0**-23
    return -np.log(-np.log(uniform))
