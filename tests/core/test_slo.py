"""SLO arithmetic: what meets, what is a miss, and capacity over lower rates."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from voxserve.core import slo
from voxserve.core.slo import Outcome

GOOD = Outcome(
    arrival_s=1.0,
    is_done=True,
    ttfa_s=0.15,
    stall_s=0.0,
    num_late=0,
    num_chunks=5,
    audio_s=4.0,
    end_s=4.0,
    state="done",
)


@pytest.mark.parametrize(
    ("change", "meets"),
    [
        ({}, True),
        ({"ttfa_s": 0.2}, True),
        ({"ttfa_s": 0.201}, False),
        ({"ttfa_s": None}, False),
        ({"stall_s": 0.009}, True),
        ({"stall_s": 0.010}, False),
        ({"is_done": False}, False),
    ],
)
def test_one_request(change, meets):
    assert replace(GOOD, **change).meets(0.2) is meets


def test_rejected_and_failed_requests_are_misses():
    rejected = replace(GOOD, is_done=False, ttfa_s=None, num_chunks=0, state="rejected")
    failed = replace(GOOD, is_done=False, state="failed")
    summary = slo.summarise([GOOD, GOOD, rejected, failed], seconds=10.0)
    assert summary.attainment == 0.5
    assert summary.goodput_rps == pytest.approx(0.2)
    assert (summary.num_done, summary.num_rejected, summary.num_failed) == (2, 1, 1)


def test_both_stall_rules_and_other_targets():
    late = replace(GOOD, stall_s=0.004, num_late=1, ttfa_s=0.3)
    summary = slo.summarise([GOOD, late], seconds=10.0)
    assert summary.stalled_share == 0.0
    assert summary.no_late_share == 0.5
    assert summary.chunk_viability == pytest.approx(1 - 1 / 8)
    assert summary.attainment_at[0.2] == 0.5
    assert summary.attainment_at[0.5] == 1.0


def test_completed_rate_counts_the_time_to_drain():
    slow = [replace(GOOD, end_s=float(end)) for end in range(1, 21)]
    assert slo.summarise(slow, seconds=10.0).completed_rps == 1.0
    assert slo.summarise(slow[:10], seconds=10.0).completed_rps == 1.0


def test_no_requests():
    summary = slo.summarise([], seconds=10.0)
    assert summary.goodput_rps == 0.0
    assert math.isnan(summary.ttfa_p90_s)


def test_capacity_needs_every_lower_rate():
    attainment = {40: 1.0, 44: 0.95, 48: 0.89, 52: 0.93}
    assert slo.capacity_rps(attainment, 0.9) == 44
    assert slo.capacity_rps(attainment, 0.99) == 40
    assert slo.capacity_rps({40: 0.5}, 0.9) == 0.0
