"""Cuts a spoken text into pieces short enough for one prompt: at sentences, clauses, then words."""

from __future__ import annotations

import math
import re

_SENTENCE_END = re.compile(r"(?<=[.!?]) +")
_CLAUSE_END = re.compile(r"(?<=[,;:]) +")
_MARKS = ",;:"


def cut(text: str, limit: int) -> list[str]:
    """Pieces of at most `limit` characters, each with final punctuation.

    Args:
        text: From `normalise`.
        limit: Longest piece, in characters.

    Returns:
        Pieces in order; words are broken only where one alone is longer than the limit.
    """
    return [
        piece for sentence in _SENTENCE_END.split(text) for piece in _fit(sentence.strip(), limit)
    ]


def _fit(sentence: str, limit: int) -> list[str]:
    ended = _ended(sentence)
    if len(ended) <= limit:
        return [ended] if ended.strip(".!?") else []
    for parts in (_CLAUSE_END.split(sentence), sentence.split(" "), _halves(sentence)):
        if len(parts) > 1:
            # A part gets a full stop where it was cut.
            return [p for part in _packed(parts, limit - 1) for p in _fit(part, limit)]
    raise AssertionError("a sentence above the limit can always be cut")


def _packed(parts: list[str], limit: int) -> list[str]:
    """Joins neighbours to pieces of about equal length, none above the limit if parts allow."""
    total = sum(len(part) + 1 for part in parts)
    goal = total / math.ceil(total / limit)
    packed = [parts[0]]
    for part in parts[1:]:
        joined = f"{packed[-1]} {part}"
        # Take a part in while that brings the piece nearer to the goal.
        nearer = abs(len(joined) - goal) <= abs(len(packed[-1]) - goal)
        if len(joined) <= limit and nearer:
            packed[-1] = joined
        else:
            packed.append(part)
    return packed


def _halves(word: str) -> list[str]:
    return [word[: len(word) // 2], word[len(word) // 2 :]]


def _ended(piece: str) -> str:
    piece = piece.rstrip(_MARKS + " ")
    return piece if piece.endswith((".", "!", "?")) else f"{piece}."
