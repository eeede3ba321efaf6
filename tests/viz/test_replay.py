"""A saved trace plays in the live view; other settings are tried on recorded arrivals."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from viz.fakes import FakeEngine

from voxserve.core import trace_file
from voxserve.core.errors import InvalidInput, InvalidSetting
from voxserve.core.trace_file import SavedTrace
from voxserve.sim.api import simulate
from voxserve.viz import whatif
from voxserve.viz.replay import Replay
from voxserve.viz.whatif import what_if


@pytest.fixture(scope="module")
def saved() -> SavedTrace:
    return simulate("h200", rate_rps=10.0, seconds=4.0, trace=True).trace()


@pytest.fixture
def replay(saved: SavedTrace) -> Iterator[Replay]:
    made = Replay(saved, speed=5.0)
    yield made
    made.close()


def _until(condition: Callable[[], Any]) -> None:
    end_s = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def test_it_stands_still_until_played_and_stops_at_the_end(
    replay: Replay, saved: SavedTrace
) -> None:
    start_s = replay.now_s
    time.sleep(0.25)
    assert replay.now_s == start_s
    replay.seek(replay._last_s - replay._first_s - 0.5)
    replay.play()
    _until(lambda: not replay._play.value)
    assert len(replay._trace) == len(saved.records)
    replay.play()  # from the start again
    _until(lambda: replay.now_s < replay._last_s - 1)


def test_seeking_back_shows_what_was_there_then(replay: Replay) -> None:
    replay.seek(3.0)
    many = len(replay._trace)
    replay.seek(1.0)
    assert 0 < len(replay._trace) < many
    assert replay.now_s == pytest.approx(replay._first_s + 1.0)


def test_the_sliders_moves_by_the_display_do_not_move_the_playhead(replay: Replay) -> None:
    replay.seek(2.0)
    ticks = replay._publisher.num_ticks
    _until(lambda: replay._publisher.num_ticks > ticks + 3)
    assert replay.now_s == pytest.approx(replay._first_s + 2.0)
    assert replay._place.value == pytest.approx(2.0)
    replay._place.value = 1.0  # the user
    assert replay.now_s == pytest.approx(replay._first_s + 1.0)


def test_a_file_is_read_and_a_second_replay_of_it_closes_the_first(
    saved: SavedTrace, tmp_path: Path
) -> None:
    file = tmp_path / "run.trace.gz"
    trace_file.save(saved, file)
    first, second = Replay(file), Replay(file)
    assert not first._publisher._thread.is_alive()
    second.close()


def test_an_empty_trace_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no records"):
        Replay([])


class Recorded(FakeEngine):
    """An engine of a simulated device whose trace was made by the simulator."""

    def __init__(self, saved: SavedTrace) -> None:
        super().__init__("recorded")
        self.device_name = "sim:h200"
        for record in saved.records:
            self.trace.append(record)
        self._settings = simulate("h200", rate_rps=5.0, seconds=2.0).settings

    def now_s(self) -> float:
        return 20.0


def test_the_same_settings_change_nothing_and_other_ones_are_told(saved: SavedTrace) -> None:
    engine = Recorded(saved)
    same = what_if(engine)
    assert all(before == after for _, before, after in same.rows())
    other = what_if(engine, lane_mode="time_sharing")
    assert other.changes == {"lane_mode": "partitioned_urgent → time_sharing"}
    assert len(other.before.outcomes) == len(other.after.outcomes) > 10
    assert "time_sharing" in other.as_html()
    assert len(other.figure().data) == 2 * len(whatif._LOOKS)


def test_what_cannot_be_simulated_is_refused(saved: SavedTrace) -> None:
    with pytest.raises(InvalidInput, match="no profile of cpu"):
        what_if(FakeEngine())
    with pytest.raises(InvalidSetting):
        what_if(Recorded(saved), background_batch=0)
