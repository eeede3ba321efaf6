"""Text to prompt pieces: what vox-tiny can read, how long a piece may be, how long it may speak."""

from __future__ import annotations

import numpy as np

from voxserve.core.errors import InvalidInput
from voxserve.models.base import Piece, PreparedRequest, SpeechOptions
from voxserve.models.vox_tiny.config import VoxTinyConfig


class PromptWriter:
    """Writes prompts in the characters of the checkpoint's text table."""

    max_prompt_tokens = 256

    def __init__(self, config: VoxTinyConfig) -> None:
        self.config = config
        self._ids = {
            character: config.first_char_id + place
            for place, character in enumerate(config.characters)
        }

    def write(self, text: str, options: SpeechOptions) -> PreparedRequest:
        """Prompt of a text in plain letters."""
        spoken = "".join(c for c in text.lower() if c in self._ids).strip()
        if not any(c.isalpha() for c in spoken):
            raise InvalidInput("nothing to say: the text has no words")
        ids = [self.config.text_bos_id, *(self._ids[c] for c in spoken), self.config.audio_bos_id]
        rows = np.zeros((len(ids), 1 + self.config.num_codebooks), np.int32)
        rows[:, 0] = ids
        mask = np.zeros_like(rows, bool)
        mask[:, 0] = True
        budget = 25 + 2 * len(spoken)
        if options.max_frames is not None:
            budget = min(budget, options.max_frames)
        return PreparedRequest((Piece(rows, mask, None, spoken),), budget, options)
