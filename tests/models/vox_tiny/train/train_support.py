"""Small speech and small models for the tests of training."""

from __future__ import annotations

import numpy as np

from voxserve.models.vox_tiny.train.network import ModelShape
from voxserve.models.vox_tiny.train.shards import Utterance

HELD_OUT = "the a sea."  # by its hash
TEXTS = (
    "no.",
    "the lamp is on",
    "well, who knows? not me.",
    "it was a bright, cold day in april.",
    "a",
    HELD_OUT,
)
SMALL = ModelShape(
    hidden=32,
    layers=4,
    heads=4,
    kv_heads=2,
    ffn=48,
    depth_hidden=24,
    depth_layers=1,
    depth_heads=3,
    depth_ffn=32,
    codebook_size=40,
    dropout=0.0,
)


def utterances(count: int, seed: int = 0) -> list[Utterance]:
    """Texts with codes that depend on their letters, about 8 blocks of 10 ms per character."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(count):
        text = TEXTS[number % len(TEXTS)]
        ends = 10 + np.cumsum(rng.integers(4, 9, len(text)))
        ends[len(text.rstrip(".")) - 1 :] += 30  # the silence that the teacher counts to it
        frames = -(-int(ends[-1] + 28) // 8)
        place = np.searchsorted(ends, np.arange(frames) * 8)
        letters = np.array([ord(text[min(at, len(text) - 1)]) % 40 for at in place])
        codes = (letters[:, None] + np.arange(8)) % 40
        made.append(Utterance(text, codes.astype(np.uint16), ends.astype(np.uint16)))
    return made
