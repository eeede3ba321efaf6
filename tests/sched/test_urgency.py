"""The default policy's background rule by itself: B, the timer, the prefix that is in time."""

from __future__ import annotations

import numpy as np
import pytest

from voxserve.core.settings import Settings
from voxserve.sched.policy import BackgroundView, HeadChunks
from voxserve.sched.urgency import UrgencyPolicy

ROW_S = 0.020  # of a background batch
DUE_S = 1.0


def _view(
    now_s: float, rows: int, *, others: int = 100, lm_is_idle: bool = False
) -> BackgroundView:
    due_s = DUE_S + 0.001 * np.arange(rows)
    heads = HeadChunks(
        now_s, np.arange(rows), due_s, np.zeros(rows, dtype=np.bool_), np.full(rows, 10)
    )
    return BackgroundView(
        heads=heads,
        settings=Settings(background_batch=8, urgency_margin_s=0.1),
        max_batch=64,
        lm_is_idle=lm_is_idle,
        codec_s=lambda count: ROW_S * count,
        can_be_ready=lambda until_s: rows + others,
    )


def test_b_chunks_leave_at_once_up_to_the_largest_batch() -> None:
    policy = UrgencyPolicy()
    assert policy.background(_view(0.0, 7)).rows == 0
    assert policy.background(_view(0.0, 8)).rows == 8
    assert policy.background(_view(0.0, 70)).rows == 64


@pytest.mark.parametrize(("others", "rows"), [(0, 3), (1, 0)])
def test_b_is_at_most_what_can_still_become_ready_in_time(others: int, rows: int) -> None:
    asked_s: list[float] = []
    view = _view(0.0, 3, others=others)
    can_be_ready = view.can_be_ready
    view.can_be_ready = lambda until_s: asked_s.append(until_s) or can_be_ready(until_s)
    assert UrgencyPolicy().background(view).rows == rows
    assert asked_s == [pytest.approx(DUE_S - 0.1 - 3 * ROW_S)]  # the timer


def test_the_timer_counts_the_margin_and_the_batch_that_waits() -> None:
    timer_s = DUE_S - 0.1 - 3 * ROW_S
    early = UrgencyPolicy().background(_view(timer_s - 0.001, 3))
    assert (early.rows, early.look_again_s) == (0, pytest.approx(timer_s))
    assert UrgencyPolicy().background(_view(timer_s, 3)).rows == 3


@pytest.mark.parametrize(("left_s", "rows"), [(0.100, 5), (0.099, 4), (0.040, 2), (0.001, 1)])
def test_too_late_for_all_the_longest_prefix_in_time_leaves(left_s: float, rows: int) -> None:
    """The lane was busy when the timer fired, or the LM lane went idle only now."""
    assert UrgencyPolicy().background(_view(DUE_S - left_s, 6)).rows == rows
    assert UrgencyPolicy().background(_view(DUE_S - left_s, 6, lm_is_idle=True)).rows == rows
