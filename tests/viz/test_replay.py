"""A saved trace plays in the live view, without any engine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from waiting import wait_for

from voxserve.core import trace_file
from voxserve.core.errors import InvalidInput
from voxserve.core.events import LaneSpan, SettingChange
from voxserve.core.trace_file import SavedTrace
from voxserve.sim.api import simulate
from voxserve.viz.replay import Replay


@pytest.fixture(scope="module")
def saved() -> SavedTrace:
    return simulate("h200", rate_rps=10.0, seconds=4.0, trace=True).trace()


@pytest.fixture
def replay(saved: SavedTrace) -> Iterator[Replay]:
    made = Replay(saved, speed=5.0)
    yield made
    made.close()


def test_it_stands_still_until_played_and_stops_at_the_end(
    replay: Replay, saved: SavedTrace
) -> None:
    start_s = replay.now_s
    time.sleep(0.25)
    assert replay.now_s == start_s
    replay.seek(replay._last_s - replay._first_s - 0.5)
    assert replay._play.description == "Play"
    replay.play()
    assert replay._play.description == "Pause"
    wait_for(lambda: not replay._play.value)
    assert replay._play.description == "Play"
    assert len(replay._trace) == len(saved.records)
    replay.play()  # from the start again
    wait_for(lambda: replay.now_s < replay._last_s - 1)


def test_it_opens_on_the_first_window_with_activity_and_names_what_it_shows(
    saved: SavedTrace,
) -> None:
    quiet = [SettingChange(-60.0, "margin", "0.1", "0.2"), *saved.records]
    late = [replace(r, start_s=r.start_s + 60.0, end_s=r.end_s + 60.0) for r in _spans(saved)]
    about = {"model": "vox-tiny", "device": saved.about["device"]}
    long = Replay(replace(saved, records=(*quiet, *late), about=about), name="long")
    first_s = min(span.end_s for span in _spans(saved))
    assert long.now_s == pytest.approx(first_s + long.timeline.window_s)
    assert any(isinstance(record, LaneSpan) for record in long._trace.records())
    wait_for(lambda: long._place.value == pytest.approx(long.now_s + 60.0))
    title = long.widget.children[0].value
    assert title == "<b>replay</b> long · vox-tiny · sim:h200-qwen3-tts-1.7b"
    long.close()


def _spans(saved: SavedTrace) -> list[LaneSpan]:
    return [record for record in saved.records if isinstance(record, LaneSpan)]


def test_seeking_back_shows_what_was_there_then(replay: Replay) -> None:
    replay.seek(3.0)
    many = len(replay._trace)
    replay.seek(1.0)
    assert 0 < len(replay._trace) < many
    assert replay.now_s == pytest.approx(replay._first_s + 1.0)


def test_the_sliders_moves_by_the_display_do_not_move_the_playhead(replay: Replay) -> None:
    replay.seek(2.0)
    ticks = replay._publisher.num_ticks
    wait_for(lambda: replay._publisher.num_ticks > ticks + 3)
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


@pytest.mark.parametrize("source", [5, None, [1, 2], b"x", {"a": 1}])
def test_what_is_no_trace_is_told(source: object) -> None:
    with pytest.raises(InvalidInput, match="replay"):
        Replay(source)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["soon", None, float("nan"), []])
def test_a_setting_that_is_no_time_is_told(saved: SavedTrace, value: object) -> None:
    about = {"settings": {"ttfa_target_s": value}}
    with pytest.raises(InvalidInput, match="ttfa_target_s"):
        Replay(replace(saved, about=about))
