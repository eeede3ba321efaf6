"""Stage times of a partitioned device: measured alone at start, corrected by what jobs take.

Owns the numbers the scheduler plans with; measuring itself is the executor's.
"""

from __future__ import annotations

from collections.abc import Mapping

from voxserve.core.jobs import CodecJob, DecodeJob, Job, Partition, PrefillJob
from voxserve.core.settings import Split
from voxserve.runtime.measured_cost import Corrections, Curve

# A stage's estimate moves by this share of the error of each ended job: measured alone, it runs
# beside the others, and the surcharge changes with the load within seconds.
_FOLLOW = 0.05
_LOWEST, _HIGHEST = 0.5, 4.0
Place = tuple[int, Partition]  # SMs of the partition (0: whole device) and which it is


def place_of(split: Split, partition: Partition) -> Place:
    """Where a job runs, for looking its time up."""
    if partition is Partition.WHOLE or split.is_none:
        return 0, Partition.WHOLE
    sms = split.lm_sms if partition is Partition.LM else split.codec_sms
    return sms, partition


class PartitionCost:
    """A `CostModel` of measured points per partition, linear between them.

    Args:
        decode_s: Seconds of a decode step by place and rows.
        prefill_s: Seconds of a prefill by prompt tokens.
        codec_s: Seconds of a codec batch by place, frames and rows.
        host_s: Added to each estimate: launching it and reading its end.

    A place without points takes the slowest that has some. Corrections move only in `observe`,
    when a job's event arrives: between events the estimates stand still.
    """

    def __init__(
        self,
        decode_s: Mapping[Place, Mapping[int, float]],
        prefill_s: Mapping[int, float],
        codec_s: Mapping[Place, Mapping[int, Mapping[int, float]]],
        host_s: float = 0.0,
    ) -> None:
        self._host_s = host_s
        self._prefill = Curve(prefill_s)
        self._decode = {place: Curve(points) for place, points in decode_s.items()}
        self._codec = {
            place: {frames: Curve(points) for frames, points in sorted(by_frames.items())}
            for place, by_frames in codec_s.items()
        }
        self._corrections = Corrections(_FOLLOW, _LOWEST, _HIGHEST)
        self._cached: dict[tuple[str, Place, int, int], float] = {}

    @property
    def revision(self) -> int:
        """Another number whenever a correction has moved."""
        return self._corrections.revision

    def decode_s(self, rows: int, split: Split, partition: Partition) -> float:
        """One decode step of `rows` rows."""
        return self._estimate("decode", place_of(split, partition), rows)

    def prefill_s(self, num_tokens: int, num_prompts: int, split: Split) -> float:
        """One prefill of `num_tokens` prompt tokens on the whole device."""
        return self._estimate("prefill", (0, Partition.WHOLE), num_tokens)

    def codec_s(self, rows: int, num_frames: int, split: Split, partition: Partition) -> float:
        """One codec batch of `rows` chunks of `num_frames` frames."""
        return self._estimate("codec", place_of(split, partition), rows, num_frames)

    def observe(self, job: Job, seconds: float) -> None:
        """Corrects the estimates by what an ended job took on its lane."""
        stage, place, size, frames = _kind(job)
        base_s = self._base(stage, place, size, frames)
        self._corrections.observe((stage, place), seconds / max(base_s, 1e-6))

    def factor(self, stage: str, place: Place) -> float:
        """What the measured times of a stage are multiplied by now."""
        return self._corrections.of((stage, place))

    def measured_ms(self) -> dict[str, dict[str, float]]:
        """The measured times, for reports: by stage and place, by size, in milliseconds."""
        tables = {"prefill on the whole device": self._prefill}
        for (sms, _), curve in self._decode.items():
            tables[f"decode on {sms or 'all'} SMs"] = curve
        for (sms, _), by_frames in self._codec.items():
            for frames, curve in by_frames.items():
                tables[f"codec, {frames} frames, on {sms or 'all'} SMs"] = curve
        return {
            name: {f"{size:g}": round(seconds * 1e3, 4) for size, seconds in curve.points()}
            for name, curve in tables.items()
        }

    def _estimate(self, stage: str, place: Place, size: int, frames: int = 1) -> float:
        return self._host_s + self.factor(stage, place) * self._base(stage, place, size, frames)

    def _base(self, stage: str, place: Place, size: int, frames: int) -> float:
        key = (stage, place, size, frames)
        if key not in self._cached:
            self._cached[key] = self._looked_up(stage, place, size, frames)
        return self._cached[key]

    def _looked_up(self, stage: str, place: Place, size: int, frames: int) -> float:
        if stage == "prefill":
            return self._prefill.at(size)
        if stage == "decode":
            curves = [self._decode[place]] if place in self._decode else self._decode.values()
            return max(curve.at(size) for curve in curves)
        tables = [self._codec[place]] if place in self._codec else self._codec.values()
        return max(
            Curve({count: curve.at(size) for count, curve in table.items()}).at(frames)
            for table in tables
        )


def _kind(job: Job) -> tuple[str, Place, int, int]:
    place = place_of(job.split, job.partition)
    if isinstance(job, DecodeJob):
        return "decode", place, len(job.slots), 1
    if isinstance(job, PrefillJob):
        return "prefill", (0, Partition.WHOLE), job.num_tokens, 1
    assert isinstance(job, CodecJob), "a job is a prefill, a decode step or a codec batch"
    return "codec", place, len(job.chunks), job.num_frames
