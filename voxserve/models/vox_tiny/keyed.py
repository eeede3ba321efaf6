"""Random numbers that depend on a key only: (seed, frame, codebook) or (seed, block).

A 64-bit mix of the key (Steele, Lea and Flood's splitmix finaliser) replaces a generator's
running state, so the numbers of a request are the same in any batch, order and chunking.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_SAMPLING_DOMAIN = 0x53616D706C650001
_NOISE_DOMAIN = 0x4E6F697365000002


def uniforms(seed: int, frames: int, codebooks: int) -> NDArray[np.float32]:
    """[frames, codebooks] numbers in [0, 1), one per draw of a request."""
    counters = np.arange(frames * codebooks, dtype=np.uint64)
    bits = _mix(counters + _base(seed, _SAMPLING_DOMAIN)) >> np.uint64(40)
    return (bits.astype(np.float32) * np.float32(2.0**-24)).reshape(frames, codebooks)


def noise_key(seed: int) -> int:
    """What `noise_rows` needs of a request's seed; fits a signed 64-bit integer."""
    return int(_base(seed, _NOISE_DOMAIN) >> np.uint64(1))


def noise_rows(keys: NDArray[np.int64], blocks: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
    """Which row of a noise table each block takes.

    Args:
        keys: [requests, 1] from `noise_key`.
        blocks: [requests, blocks] absolute block numbers, from -1.
        rows: Rows of the table.

    Returns:
        [requests, blocks] in [0, rows).
    """
    mixed = _mix(keys.astype(np.uint64) + (blocks + 1).astype(np.uint64))
    return (mixed % np.uint64(rows)).astype(np.int64)


def _base(seed: int, domain: int) -> np.uint64:
    key = np.array([(seed & 0xFFFFFFFFFFFFFFFF) ^ domain], dtype=np.uint64)
    return _mix(key)[0]


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = x * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
