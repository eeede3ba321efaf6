"""Text to prompt pieces: what vox-tiny can read, how long a piece may be, how long it may speak."""

from __future__ import annotations

import math

import numpy as np

from voxserve.core.errors import InvalidInput
from voxserve.models.base import Piece, PreparedRequest, SpeechOptions
from voxserve.models.text.normalise import normalise
from voxserve.models.text.pieces import cut
from voxserve.models.vox_tiny.config import VoxTinyConfig
from voxserve.models.vox_tiny.lead_in import LEAD_IN_CODES, LEAD_IN_TEXT

# Beyond about 160 characters in one prompt the model loses its place in the text.
MAX_PIECE_CHARACTERS = 140
MAX_TEXT_CHARACTERS = 20_000
# The voice takes 0.63 frames per character and 9 of silence; of 48 pieces of 3 to 130 characters
# none took 13 more. A runaway does.
_FRAMES_PER_CHARACTER = 0.9
_SPARE_FRAMES = 22


def piece_budget(characters: int) -> int:
    """Frames a piece of so many characters may have before it counts as a runaway."""
    return math.ceil(_SPARE_FRAMES + _FRAMES_PER_CHARACTER * characters)


class PromptWriter:
    """Writes prompts in the characters of the checkpoint's text table."""

    def __init__(self, config: VoxTinyConfig) -> None:
        self._config = config
        self._ids = {
            character: config.first_char_id + place
            for place, character in enumerate(config.characters)
        }
        self.max_prompt_tokens = len(LEAD_IN_TEXT) + MAX_PIECE_CHARACTERS + 2 + len(LEAD_IN_CODES)
        # Of the text rows of a prompt, those that are not the piece itself.
        self.extra_text_rows = len(LEAD_IN_TEXT) + 2

    def write(self, text: str, options: SpeechOptions) -> PreparedRequest:
        """Normalises a text and cuts it into prompts.

        Raises:
            InvalidInput: The text is too long or has no words.
        """
        if len(text) > MAX_TEXT_CHARACTERS:
            raise InvalidInput(
                f"the text has {len(text):,} characters; at most {MAX_TEXT_CHARACTERS:,} are "
                "spoken in one request: split it"
            )
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

    def _piece(self, text: str) -> Piece:
        config = self._config
        words = [self._ids[character] for character in LEAD_IN_TEXT + text]
        prompt = [config.text_bos_id, *words, config.audio_bos_id]
        tokens = len(prompt) + len(LEAD_IN_CODES)
        ids = np.zeros((tokens, 1 + config.num_codebooks), np.int32)
        mask = np.zeros(ids.shape, np.bool_)
        ids[: len(prompt), 0], mask[: len(prompt), 0] = prompt, True
        ids[len(prompt) :, 1:], mask[len(prompt) :, 1:] = LEAD_IN_CODES, True
        return Piece(ids, mask, None, text)
