"""Weights from names: the same numbers on every machine, numpy and torch version, stored nowhere.

A tensor's values are a hash of (seed, name, shape) only, so that the reference implementation and
ours can be given equal weights without exchanging files. Scales that published models initialise
near zero (layer scales, ConvNeXt gamma, code sums) are far from zero here: with the published
initial values a wrong decoder would still agree with the right one.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
from numpy.typing import NDArray


def uniform(name: str, shape: tuple[int, ...], seed: int = 0) -> NDArray[np.float32]:
    """Values in [-1, 1), a function of the arguments alone."""
    digest = hashlib.sha256(f"{seed}:{name}:{shape}".encode()).digest()
    bits = np.random.Philox(key=int.from_bytes(digest[:16], "little"))
    raw = bits.random_raw(math.prod(shape))
    unit = (np.asarray(raw) >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-23)
    return (unit - np.float32(1.0)).reshape(shape)


def as_bfloat16(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """The nearest bfloat16 values (ties to even), still stored as float32."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = (bits + np.uint32(0x7FFF) + odd) & np.uint32(0xFFFF0000)
    return rounded.view(np.float32)


def weight(name: str, shape: tuple[int, ...], seed: int = 0) -> NDArray[np.float32]:
    """A weight with a scale that suits its name and shape, exact in bfloat16."""
    return as_bfloat16(_scaled(name, shape, uniform(name, shape, seed)))


def _scaled(name: str, shape: tuple[int, ...], u: NDArray[np.float32]) -> NDArray[np.float32]:
    leaf = name.rsplit(".", 1)[-1]
    if leaf in ("scale", "gamma"):
        return 0.5 + 0.3 * u
    if leaf == "cluster_usage":
        return 2.0 + u
    if leaf in ("alpha", "beta"):
        return 0.3 * u
    if leaf == "bias":
        return 0.2 * u
    if len(shape) == 1:  # norm weights
        return 1.0 + 0.3 * u
    if "embedding" in name:  # token tables and code sums
        return 1.7 * u
    return _gain(name, shape) * math.sqrt(3.0 / _fan_in(name, shape)) * u


def _fan_in(name: str, shape: tuple[int, ...]) -> int:
    if ".block.1." in name or (".upsample." in name and ".0.conv" in name):
        return 2 * shape[0] if ".block.1." in name else shape[0]  # transposed: [in, out, kernel]
    return math.prod(shape[1:])


def _gain(name: str, shape: tuple[int, ...]) -> float:
    if "head" in name:
        return 3.0  # clear favourites among the codes, as a trained model has
    if ".decoder." in name and shape[0] == 1:
        return 0.3  # keeps the wave inside [-1, 1], where the clamp would hide errors
    if ".conv2." in name or ".block.1." in name:
        return 0.4  # residual units would otherwise grow the signal a hundredfold
    return 1.0
