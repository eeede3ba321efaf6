"""Estimated seconds of the work ahead: the cost model behind bucket look-up and a cache.

An estimate is computed once per bucket and partition, and again when the cost model was corrected.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from voxserve.core.jobs import Partition
from voxserve.core.playback import FloatArray
from voxserve.core.protocols import CostModel
from voxserve.core.settings import Prepared, Split


def bucket_for(buckets: tuple[int, ...], need: int) -> int:
    """The smallest prepared size that holds `need`; the largest when none does."""
    return buckets[min(bisect_left(buckets, need), len(buckets) - 1)]


class Estimates:
    """Seconds per stage for prepared sizes."""

    def __init__(self, cost: CostModel, prepared: Prepared) -> None:
        self._cost = cost
        self._prepared = prepared
        self._revision = cost.revision
        # By what was asked, the split as two ints: hashing a dataclass would take as long as all
        # the rest of a look-up.
        self._decode: dict[tuple[int, int, int, Partition], float] = {}
        self._codec: dict[tuple[int, int, int, int, Partition], float] = {}
        self._alone: dict[tuple[int, int, Partition], FloatArray] = {}

    def decode_s(self, rows: int, split: Split, partition: Partition) -> float:
        """A decode step in the bucket that holds `rows`."""
        self._follow()
        key = (rows, split.lm_sms, split.codec_sms, partition)
        seconds = self._decode.get(key)
        if seconds is None:
            bucket = bucket_for(self._prepared.decode_buckets, rows)
            seconds = self._decode[key] = self._cost.decode_s(bucket, split, partition)
        return seconds

    def prefill_s(self, num_tokens: int, num_prompts: int, split: Split) -> float:
        """One prefill of `num_prompts` prompts with `num_tokens` tokens together."""
        return self._cost.prefill_s(num_tokens, num_prompts, split)

    def codec_s(self, rows: int, num_frames: int, split: Split, partition: Partition) -> float:
        """A codec batch in the bucket and frame count that hold it."""
        self._follow()
        key = (rows, num_frames, split.lm_sms, split.codec_sms, partition)
        seconds = self._codec.get(key)
        if seconds is None:
            rows, num_frames = self._codec_sizes(rows, num_frames, partition)
            seconds = self._codec[key] = self._cost.codec_s(rows, num_frames, split, partition)
        return seconds

    def alone_s(self, split: Split, partition: Partition) -> FloatArray:
        """[frames + 1] float64: one chunk alone, indexed by its number of frames."""
        self._follow()
        key = (split.lm_sms, split.codec_sms, partition)
        seconds = self._alone.get(key)
        if seconds is None:
            frames = range(self._prepared.chunk_frames[-1] + 1)
            seconds = np.array([self.codec_s(1, n, split, partition) for n in frames])
            self._alone[key] = seconds
        return seconds

    def _codec_sizes(self, rows: int, num_frames: int, partition: Partition) -> tuple[int, int]:
        """The bucket and frames of the executable that takes a batch."""
        prepared = self._prepared
        is_urgent = partition is Partition.WHOLE and rows <= prepared.urgent_buckets[-1]
        buckets = prepared.urgent_buckets if is_urgent else prepared.codec_buckets
        return bucket_for(buckets, rows), bucket_for(prepared.chunk_frames, num_frames)

    def _follow(self) -> None:
        """Forgets what was computed before the last correction."""
        revision = self._cost.revision
        if revision != self._revision:
            self._revision = revision
            self._decode.clear()
            self._codec.clear()
            self._alone.clear()
