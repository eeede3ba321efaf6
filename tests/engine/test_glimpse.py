"""Displays are answered just after a step's launch, and at all when there are no steps."""

from __future__ import annotations

import threading

import numpy as np
from waiting import wait_for

from voxserve.core.jobs import DecodeJob, Partition
from voxserve.core.live import LiveChunks
from voxserve.core.settings import Settings, Split
from voxserve.engine.glimpse import Glimpse
from voxserve.sim.fake import FAKE_PREPARED, FakeWorld

STEP = DecodeJob(0, np.zeros(1, np.int32), 1, 0.0, Split(), Partition.WHOLE)


class Display:
    """Somebody who looks, on a thread of its own."""

    def __init__(self, glimpse: Glimpse) -> None:
        self.seen: list[LiveChunks] = []
        self._thread = threading.Thread(target=lambda: self.seen.append(glimpse.look()))
        self._thread.start()

    def join(self) -> LiveChunks:
        self._thread.join(10)
        return self.seen[0]


def test_a_turn_that_launches_no_step_does_not_answer_but_the_next_step_does() -> None:
    woken: list[None] = []
    glimpse = Glimpse(lambda: woken.append(None))
    world = FakeWorld(Settings(), FAKE_PREPARED)
    glimpse.take(world.scheduler.board, 1.0, [STEP])  # nobody looks
    display = Display(glimpse)
    wait_for(lambda: glimpse._is_wanted)
    if not woken:  # else this machine is slow
        glimpse.take(world.scheduler.board, 2.0, [])
        assert not display.seen
    glimpse.take(world.scheduler.board, 3.0, [STEP])
    assert display.join().time_s == 3.0


def test_without_steps_a_turn_is_asked_for() -> None:
    world = FakeWorld(Settings(), FAKE_PREPARED)
    glimpse = Glimpse(lambda: glimpse.take(world.scheduler.board, 5.0, []))
    assert Display(glimpse).join().time_s == 5.0


def test_a_display_whose_wish_a_turn_took_for_anothers_is_answered_too() -> None:
    world = FakeWorld(Settings(), FAKE_PREPARED)

    class Overlooked(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            glimpse._is_wanted &= glimpse._is_overdue  # as a turn does that answers another one
            return super().wait(0.0)

    glimpse = Glimpse(lambda: glimpse.take(world.scheduler.board, 5.0, []))
    glimpse._is_taken = Overlooked()
    assert glimpse.look().time_s == 5.0
