"""Text that arrives in parts, as rows of text ids: one row for each decode step.

A row holds the word that joins the sequence before its step, or nothing. Words join at the pace of
pace.py. A sentence, or what fits in a prompt of it, is a piece: it begins with the text's mark,
ends with the end's, and leaves rows with nothing for the time in which its last words are spoken.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from voxserve.models.request import TextFeed
from voxserve.models.text.arriving import ArrivingText
from voxserve.models.vox_tiny.config import VoxTinyConfig
from voxserve.models.vox_tiny.pace import FRAMES_PER_MARK, Pace
from voxserve.models.vox_tiny.prompt import (
    MAX_PIECE_CHARACTERS,
    NOTHING,
    PromptWriter,
    check_length,
)

_LONGEST_WORD = 40  # characters; what is longer joins in parts
_ROW_IDS = _LONGEST_WORD + 3  # with the two marks and a space or stop
_ENDS, _BREAKS = (".", "!", "?"), (",", ";", ":")
# Before the first word sounds and after the last one, as 30 sentences took on average; the frame
# in which speech ends is foreseen with a standard deviation of 2.4.
_SILENT_FRAMES = 7
# A piece that is longer ends with a clause; one that another word might not fit in, with this one.
_LAST_BREAK, _LAST_WORD = MAX_PIECE_CHARACTERS - 100, MAX_PIECE_CHARACTERS - _LONGEST_WORD - 2


class WordFeed(TextFeed):
    """One request's text."""

    def __init__(self, config: VoxTinyConfig, writer: PromptWriter) -> None:
        self._config, self._writer = config, writer
        self._text = ArrivingText()
        self._arrived = 0  # characters
        self._begin_piece()

    def _begin_piece(self) -> None:
        self._pace, self._rows, self._characters = Pace(self._config.lead_words), 0, 0

    def push(self, text: str) -> NDArray[np.int32]:
        """Rows [steps, ids] that are settled by now.

        Raises:
            InvalidInput: The text is longer than a request holds, perhaps without an end.
        """
        self._arrived += len(text)
        check_length(self._arrived)
        return _padded(self._words(self._text.push(text)))

    def finish(self) -> NDArray[np.int32]:
        """Rows of the words that were held back."""
        rows = self._words(self._text.finish())
        if self._rows:  # what came last cannot be spoken: the end stands alone
            rows.append([self._config.text_eos_id])
            self._begin_piece()
        return _padded(rows)

    def _words(self, words: Sequence[str]) -> list[list[int]]:
        return [row for word in words for part in _parts(word) for row in self._word(part)]

    def _word(self, word: str) -> list[list[int]]:
        """The word's row behind those of the steps before it; an ended piece's silent rows."""
        word, is_end = self._ended(word)
        ids = [] if self._rows else [self._config.text_bos_id]
        ids += self._writer.ids(word if is_end else f"{word} ")
        rows: list[list[int]] = [[] for _ in range(self._pace.step(word) - self._rows)]
        self._rows += len(rows) + 1
        self._characters += len(word) + 1
        if not is_end:
            return [*rows, ids]
        end = self._pace.expected_end - FRAMES_PER_MARK[word[-1]] + _SILENT_FRAMES
        silent = max(0, int(end) - self._rows)
        self._begin_piece()
        return [*rows, [*ids, self._config.text_eos_id], *([] for _ in range(silent))]

    def _ended(self, word: str) -> tuple[str, bool]:
        """The word, with a stop where a long piece is cut, and whether the piece ends with it."""
        if word.endswith(_ENDS):
            return word, True
        characters = self._characters + len(word)
        is_full = characters > _LAST_WORD
        is_full |= characters > _LAST_BREAK and word.endswith(_BREAKS)
        return (f"{word.rstrip(''.join(_BREAKS))}.", True) if is_full else (word, False)


def _parts(word: str) -> list[str]:
    return [word[i : i + _LONGEST_WORD] for i in range(0, len(word), _LONGEST_WORD)]


def _padded(rows: Sequence[Sequence[int]]) -> NDArray[np.int32]:
    padded = np.full((len(rows), _ROW_IDS), NOTHING, np.int32)
    for number, row in enumerate(rows):
        padded[number, : len(row)] = row
    return padded
