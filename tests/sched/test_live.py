"""Stories of what displays see of chunks that are under way."""

from __future__ import annotations

import pytest

from tests.sched.stories import FIRST_S, STEP_S, URGENT_S, world
from voxserve.core.live import LiveChunks, Stage
from voxserve.sched.live import live_chunks
from voxserve.sim.fake import FakeWorld


def _at(told: FakeWorld, now_s: float) -> LiveChunks:
    told.run(until_s=now_s)
    return live_chunks(told.scheduler.board, now_s)


def test_a_first_chunk_is_generated_and_decoded_in_the_open() -> None:
    told = world()
    told.arrive(0.0, 1, 30)
    assert len(_at(told, 0.0)) == 1
    made = _at(told, FIRST_S - 1.5 * STEP_S)
    assert (made.stage[0], bool(made.is_urgent[0])) == (Stage.GENERATING, True)
    need_s = 2 * STEP_S + URGENT_S  # two frames are missing
    assert made.slack_s[0] == pytest.approx(0.2 - (FIRST_S - 1.5 * STEP_S) - need_s)
    flying = _at(told, FIRST_S + 0.5 * URGENT_S)
    assert (flying.stage[0], flying.index[0]) == (Stage.IN_FLIGHT, 0)
    assert flying.slack_s[0] == pytest.approx(0.2 - FIRST_S - URGENT_S)


def test_a_chunk_that_waits_for_a_batch_is_ready_and_has_slack() -> None:
    told = world(background_batch=2)
    told.arrive(0.0, 1, 60)
    told.arrive(0.0, 2, 60)
    told.run(until_s=FIRST_S + 10.4 * STEP_S)
    seen = live_chunks(told.scheduler.board, told.clock.now_s())
    assert set(seen.stage.tolist()) <= {Stage.GENERATING, Stage.READY, Stage.IN_FLIGHT}
    assert seen.request_id.tolist() == [1, 2]
    assert not seen.is_urgent.any()
    assert (seen.slack_s > 0.5).all()


def test_nobody_listening_and_nothing_left_are_not_shown() -> None:
    told = world()
    told.arrive(0.0, 1, 20, has_listener=False)
    assert len(_at(told, 0.02)) == 0
    told.arrive(0.1, 2, 10)
    told.run()
    assert len(live_chunks(told.scheduler.board, told.clock.now_s())) == 0
