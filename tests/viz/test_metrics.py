"""The numbers column says what the trace says."""

from __future__ import annotations

import pytest
from viz.records import chunk, span, state

from voxserve.core.jobs import JobKind, LaneName
from voxserve.core.request import RequestState
from voxserve.viz.metrics import LiveNumbers


def _served(request_id: int, arrival_s: float, ttfa_s: float, stall_s: float, end: RequestState):
    first_s = arrival_s + ttfa_s
    return [
        state(request_id, RequestState.WAITING, arrival_s),
        chunk(request_id, 0, delivered_s=first_s, deadline_s=arrival_s + 0.2),
        chunk(request_id, 1, delivered_s=first_s + 0.8, deadline_s=first_s + 0.7, stall_s=stall_s),
        state(request_id, end, first_s + 1.0),
    ]


def test_attainment_counts_late_stalled_and_failed_but_not_cancelled() -> None:
    numbers = LiveNumbers(window_s=10.0)
    numbers.add(_served(1, 0.0, 0.1, 0.0, RequestState.DONE))  # meets it
    numbers.add(_served(2, 0.0, 0.3, 0.0, RequestState.DONE))  # late first audio
    numbers.add(_served(3, 0.0, 0.1, 0.02, RequestState.DONE))  # stalls
    numbers.add(_served(4, 0.0, 0.1, 0.0, RequestState.FAILED))
    numbers.add(_served(5, 0.0, 0.1, 0.0, RequestState.CANCELLED))
    summary = numbers.summary(5.0, ttfa_target_s=0.2)
    assert summary.num_ended == 4
    assert summary.attainment == pytest.approx(0.25)
    assert summary.goodput_rps == pytest.approx(1 / 5)  # one in the five seconds so far
    assert summary.num_stalled == 1
    assert summary.ttfa_p50_s == pytest.approx(0.1)


def test_what_ended_before_the_window_is_forgotten() -> None:
    numbers = LiveNumbers(window_s=10.0)
    numbers.add(_served(1, 0.0, 0.1, 0.5, RequestState.DONE))
    summary = numbers.summary(30.0, ttfa_target_s=0.2)
    assert summary.num_stalled == 0
    assert summary.attainment is None
    assert not numbers.requests


def test_lane_shares_and_batches_are_of_the_last_two_seconds() -> None:
    numbers = LiveNumbers()
    numbers.add(
        [
            span(LaneName.LM, JobKind.DECODE, 5.0, 7.0, batch=50),  # before
            span(LaneName.LM, JobKind.DECODE, 8.0, 8.5, batch=2),
            span(LaneName.LM, JobKind.DECODE, 9.0, 9.5, batch=4),
        ]
    )
    summary = numbers.summary(10.0, ttfa_target_s=0.2)
    assert summary.lane_busy[LaneName.LM] == pytest.approx(0.5)
    assert summary.decode_batch == 3
    assert summary.codec_batch is None
