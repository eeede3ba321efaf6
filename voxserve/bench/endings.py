"""How readings end: at the end of their text, or late, early or never.

Half of the texts are everyday sentences, figures and answers of one to three words, the other half
comes from the documentation that Python carries: long, technical and full of odd signs. A reading
should be about as long as its letters take; what lies far outside did not end where its text did.
"""

from __future__ import annotations

import pydoc_data.topics
import random
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from voxserve.core.request import FinishReason
from voxserve.engine.audio import Audio
from voxserve.engine.engine import Engine
from voxserve.models.text.normalise import normalise
from voxserve.models.vox_tiny.pace import expected_frames
from voxserve.models.vox_tiny.train.templates import TemplateWriter

_SEED = 2026
_AT_ONCE = 12
_MOST_WORDS, _MOST_CHARACTERS = 60, 300
# Of the expected length, and seconds beyond it: pauses and slow words differ by about a third.
_SHORTEST, _LONGEST, _SPARE_S = 0.5, 1.7, 1.2
_SILENT, _LONGEST_SILENCE_S = 0.004, 1.0  # of full scale
_WORDS = "river window seven yellow copper garden silver monkey tomorrow basket".split()


@dataclass(frozen=True, slots=True)
class Ending:
    """How one reading ended.

    Attributes:
        text: As typed.
        seconds, expected_s: Its length and what its text takes.
        fault: Why it did not end where its text did; empty where it did.
    """

    text: str
    seconds: float
    expected_s: float
    fault: str


def texts(count: int) -> list[str]:
    """Half everyday ones, figures and short ones, half sentences of Python's documentation."""
    rng = random.Random(_SEED)
    writer = TemplateWriter(rng)
    sixth = count // 6
    own = [
        *writer.write("everyday", sixth),
        *writer.write("figures", sixth),
        *writer.short(_WORDS, sixth),
    ]
    documented = sorted(set(_documented()))
    rng.shuffle(documented)
    return [*own, *documented[: count - len(own)]]


def _documented() -> Iterator[str]:
    joined = " ".join(" ".join(pydoc_data.topics.topics.values()).split())
    for sentence in re.split(r"(?<=[.!?])\s+", joined):
        words = sum(any(map(str.isalpha, word)) for word in sentence.split())
        if 1 <= words <= _MOST_WORDS and len(sentence) <= _MOST_CHARACTERS:
            yield sentence


def read_all(engine: Engine, spoken: Sequence[str]) -> list[Ending]:
    """Reads texts, several at a time, each with a seed of its own."""

    def read(item: tuple[int, str]) -> Ending:
        seed, text = item
        audio = engine.stream(text, seed=seed, listener=False).read()
        frames = sum(map(expected_frames, normalise(text).text.split()))
        takes_s = frames * engine.frame_s
        return Ending(text, round(audio.duration_s, 2), round(takes_s, 2), fault_of(audio, takes_s))

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(read, enumerate(spoken)))


def fault_of(audio: Audio, expected_s: float) -> str:
    """Why a reading did not end where its text did; empty where it did."""
    if audio.finish_reason is not FinishReason.END:
        return f"ended by {audio.finish_reason}"
    if audio.duration_s > _LONGEST * expected_s + _SPARE_S:
        return "too long"
    if audio.duration_s < _SHORTEST * expected_s - _SPARE_S / 4:
        return "too short"
    loud = np.flatnonzero(np.abs(audio.pcm.astype(np.int32)) > _SILENT * 32767)
    silence_s = audio.duration_s - (loud[-1] if len(loud) else 0) / audio.sample_rate_hz
    return f"{silence_s:.1f} s of silence at the end" if silence_s > _LONGEST_SILENCE_S else ""
