"""What timing a stage gives, and its line in a profile."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from voxserve.core.profile import StageTime


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of repeated runs.

    Attributes:
        median_s, p10_s, p90_s: Of the samples.
        samples: How many.
    """

    median_s: float
    p10_s: float
    p90_s: float
    samples: int


def stage_time(
    stage: str,
    rows: int,
    timing: Timing,
    sms: int = 0,
    *,
    tokens: int = 0,
    frames: int = 0,
    beside: Iterable[str] = (),
    lane: str = "",
    split: str = "",
) -> StageTime:
    """A profile's line (see `StageTime` for the fields)."""
    return StageTime(
        stage=stage,
        rows=rows,
        seconds=timing.median_s,
        sms=sms,
        tokens=tokens,
        frames=frames,
        beside=tuple(beside),
        lane=lane,
        split=split,
        p10_s=timing.p10_s,
        p90_s=timing.p90_s,
        samples=timing.samples,
    )
