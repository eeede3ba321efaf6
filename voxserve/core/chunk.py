"""A chunk: a fixed run of one request's frames, decoded in one codec call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray


class Urgency(StrEnum):
    """Class of a ready head chunk."""

    URGENT = "urgent"
    BACKGROUND = "background"


class UrgencyReason(StrEnum):
    """Why a chunk got its class, in the words the workbench shows."""

    FIRST = "first chunk"
    MARGIN = "inside the urgency margin"
    SLACK = "has slack"
    NO_LISTENER = "nobody listens"


@dataclass(slots=True, unsafe_hash=True)  # never changed; freezing would take 10 x as long
class ChunkRef:
    """Names a chunk in jobs and events.

    Attributes:
        request_id: Owner.
        slot: Device-side place of the owner's codes and codec state.
        index: 0 for the first chunk.
        first_frame: First frame of the chunk within the request.
        num_frames: Valid frames (a last chunk can be short; 0 for a pure flush).
        is_last: The codec flushes its delayed samples after these frames.
    """

    request_id: int
    slot: int
    index: int
    first_frame: int
    num_frames: int
    is_last: bool


@dataclass(slots=True, eq=False)
class Chunks:
    """The chunks of one batch, column by column, in row order.

    A batch has dozens of chunks and there are hundreds of batches a second: whoever needs numbers
    reads columns; a `ChunkRef` is made for a row only when somebody asks for it.

    Attributes:
        request_id, slot, index, first_frame, num_frames: [chunks] int64, as in `ChunkRef`.
        is_last: [chunks] bool.
    """

    request_id: NDArray[np.int64]
    slot: NDArray[np.int64]
    index: NDArray[np.int64]
    first_frame: NDArray[np.int64]
    num_frames: NDArray[np.int64]
    is_last: NDArray[np.bool_]

    @classmethod
    def of(cls, refs: Sequence[ChunkRef]) -> Chunks:
        """The columns of given chunks."""

        def ints(values: Iterable[int]) -> NDArray[np.int64]:
            return np.fromiter(values, np.int64, len(refs))

        return cls(
            ints(ref.request_id for ref in refs),
            ints(ref.slot for ref in refs),
            ints(ref.index for ref in refs),
            ints(ref.first_frame for ref in refs),
            ints(ref.num_frames for ref in refs),
            ints(ref.is_last for ref in refs) == 1,
        )

    def picked(self, rows: Sequence[int]) -> Chunks:
        """Some of the rows, in the order given."""
        at = np.array(rows, dtype=np.int64)
        return Chunks(
            self.request_id[at],
            self.slot[at],
            self.index[at],
            self.first_frame[at],
            self.num_frames[at],
            self.is_last[at],
        )

    def __len__(self) -> int:
        return len(self.slot)

    def __getitem__(self, row: int) -> ChunkRef:
        return ChunkRef(
            int(self.request_id[row]),
            int(self.slot[row]),
            int(self.index[row]),
            int(self.first_frame[row]),
            int(self.num_frames[row]),
            bool(self.is_last[row]),
        )

    def __iter__(self) -> Iterator[ChunkRef]:
        return map(
            ChunkRef,
            self.request_id.tolist(),
            self.slot.tolist(),
            self.index.tolist(),
            self.first_frame.tolist(),
            self.num_frames.tolist(),
            self.is_last.tolist(),
        )
