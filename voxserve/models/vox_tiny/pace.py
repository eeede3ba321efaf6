"""When the words of a streamed text join the sequence: as fast as they will probably be spoken.

A streamed text gives the model one word per step at most, and a word only when the one `lead`
words before it is expected to begin. The order of words and frames then depends on the text
alone, not on when it was typed: a slow writer only makes the voice wait.
"""

from __future__ import annotations

import numpy as np

# Frames per letter, per word, and per pause, fitted to 1,200 texts of the teacher (residual 1.1
# frames per word) and shortened by 4 %, so that words come rather early than late.
FRAMES_PER_LETTER = 0.72
FRAMES_PER_WORD = 0.1
FRAMES_PER_MARK = {",": 3.5, ";": 6.2, ":": 6.2, ".": 6.2, "!": 6.2, "?": 6.2}


def expected_frames(word: str) -> float:
    """Frames from a word's begin to the next one's, with the pause that its marks make."""
    marks = sum(FRAMES_PER_MARK.get(character, 0.0) for character in word)
    letters = sum(character.isalpha() for character in word)
    return FRAMES_PER_WORD + FRAMES_PER_LETTER * letters + marks


class Pace:
    """Steps before which the words of one prompt join, word by word.

    Attributes:
        expected_end: Frame at which the words so far are expected to have been spoken.
    """

    def __init__(self, lead_words: int) -> None:
        """Begins a prompt.

        Args:
            lead_words: Words that are known ahead.
        """
        self._lead = lead_words
        self._starts: list[float] = []
        self._shift = 0
        self.expected_end = 0.0

    def step(self, word: str) -> int:
        """Step before which the next word joins: after those of the words before."""
        place = len(self._starts)
        self._starts.append(self.expected_end)
        self.expected_end += expected_frames(word)
        # In fp32, as in training: a step's border is often a whole number of frames.
        wanted = int(np.float32(self._starts[max(0, place - self._lead)]))
        self._shift = max(self._shift, wanted - place)
        return self._shift + place
