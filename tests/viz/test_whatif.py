"""The last seconds served again in another process, and drawn as ghosts."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

import pytest
from viz.fakes import FakeEngine

from voxserve.core import profile as profiles
from voxserve.core.errors import InvalidInput, InvalidSetting, VoxserveError
from voxserve.core.events import LaneSpan
from voxserve.core.trace_file import SavedTrace
from voxserve.sim.api import simulate
from voxserve.sim.device import prepared_of
from voxserve.viz.whatif import Question, what_if

END_S = 6.0


@pytest.fixture(scope="module")
def saved() -> SavedTrace:
    return simulate("h200", rate_rps=10.0, seconds=END_S, trace=True).trace()


class Recorded(FakeEngine):
    """An engine of a simulated device whose trace was made by the simulator."""

    def __init__(self, saved: SavedTrace) -> None:
        super().__init__("recorded")
        self.device_name = "sim:h200"
        for record in saved.records:
            self.trace.append(record)
        result = simulate("h200", rate_rps=5.0, seconds=0.5)
        self._settings = result.settings
        self.prepared = prepared_of(profiles.load("h200"))

    def now_s(self) -> float:
        return END_S


def test_the_same_settings_change_nothing_and_other_ones_are_told(saved: SavedTrace) -> None:
    engine = Recorded(saved)
    shares: list[float] = []
    other = Question(engine, 4.0, lane_mode="time_sharing").answer(shares.append)
    assert other.changes == {"lane_mode": "partitioned_urgent → time_sharing"}
    assert other.before.num_requests == other.after.num_requests > 10
    # The simulation of what a simulation did is what it did.
    assert other.before.ttfa_p90_s == pytest.approx(other.measured.ttfa_p90_s, abs=0.02)
    assert "lane_mode time_sharing, last 4 s: TTFA p90" in other.words()
    assert "simulated otherwise" in other.as_html()
    assert shares == sorted(shares)
    assert shares[-1] > 0.8
    spans = [r for r in other.ghost if isinstance(r, LaneSpan)]
    assert spans
    assert all(END_S - 4.0 <= s.end_s <= END_S + 1.0 for s in spans)
    rows = {row for bar in other.figure(4.0).data if bar.type == "bar" for row in bar.y}
    assert {"LM", "↳ LM"} <= rows


def test_without_a_profile_stage_times_come_from_the_trace() -> None:
    engine = FakeEngine(speed=30.0)
    for _ in range(2):
        list(engine.stream("one two three four five"))
    time.sleep(engine.settings.ttfa_target_s)  # a request counts once its first audio is due
    answer = what_if(engine, 10.0, background_batch=1)
    assert answer.measured.num_requests == answer.before.num_requests == 2
    assert any(isinstance(record, LaneSpan) for record in answer.ghost)


def test_what_cannot_be_simulated_is_refused(saved: SavedTrace) -> None:
    with pytest.raises(InvalidInput, match="no request arrived"):
        what_if(FakeEngine())
    with pytest.raises(InvalidSetting):
        what_if(Recorded(saved), background_batch=0)


def test_a_question_is_dropped_for_another(saved: SavedTrace) -> None:
    question = Question(Recorded(saved), 4.0)
    failed = _fails_after(question, question.cancel)
    assert "another one took its place" in failed


def test_whoever_stops_listening_waits_no_longer(saved: SavedTrace) -> None:
    class StopListeningError(Exception):
        pass

    def interrupt(_share: float) -> None:
        raise StopListeningError

    question = Question(Recorded(saved), 4.0)
    with pytest.raises(StopListeningError):
        question.answer(interrupt)
    process = question._aside._process
    assert process is not None
    assert process.returncode not in (None, 0)


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_an_interrupt_of_the_kernel_is_not_the_simulations(saved: SavedTrace) -> None:
    """A notebook sends it to the kernel and all its children."""
    question = Question(Recorded(saved), 4.0)

    def interrupt(_share: float) -> None:
        assert question._aside._process is not None
        question._aside._process.send_signal(signal.SIGINT)

    assert question.answer(interrupt).after.num_requests > 10


def _fails_after(question: Question, stop: Callable[[], None]) -> str:
    """Asks on another thread, stops it, and returns what asking raised."""
    failed: list[str] = []

    def ask() -> None:
        try:
            question.answer()
        except VoxserveError as error:
            failed.append(str(error))

    asking = threading.Thread(target=ask)
    asking.start()
    time.sleep(0.05)
    stop()
    asking.join(10)
    assert not asking.is_alive()
    return failed[0]
