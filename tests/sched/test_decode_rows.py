"""Who gets a row when more requests run than one decode step holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.sched.stories import PREFILL_S, STEP_S, chunk, entered, world
from voxserve.core.jobs import DecodeJob
from voxserve.core.request import RequestState
from voxserve.core.settings import Settings
from voxserve.sched.policy import RunningView
from voxserve.sched.urgency import UrgencyPolicy
from voxserve.sim.fake import FakeWorld


def _order(slack_s: list[float], unserved_s: list[float] | None = None) -> list[int]:
    rows = len(slack_s)
    view = RunningView(
        now_s=10.0,
        settings=Settings(),
        slots=np.arange(rows),
        slack_s=np.array(slack_s),
        unserved_s=np.array(unserved_s or [0.0] * rows),
        is_first=np.zeros(rows, dtype=np.bool_),
        order=np.arange(rows),
    )
    return np.argsort(UrgencyPolicy().decode_keys(view), kind="stable").tolist()


def test_least_slack_first() -> None:
    assert _order([0.5, 0.1, 0.3]) == [1, 2, 0]


def test_lost_requests_go_after_savable_ones() -> None:
    assert _order([0.5, -0.1, 0.3, -0.2]) == [2, 0, 3, 1]


def test_files_go_after_listeners_but_before_lost_requests() -> None:
    assert _order([np.inf, 0.4, -0.1]) == [1, 0, 2]


def test_nobody_waits_over_a_second_for_a_row() -> None:
    assert _order([0.5, -0.1, 0.3], [0.0, 1.0, 0.9]) == [1, 2, 0]


def _rows(told: FakeWorld, at_s: float) -> set[int]:
    """Request ids of the decode step decided at a time."""
    steps = [job for job in told.jobs if isinstance(job, DecodeJob)]
    (step,) = (job for job in steps if job.queued_s == pytest.approx(at_s))
    return {int(slot) for slot in step.slots}


def _crowd(**settings: Any) -> FakeWorld:
    told = world(prepared={"decode_buckets": (1, 2)}, max_decode_batch=2, **settings)
    told.arrive(0.0, 0, 60)
    told.arrive(0.0, 1, 60)
    told.arrive(0.110, 2, 15)
    told.run(until_s=0.5)
    return told


def test_a_new_request_goes_ahead_of_those_that_have_audio_buffered() -> None:
    told = _crowd()
    admitted_s = entered(told, 2, RequestState.RUNNING).time_s
    assert 2 in _rows(told, admitted_s)
    assert chunk(told, 2, 0).ready_s == pytest.approx(admitted_s + 9 * STEP_S)


def test_prefill_first_leaves_the_newest_out() -> None:
    told = _crowd(admission="prefill_first")
    admitted_s = entered(told, 2, RequestState.RUNNING).time_s
    assert _rows(told, admitted_s) == {0, 1}


def test_equal_slack_goes_to_the_older_request() -> None:
    told = world(prepared={"decode_buckets": (1, 2)}, max_decode_batch=2)
    for request_id in range(4):
        told.arrive(0.0, request_id, 12)
    told.run(until_s=0.05)
    assert _rows(told, PREFILL_S) == {0, 1}


def test_a_step_takes_the_smallest_bucket_that_holds_its_rows() -> None:
    told = world()
    for request_id in range(5):
        told.arrive(0.0, request_id, 12)
    told.run()
    steps = [job for job in told.jobs if isinstance(job, DecodeJob)]
    assert {(len(job.slots), job.bucket) for job in steps} == {(5, 8)}
