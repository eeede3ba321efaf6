"""Texts for background load: bundled sentences, joined to the length a workload asks for."""

from __future__ import annotations

import bisect
from functools import cache
from pathlib import Path

from voxserve.core.workload import Utterance

_FILE = Path(__file__).parent.parent / "data" / "sentences.txt"


@cache
def bundled() -> tuple[str, ...]:
    """Plain English sentences, shortest first."""
    lines = _FILE.read_text(encoding="utf-8").splitlines()
    return tuple(sorted(lines, key=lambda line: len(line.split())))


def text_of(utterance: Utterance, seed: int) -> str:
    """The utterance's own text, or bundled sentences of about as many words.

    Args:
        utterance: What the workload asks for.
        seed: Which of the sentences of a length are taken.
    """
    if utterance.text:
        return utterance.text
    picked: list[str] = []
    left = utterance.num_words
    while left > 0:
        sentence = _nearest(left, seed + len(picked))
        picked.append(sentence)
        left -= len(sentence.split())
    return " ".join(picked)


def _nearest(num_words: int, seed: int) -> str:
    """One of the five sentences around the wanted length; long texts use the long ones."""
    sentences = bundled()
    lengths = [len(sentence.split()) for sentence in sentences]
    place = bisect.bisect_left(lengths, num_words)
    first = min(max(place - 2, 0), len(sentences) - 5)
    return sentences[first + seed % 5]
