"""The streamed text of one slot: rows that arrived, and where in its text the speech is.

Each frame takes one row. A piece's speech may end before its rows do, or go on after them: then
silence is repeated, or the next piece's rows wait. A frame is made only when as many rows have
arrived as frames, so what is read depends on the text alone.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from voxserve.models.vox_tiny.config import VoxTinyConfig
from voxserve.models.vox_tiny.prompt import NOTHING


class SlotText:
    """One request's.

    Attributes:
        is_silent: The speech of a piece has ended and the next one's has not begun.
        is_open: Words of the piece that is read are still to come.
        has_taken: The step that runs has taken a row.
        characters: Of the piece that is read, as far as it was, its marks included.
    """

    def __init__(self, config: VoxTinyConfig) -> None:
        self._bos, self._eos = config.text_bos_id, config.text_eos_id
        self._rows: deque[list[int]] = deque()
        self._is_complete = False
        self.is_silent, self.is_open, self.has_taken = False, True, True
        self.characters = 0

    def append(self, rows: NDArray[np.int32], is_complete: bool) -> None:
        """Adds rows [steps, ids]."""
        self._rows.extend([id for id in row if id != NOTHING] for row in rows.tolist())
        self._is_complete = is_complete

    def take(self) -> list[int]:
        """Ids of this step's row; none, too, where the row waits for the end of its predecessor."""
        next_row = self._rows[0] if self._rows else None
        begins_piece = bool(next_row) and next_row[0] == self._bos
        self.has_taken = next_row is not None and (self.is_silent or not begins_piece)
        return self._rows.popleft() if self.has_taken else []

    @property
    def is_over(self) -> bool:
        """No rows are left and none will come."""
        return self._is_complete and not self._rows

    def begin(self) -> None:
        """Begins a piece."""
        self.is_silent, self.characters = False, 0

    def segments(self, ids: list[int]) -> list[list[int]]:
        """A row's ids as they are encoded: the end of the text apart from its last word."""
        is_end = ids[-1] == self._eos
        self.is_open = not is_end
        self.characters += len(ids)
        parts = [ids[:-1], ids[-1:]] if is_end else [ids]
        return [part for part in parts if part]
