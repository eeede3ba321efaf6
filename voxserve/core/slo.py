"""Service levels: what one request experienced, what a run amounts to, and capacity.

A request meets the SLO when it completes, its TTFA is within the target and it does not stall.
Rejected and failed requests are misses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from voxserve.core.playback import STALL_LIMIT_S

TTFA_TARGETS_S = (0.2, 0.25, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a request experienced.

    Attributes:
        arrival_s: When it was made, seconds after the load began.
        is_done: It completed; rejected, failed, cancelled and unfinished ones did not.
        ttfa_s: Arrival to first audio, None when none came.
        audible_ttfa_s: Arrival to the first audible sample, None when unknown.
        stall_s: Sum of its stalls.
        num_late: Chunks delivered after their deadline (the first chunk has none).
        num_chunks: Chunks delivered.
        audio_s: Audio delivered.
        end_s: When it reached its final state (as `arrival_s`), None when it did not.
        state: Its final state, or "unfinished".
    """

    arrival_s: float
    is_done: bool
    ttfa_s: float | None
    stall_s: float
    num_late: int
    num_chunks: int
    audio_s: float
    end_s: float | None
    state: str
    audible_ttfa_s: float | None = None

    @property
    def is_stalled(self) -> bool:
        """Pauses add up to 10 ms or more (the paper's rule)."""
        return self.stall_s >= STALL_LIMIT_S

    def meets(self, ttfa_target_s: float) -> bool:
        """Whether it meets the SLO at this target."""
        if not self.is_done or self.ttfa_s is None or self.is_stalled:
            return False
        return self.ttfa_s <= ttfa_target_s


@dataclass(frozen=True, slots=True)
class Summary:
    """What the requests of one run amount to; times in seconds, shares of offered requests.

    Attributes:
        attainment: Share that meets the SLO at the target.
        attainment_at: The same at the usual other targets.
        goodput_rps: Requests per second that met it.
        completed_rps: Completed requests over the time until the last one ended.
        no_late_share: Share of completed requests without any late chunk (the stricter rule).
        chunk_viability: Share of continuation chunks that came in time.
    """

    num_offered: int
    num_done: int
    num_rejected: int
    num_failed: int
    attainment: float
    attainment_at: Mapping[float, float]
    goodput_rps: float
    completed_rps: float
    stalled_share: float
    no_late_share: float
    chunk_viability: float
    ttfa_p50_s: float
    ttfa_p90_s: float
    ttfa_p99_s: float
    audio_s: float


def summarise(outcomes: Sequence[Outcome], seconds: float, ttfa_target_s: float = 0.2) -> Summary:
    """Sums up one run.

    Args:
        outcomes: Of every counted request.
        seconds: Length of the arrival window.
        ttfa_target_s: The SLO's target.
    """
    count = max(1, len(outcomes))
    done = [item for item in outcomes if item.is_done]
    ttfa_s = [item.ttfa_s for item in outcomes if item.ttfa_s is not None]
    p50, p90, p99 = percentiles(ttfa_s, (50, 90, 99))
    later = sum(max(0, item.num_chunks - 1) for item in outcomes)
    late = sum(item.num_late for item in outcomes)
    at = {
        target: sum(item.meets(target) for item in outcomes) / count
        for target in sorted({*TTFA_TARGETS_S, ttfa_target_s})
    }
    span_s = max([seconds, *(item.end_s or 0.0 for item in done)])
    return Summary(
        num_offered=len(outcomes),
        num_done=len(done),
        num_rejected=sum(item.state == "rejected" for item in outcomes),
        num_failed=sum(item.state == "failed" for item in outcomes),
        attainment=at[ttfa_target_s],
        attainment_at=at,
        goodput_rps=at[ttfa_target_s] * count / seconds if outcomes else 0.0,
        completed_rps=len(done) / span_s,
        stalled_share=sum(item.is_stalled for item in outcomes) / count,
        no_late_share=sum(item.num_late == 0 for item in done) / max(1, len(done)),
        chunk_viability=1.0 - late / later if later else 1.0,
        ttfa_p50_s=p50,
        ttfa_p90_s=p90,
        ttfa_p99_s=p99,
        audio_s=sum(item.audio_s for item in outcomes),
    )


def percentiles(values: Sequence[float], points: Iterable[float]) -> tuple[float, ...]:
    """Percentiles; NaN without values."""
    if not values:
        return tuple(float("nan") for _ in points)
    return tuple(float(value) for value in np.percentile(values, list(points)))


def capacity_rps(attainment_by_rate: Mapping[float, float], threshold: float) -> float:
    """Highest tested rate with attainment at or above the threshold there and at every lower one.

    Args:
        attainment_by_rate: Attainment by offered rate, at least one.
        threshold: Such as 0.9 or 0.99.

    Returns:
        Requests per second; 0 when the lowest tested rate already misses.
    """
    capacity = 0.0
    for rate_rps in sorted(attainment_by_rate):
        if attainment_by_rate[rate_rps] < threshold:
            break
        capacity = rate_rps
    return capacity
