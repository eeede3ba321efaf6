"""Normalises a text that arrives in parts: gives words as soon as nothing can change them.

Most words are read alone; numbers, dates, abbreviations and capitals are read with their
neighbours. So a text is split between plain words only, and what stands between two splits is
normalised together. Where it is split depends on the text, not on its parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from voxserve.models.text.normalise import normalise
from voxserve.models.text.tables import ABBREVIATIONS

# Possessive and from a word's begin only: a word without an end is looked at once, not squared.
_WORD = re.compile(r"(?<!\S)(\S++)(\s+)")
_SPACE = re.compile(r"\s")
_PLAIN = re.compile(r"(I|[A-Z]?[a-z]+(?:['\u2019-][a-z]+)*)([,;:.!?]?)\Z")
_NOT_PLAIN = frozenset({"no.", "st."})  # beside the abbreviations: No. 5, St. Mary
_PARAGRAPH = re.compile(r"\n\s*\n")
# A longer run of figures and capitals is split anyway: a speaker cannot wait for its end.
_MOST_WORDS = 12


class ArrivingText:
    """One text."""

    def __init__(self) -> None:
        self._text = ""

    def push(self, text: str) -> list[str]:
        """Spoken words that are settled by now; possibly none."""
        # What cannot end a word, or begin one, is not read again with each piece.
        self._text = (self._text + text).lstrip()
        if not _SPACE.search(text):
            return []
        return [word for part in self._settled() for word in part]

    def finish(self) -> list[str]:
        """Spoken words that were held back; the last one ends a sentence."""
        words = self.push(" ")
        rest, self._text = self._text, ""
        return [*words, *normalise(rest).text.split()]

    def _settled(self) -> Iterator[list[str]]:
        """Takes what stands before each split off the text."""
        start = count = 0
        before: re.Match[str] | None = None  # the plain word just before
        for found in _WORD.finditer(self._text):
            plain = _plain(found.group(1))
            if (plain and before) or count == _MOST_WORDS:
                yield _spoken(self._text[start : found.start()])
                start, count = found.start(), 0
            count += 1
            if plain and (plain.group(2) or _PARAGRAPH.search(found.group(2))):
                yield _spoken(self._text[start : found.end()])
                start, count, plain = found.end(), 0, None
            before = plain
        self._text = self._text[start:]


def _plain(word: str) -> re.Match[str] | None:
    lowered = word.lower()
    is_short = lowered in _NOT_PLAIN or (word.endswith(".") and lowered in ABBREVIATIONS)
    return None if is_short else _PLAIN.match(word)


def _spoken(part: str) -> list[str]:
    """Words of a part, with the mark that stands at its end and no other."""
    words = normalise(part).text.split()
    if words:
        written = part.rstrip()
        mark = written[-1]
        if mark not in ",;:.!?":
            mark = "." if _PARAGRAPH.search(part, len(written)) else ""
        words[-1] = words[-1].rstrip(",;:.!?") + mark
    return words
