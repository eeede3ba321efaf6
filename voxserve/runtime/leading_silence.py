"""Cuts the silence before a request's first sound, so that a listener does not wait for it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from voxserve.core.playback import AUDIBLE_LEVEL

KEPT_S = 0.02  # of silence, before the first audible sample: a hard cut would click
# A first delivery with less sound than this would run out before the next chunk can come.
SHORTEST_START_S = 0.08


class LeadingSilence:
    """One request's chunks on their way out; silent ones are held back until one has sound.

    Args:
        sample_rate_hz: Of the chunks.
    """

    def __init__(self, sample_rate_hz: int) -> None:
        self._kept = round(KEPT_S * sample_rate_hz)
        self._shortest = round(SHORTEST_START_S * sample_rate_hz)
        self._held = np.zeros(0, np.int16)
        self._has_started = False

    def cut(self, pcm: NDArray[np.int16], is_last: bool) -> NDArray[np.int16]:
        """What of the chunk, and of those held back, is to be delivered now.

        Args:
            pcm: [samples] int16, the next chunk.
            is_last: Nothing follows: what is audible goes out, however short.

        Returns:
            [samples] int16; empty while nothing is audible.
        """
        if self._has_started:
            return pcm
        joined = np.concatenate([self._held, pcm])
        audible = np.flatnonzero(np.abs(joined.astype(np.int32)) > AUDIBLE_LEVEL)
        if not audible.size:
            self._held = joined[max(len(joined) - self._kept, 0) :]
            return joined[:0]
        first = int(audible[0])
        sound = joined[max(first - self._kept, 0) :]
        if len(joined) - first < self._shortest and not is_last:
            self._held = sound
            return joined[:0]
        self._has_started = True
        self._held = joined[:0]
        return sound
