"""The one definition of deadline and stall: a player that starts with the first chunk.

Chunk i lasts a_i seconds and is delivered at t_i. It starts playing at p_1 = t_1 and
p_i = max(t_i, p_{i-1} + a_{i-1}); its deadline is d_i = p_{i-1} + a_{i-1}, the moment the audio
delivered before it runs out, and its stall max(0, t_i - d_i). `Playback` follows one stream,
`deliver_batch` moves many at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Source: VoxServe section 2.2: pauses that add up to less are not heard as a stall.
STALL_LIMIT_S = 0.010
# int16 samples beyond this count as audible: -46 dB of full scale, above a codec's noise floor.
AUDIBLE_LEVEL = 164

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


def deliver_batch(
    delivered_s: float, audio_s: FloatArray, deadline_s: FloatArray, is_playing: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """`Playback.deliver` for one chunk of each of several streams, delivered together.

    A first chunk cannot stall. A chunk without samples (all cut as leading silence) leaves the
    clock as it is: it neither starts playback nor ends a pause.

    Args:
        delivered_s: Delivery time of all rows.
        audio_s: [rows] float64, length of the samples delivered.
        deadline_s: [rows] float64, when the audio delivered before runs out.
        is_playing: [rows] bool, whether audio was delivered before.

    Returns:
        [rows] float64 each: the chunks' stalls, and the deadlines of the chunks after them.
    """
    late_s: FloatArray = np.maximum(delivered_s - deadline_s, 0.0, dtype=np.float64)
    start_s: FloatArray = np.maximum(deadline_s, delivered_s, dtype=np.float64)
    is_audible = audio_s > 0.0
    goes_on = is_playing & is_audible
    if np.count_nonzero(goes_on) == len(goes_on):  # nearly every batch
        return late_s, start_s + audio_s
    start_s = np.where(is_playing, start_s, delivered_s)
    return late_s * goes_on, np.where(is_audible, start_s + audio_s, deadline_s)


@dataclass(slots=True)
class Playback:
    """One stream's modelled player.

    Attributes:
        deadline_s: Deadline of the next chunk; the first one's is its TTFA target.
        is_playing: Whether audio was delivered.
        first_audio_s: When the first audio was delivered, or None.
        stall_s: Pauses so far, added up.
        num_late: Chunks delivered after their deadline.
        audio_s: Audio delivered so far.
    """

    deadline_s: float
    is_playing: bool = False
    first_audio_s: float | None = None
    stall_s: float = 0.0
    num_late: int = 0
    audio_s: float = 0.0

    def deliver(self, delivered_s: float, audio_s: float) -> float:
        """Takes a chunk and returns its stall in seconds."""
        if audio_s <= 0.0:
            return 0.0
        stall_s = 0.0
        if self.is_playing:
            stall_s = max(0.0, delivered_s - self.deadline_s)
            self.deadline_s = max(delivered_s, self.deadline_s) + audio_s
        else:
            self.is_playing = True
            self.first_audio_s = delivered_s
            self.deadline_s = delivered_s + audio_s
        self.stall_s += stall_s
        self.num_late += stall_s > 0.0
        self.audio_s += audio_s
        return stall_s

    @property
    def has_stalled(self) -> bool:
        """Whether pauses add up to a stall by the 10 ms rule."""
        return self.stall_s >= STALL_LIMIT_S
