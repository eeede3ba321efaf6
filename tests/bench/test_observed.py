"""What is read from a trace about a run."""

import numpy as np
import pytest

from voxserve.bench.observed import observed_figures, window
from voxserve.core.chunk import Urgency, UrgencyReason
from voxserve.core.events import ChunkLife, HostDelay, LaneSpan
from voxserve.core.jobs import JobKind, LaneName

NO_TURNS = np.zeros((0, 2))


def span(lane: LaneName, kind: JobKind, batch: int, start_s: float, end_s: float) -> LaneSpan:
    return LaneSpan(lane, kind, 0, batch, batch, 0, start_s, start_s, end_s)


def chunk(index: int, ready_s: float, delivered_s: float, urgency: Urgency) -> ChunkLife:
    return ChunkLife(
        request_id=0,
        index=index,
        first_frame=0,
        num_frames=1,
        is_last=False,
        ready_s=ready_s,
        head_s=ready_s,
        urgency=urgency,
        reason=UrgencyReason.SLACK,
        promoted_s=None,
        launched_s=ready_s,
        delivered_s=delivered_s,
        deadline_s=None,
        slack_s=None,
        audio_s=0.1,
        stall_s=0.0,
        lane=LaneName.BACKGROUND,
        job_id=0,
    )


def test_lane_use_inside_the_window():
    records = [
        span(LaneName.LM, JobKind.DECODE, 4, 9.0, 11.0),
        span(LaneName.LM, JobKind.DECODE, 8, 12.0, 14.0),
        span(LaneName.LM, JobKind.PREFILL, 1, 14.0, 15.0),
        span(LaneName.URGENT, JobKind.CODEC, 2, 10.0, 12.5),
    ]
    figures = observed_figures(records, NO_TURNS, 10.0, 10.0)
    assert figures["decode_busy"] == pytest.approx(0.3)
    assert figures["decode_batch"] == 6.0
    assert figures["prefill_busy"] == pytest.approx(0.1)
    assert figures["urgent_busy"] == pytest.approx(0.25)
    assert figures["background_batch"] == 0.0


def test_urgent_share_is_of_continuation_chunks():
    records = [
        chunk(0, 0.0, 0.1, Urgency.URGENT),
        chunk(1, 0.0, 0.1, Urgency.URGENT),
        chunk(2, 0.0, 0.1, Urgency.BACKGROUND),
    ]
    assert observed_figures(records, NO_TURNS, 0.0, 1.0)["urgent_later_share"] == 0.5


def test_a_growing_backlog_has_its_slope():
    records = [chunk(1, 0.1 * i, 0.2 * i, Urgency.BACKGROUND) for i in range(200)]
    figures = observed_figures(records, NO_TURNS, 0.0, 20.0)
    assert figures["backlog_slope"] == pytest.approx(5.0, abs=0.2)


def test_host_figures():
    turns = np.array([[1e-3, 1], [2e-3, 100], [4e-3, 100]])
    figures = observed_figures([HostDelay(0.0, 0.005)], turns, 0.0, 1.0)
    assert figures["host_delay_max_ms"] == pytest.approx(5.0)
    assert figures["busiest_turn_p50_ms"] == pytest.approx(3.0)
    assert figures["most_active"] == 100


def test_no_trace_no_figures():
    assert observed_figures([], NO_TURNS, 0.0, 1.0) == {}


def test_a_window_keeps_what_happened_inside():
    inside = [
        span(LaneName.LM, JobKind.DECODE, 4, 0.9, 1.5),
        chunk(0, 0.1, 1.9, Urgency.URGENT),
        HostDelay(1.0, 0.005),
    ]
    outside = [
        span(LaneName.LM, JobKind.DECODE, 4, 1.9, 2.1),
        chunk(1, 1.5, 2.5, Urgency.URGENT),
        HostDelay(0.9, 0.005),
    ]
    assert window([*inside, *outside], 1.0, 2.0) == tuple(inside)
