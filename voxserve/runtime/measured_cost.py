"""Stage times of the machine at hand: measured when the engine starts, corrected by what jobs take.

Owns the numbers the scheduler plans with; measuring itself is the executor's.
"""

from __future__ import annotations

import bisect
from collections.abc import Hashable, Mapping

from voxserve.core.jobs import DecodeJob, Job, Partition, PrefillJob
from voxserve.core.settings import Split

# A stage's estimate moves by this share of the error of each ended job: about ten jobs to follow
# a change of load, so that one job that was preempted by something else moves it little.
_FOLLOW = 0.1
_LOWEST, _HIGHEST = 0.25, 8.0
# Estimates change in steps of this share, so that the scheduler can keep them in between.
NOTICED = 0.02


class Corrections:
    """Factors that follow what jobs really take, beside whatever else runs.

    Args:
        follow: Share of an ended job's error that a factor moves by.
        lowest, highest: Bounds of a factor.

    Attributes:
        revision: Another number whenever a factor in force has changed.
    """

    def __init__(self, follow: float, lowest: float, highest: float) -> None:
        self._follow = follow
        self._bounds = lowest, highest
        self._running: dict[Hashable, float] = {}
        self._in_force: dict[Hashable, float] = {}
        self.revision = 0

    def of(self, key: Hashable) -> float:
        """The factor in force; 1 before anything was seen."""
        return self._in_force.get(key, 1.0)

    def observe(self, key: Hashable, factor: float) -> None:
        """Takes in what a job took, in multiples of its estimate without corrections."""
        running = self._running.get(key, 1.0)
        running += self._follow * (factor - running)
        lowest, highest = self._bounds
        self._running[key] = running = min(max(running, lowest), highest)
        in_force = self.of(key)
        if abs(running - in_force) > NOTICED * in_force:
            self._in_force[key] = running
            self.revision += 1


class MeasuredCost:
    """A `CostModel` of measured points, linear between them.

    Args:
        decode_s: Seconds of a decode step by rows.
        prefill_s: Seconds of a prefill by prompt tokens.
        codec_s: Seconds of a codec batch, by frames and then by rows.

    One correction factor per stage follows the times jobs really take, beside whatever else runs.
    It moves only in `observe`, which the serving thread calls when a job's event arrives: between
    events the estimates stand still.
    """

    def __init__(
        self,
        decode_s: Mapping[int, float],
        prefill_s: Mapping[int, float],
        codec_s: Mapping[int, Mapping[int, float]],
    ) -> None:
        self._decode = Curve(decode_s)
        self._prefill = Curve(prefill_s)
        self._codec = {frames: Curve(by_rows) for frames, by_rows in sorted(codec_s.items())}
        self._corrections = Corrections(_FOLLOW, _LOWEST, _HIGHEST)

    @property
    def revision(self) -> int:
        """Another number whenever a correction has moved."""
        return self._corrections.revision

    def decode_s(self, rows: int, split: Split, partition: Partition) -> float:
        """One decode step of `rows` rows."""
        return self._corrections.of("decode") * self._decode.at(rows)

    def prefill_s(self, num_tokens: int, num_prompts: int, split: Split) -> float:
        """One prefill of `num_tokens` prompt tokens."""
        return self._corrections.of("prefill") * self._prefill.at(num_tokens)

    def codec_s(self, rows: int, num_frames: int, split: Split, partition: Partition) -> float:
        """One codec batch of `rows` chunks of `num_frames` frames."""
        return self._corrections.of("codec") * self._codec_base(rows, num_frames)

    def observe(self, job: Job, seconds: float) -> None:
        """Corrects the estimates by what an ended job took."""
        if isinstance(job, DecodeJob):
            stage, expected = "decode", self._decode.at(len(job.slots))
        elif isinstance(job, PrefillJob):
            stage, expected = "prefill", self._prefill.at(job.num_tokens)
        else:
            longest = int(job.chunks.num_frames.max())
            stage, expected = "codec", self._codec_base(len(job.chunks), longest)
        self._corrections.observe(stage, seconds / expected)

    def _codec_base(self, rows: int, num_frames: int) -> float:
        by_frames = {frames: curve.at(rows) for frames, curve in self._codec.items()}
        return Curve(by_frames).at(num_frames)


class Curve:
    """Piecewise linear through measured points; beyond the last, its last slope goes on."""

    def __init__(self, points: Mapping[int, float]) -> None:
        ordered = sorted(points.items())
        assert ordered, "a cost curve needs at least one measured point"
        self._x = [x for x, _ in ordered]
        self._y = [y for _, y in ordered]
        # Timings are noisy: more work never counts as faster.
        for i in range(1, len(self._y)):
            self._y[i] = max(self._y[i], self._y[i - 1])

    def points(self) -> list[tuple[float, float]]:
        """The points it goes through, ascending."""
        return list(zip(self._x, self._y, strict=True))

    def at(self, x: float) -> float:
        """The value at `x`."""
        if len(self._x) == 1 or x <= self._x[0]:
            return self._y[0]
        right = min(bisect.bisect_left(self._x, x), len(self._x) - 1)
        left = right - 1
        slope = (self._y[right] - self._y[left]) / (self._x[right] - self._x[left])
        return self._y[left] + slope * (x - self._x[left])
