"""Stage times of the machine at hand: measured when the engine starts, corrected by what jobs take.

Owns the numbers the scheduler plans with; measuring itself is the executor's.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping

from voxserve.core.jobs import CodecJob, DecodeJob, Job, Partition, PrefillJob
from voxserve.core.settings import Split

# A stage's estimate moves by this share of the error of each ended job: about ten jobs to follow
# a change of load, so that one job that was preempted by something else moves it little.
_FOLLOW = 0.1
_LOWEST, _HIGHEST = 0.25, 8.0


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
        self.factors = {"prefill": 1.0, "decode": 1.0, "codec": 1.0}

    def decode_s(self, rows: int, split: Split, partition: Partition) -> float:
        """One decode step of `rows` rows."""
        return self.factors["decode"] * self._decode.at(rows)

    def prefill_s(self, num_tokens: int, num_prompts: int, split: Split) -> float:
        """One prefill of `num_tokens` prompt tokens."""
        return self.factors["prefill"] * self._prefill.at(num_tokens)

    def codec_s(self, rows: int, num_frames: int, split: Split, partition: Partition) -> float:
        """One codec batch of `rows` chunks of `num_frames` frames."""
        return self.factors["codec"] * self._codec_base(rows, num_frames)

    def observe(self, job: Job, seconds: float) -> None:
        """Corrects the estimates by what an ended job took."""
        if isinstance(job, DecodeJob):
            stage, expected = "decode", self._decode.at(len(job.slots))
        elif isinstance(job, PrefillJob):
            stage, expected = "prefill", self._prefill.at(job.num_tokens)
        else:
            stage, expected = "codec", self._codec_base(len(job.chunks), _longest(job))
        error = seconds / expected - self.factors[stage]
        factor = self.factors[stage] + _FOLLOW * error
        self.factors[stage] = min(max(factor, _LOWEST), _HIGHEST)

    def _codec_base(self, rows: int, num_frames: int) -> float:
        by_frames = {frames: curve.at(rows) for frames, curve in self._codec.items()}
        return Curve(by_frames).at(num_frames)


def _longest(job: CodecJob) -> int:
    return max(chunk.num_frames for chunk in job.chunks)


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
