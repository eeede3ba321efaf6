"""Text to prompt pieces: what vox-tiny can read, how long a piece may be, how long it may speak."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from voxserve.core.errors import InvalidInput
from voxserve.models.request import Piece, PreparedRequest, SpeechOptions
from voxserve.models.text.normalise import normalise
from voxserve.models.text.pieces import cut
from voxserve.models.vox_tiny.config import VoxTinyConfig

MAX_PIECE_CHARACTERS = 300  # of 330 in training
NUM_TEXT_MARKS = 2  # ids around the characters of a piece
MAX_TEXT_CHARACTERS = 20_000
# The voice takes 0.63 frames per character and 9 of silence; of 48 pieces of 3 to 130 characters
# none took 13 more. A runaway does.
_FRAMES_PER_CHARACTER = 0.9
_SPARE_FRAMES = 22
NOTHING = 0  # fills a row of streamed text; no text id


def piece_budget(characters: int) -> int:
    """Frames a piece of so many characters may have before it counts as a runaway."""
    return math.ceil(_SPARE_FRAMES + _FRAMES_PER_CHARACTER * characters)


def check_length(characters: int) -> None:
    """Refuses a text that is longer than a request holds.

    Raises:
        InvalidInput: Says how many characters are spoken.
    """
    if characters > MAX_TEXT_CHARACTERS:
        raise InvalidInput(
            f"the text has {characters:,} characters; at most {MAX_TEXT_CHARACTERS:,} are "
            "spoken in one request: split it"
        )


class PromptWriter:
    """Writes prompts in the characters of the checkpoint's text table."""

    def __init__(self, config: VoxTinyConfig) -> None:
        self._config = config
        self._ids = {
            character: config.first_char_id + place
            for place, character in enumerate(config.characters)
        }

    def write(self, text: str, options: SpeechOptions) -> PreparedRequest:
        """Normalises a text and cuts it into prompts.

        Raises:
            InvalidInput: The text is too long or has no words.
        """
        check_length(len(text))
        spoken = normalise(text)
        if not spoken.text:
            shown = text.strip()[:40]
            raise InvalidInput(f"nothing to say: {shown!r} has no words that can be spoken")
        pieces = tuple(self._piece(part) for part in cut(spoken.text, MAX_PIECE_CHARACTERS))
        budget = sum(piece_budget(len(piece.text)) for piece in pieces)
        if options.min_frames is not None:
            budget = max(budget, options.min_frames)
        if options.max_frames is not None:
            budget = min(budget, options.max_frames)
        return PreparedRequest(pieces, budget, options, spoken.notes)

    def write_streamed(self, first: NDArray[np.int32], options: SpeechOptions) -> PreparedRequest:
        """The prompt of a text of which only the first word is known.

        Args:
            first: The first row of a feed.
            options: As asked for.
        """
        piece = self._prompt(first[first != NOTHING].tolist(), "")
        budget = max(piece_budget(MAX_TEXT_CHARACTERS), options.min_frames or 0)
        if options.max_frames is not None:
            budget = min(budget, options.max_frames)
        return PreparedRequest((piece,), budget, options, is_text_complete=False)

    def ids(self, text: str) -> list[int]:
        """Text ids of spoken characters."""
        return [self._ids[character] for character in text]

    def _piece(self, text: str) -> Piece:
        config = self._config
        return self._prompt([config.text_bos_id, *self.ids(text), config.text_eos_id], text)

    def _prompt(self, text_ids: list[int], text: str) -> Piece:
        ids = np.zeros((len(text_ids) + 1, 1 + self._config.num_codebooks), np.int32)
        mask = np.zeros(ids.shape, np.bool_)
        ids[:, 0], mask[:, 0] = [*text_ids, self._config.audio_bos_id], True
        return Piece(ids, mask, None, text)
