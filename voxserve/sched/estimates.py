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
        self._decode: dict[tuple[int, Split, Partition], float] = {}
        self._codec: dict[tuple[int, int, Split, Partition], float] = {}
        self._alone: dict[tuple[Split, Partition], FloatArray] = {}

    def decode_s(self, rows: int, split: Split, partition: Partition) -> float:
        """A decode step in the bucket that holds `rows`."""
        self._follow()
        bucket = bucket_for(self._prepared.decode_buckets, rows)
        key = (bucket, split, partition)
        if key not in self._decode:
            self._decode[key] = self._cost.decode_s(bucket, split, partition)
        return self._decode[key]

    def prefill_s(self, num_tokens: int, num_prompts: int, split: Split) -> float:
        """One prefill of `num_prompts` prompts with `num_tokens` tokens together."""
        return self._cost.prefill_s(num_tokens, num_prompts, split)

    def codec_s(self, rows: int, num_frames: int, split: Split, partition: Partition) -> float:
        """A codec batch in the bucket and frame count that hold it."""
        self._follow()
        buckets = (
            self._prepared.urgent_buckets
            if partition is Partition.WHOLE and rows <= self._prepared.urgent_buckets[-1]
            else self._prepared.codec_buckets
        )
        rows = bucket_for(buckets, rows)
        num_frames = bucket_for(self._prepared.chunk_frames, num_frames)
        key = (rows, num_frames, split, partition)
        if key not in self._codec:
            self._codec[key] = self._cost.codec_s(rows, num_frames, split, partition)
        return self._codec[key]

    def alone_s(self, split: Split, partition: Partition) -> FloatArray:
        """[frames + 1] float64: one chunk alone, indexed by its number of frames."""
        self._follow()
        key = (split, partition)
        if key not in self._alone:
            largest = self._prepared.chunk_frames[-1]
            self._alone[key] = np.array(
                [self.codec_s(1, n, split, partition) for n in range(largest + 1)]
            )
        return self._alone[key]

    def _follow(self) -> None:
        """Forgets what was computed before the last correction."""
        revision = self._cost.revision
        if revision != self._revision:
            self._revision = revision
            self._decode.clear()
            self._codec.clear()
            self._alone.clear()
