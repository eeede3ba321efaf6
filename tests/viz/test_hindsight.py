"""A whole trace tells what was under way at any of its moments."""

from __future__ import annotations

import pytest
from viz.records import chunk, state

from voxserve.core.chunk import Urgency
from voxserve.core.live import Stage
from voxserve.core.request import RequestState
from voxserve.viz.hindsight import Hindsight

RECORDS = [
    state(1, RequestState.WAITING, 1.0),
    chunk(1, 0, ready_s=1.1, launched_s=1.15, delivered_s=1.2, deadline_s=1.3,
          urgency=Urgency.URGENT),
    chunk(1, 1, ready_s=1.5, launched_s=1.8, delivered_s=1.9, deadline_s=2.0),
    chunk(1, 2, delivered_s=None, deadline_s=None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("now_s", "index", "stage", "is_urgent", "slack_s"),
    [
        (1.05, 0, Stage.GENERATING, True, 1.3 - 1.05 - 0.05 - 0.05),
        (1.12, 0, Stage.READY, True, 1.3 - 1.12 - 0.05),
        (1.18, 0, Stage.IN_FLIGHT, True, 1.3 - 1.2),
        (1.3, 1, Stage.GENERATING, False, 2.0 - 1.3 - 0.2 - 0.1),
        (1.6, 1, Stage.READY, False, 2.0 - 1.6 - 0.1),
    ],
)
def test_the_next_chunk_is_shown(now_s, index, stage, is_urgent, slack_s) -> None:
    live = Hindsight(RECORDS).at(now_s)
    assert (live.index.tolist(), live.stage.tolist()) == ([index], [stage])
    assert live.is_urgent.tolist() == [is_urgent]
    assert live.slack_s[0] == pytest.approx(slack_s)


def test_before_and_after_nothing_is() -> None:
    hindsight = Hindsight(RECORDS)
    assert len(hindsight.at(0.5)) == len(hindsight.at(2.5)) == 0
    assert len(Hindsight([]).at(0.0)) == 0
