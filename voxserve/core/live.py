"""A snapshot of every running request's next chunk, for displays."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from voxserve.core.playback import BoolArray, FloatArray


class Stage(IntEnum):
    """How far a chunk is."""

    GENERATING = 0
    READY = 1  # waits for a codec lane
    IN_FLIGHT = 2  # is being decoded


@dataclass(frozen=True, slots=True, eq=False)
class LiveChunks:
    """The next undelivered chunk of each request that somebody listens to.

    Attributes:
        time_s: When the snapshot was taken, engine clock.
        request_id, index: [chunks] int64, whose chunk and which.
        stage: [chunks] int8 of `Stage`.
        is_urgent: [chunks] bool: its class; while it is generated, what it would be if ready now.
        slack_s: [chunks] float64: time to its deadline minus the time it still needs.
    """

    time_s: float
    request_id: NDArray[np.int64]
    index: NDArray[np.int64]
    stage: NDArray[np.int8]
    is_urgent: BoolArray
    slack_s: FloatArray

    def __len__(self) -> int:
        return len(self.request_id)


def no_chunks(time_s: float = 0.0) -> LiveChunks:
    """Nothing runs."""
    ids, stages = np.zeros(0, np.int64), np.zeros(0, np.int8)
    return LiveChunks(time_s, ids, ids, stages, np.zeros(0, np.bool_), np.zeros(0))
