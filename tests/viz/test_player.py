"""The kernel's side of the player: which page plays, what it heard."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from viz.fakes import FakeEngine, FakeStream

from voxserve.core.jobs import ListenerReport
from voxserve.core.settings import Settings, Split
from voxserve.sim.fake import FAKE_PREPARED, FakeWorld
from voxserve.viz import player as module
from voxserve.viz.listen import Listening
from voxserve.viz.player import Player


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, Any], list[bytes]]]:
    return []


@pytest.fixture
def player(sent: list[Any]) -> Player:
    widget = Player(rate_hz=24000)
    widget.add(4, "four")
    widget.add(9, "nine")
    widget.send = lambda message, buffers=(): sent.append((message, list(buffers)))
    return widget


def _says(player: Player, buffers: list[bytes] | None = None, **message: Any) -> None:
    player._handle_custom_msg(message, buffers or [])


def _status(
    player: Player,
    streams: list[dict[str, Any]],
    events: Sequence[dict[str, Any]] = (),
    buffers: Sequence[bytes] = (),
    age_s: float = 0.0,
    page: str = "a",
) -> None:
    sent_ms = 1000 * (time.time() - age_s)
    message = {"type": "status", "page": page, "sent_ms": sent_ms}
    _says(player, list(buffers), **message, events=list(events), streams=streams)


def _playing(stream: int, buffered_s: float, is_playing: bool = True) -> dict[str, Any]:
    state = {"played_s": 1.0, "underruns": 1, "silent_s": 0.2, "is_playing": is_playing}
    return {"stream": stream, "buffered_s": buffered_s, **state}


def _done(stream: int, tapped: int = 0) -> dict[str, Any]:
    done = {"kind": "done", "stream": stream, "played": 2, "underruns": 1, "silent_s": 0.2}
    return done | {"tapped": tapped}


def test_pcm_goes_out_as_little_endian_int16(player: Player, sent: list[Any]) -> None:
    pcm = np.array([0, 1, -1, 32767, -32768], np.int16)
    player.push(4, pcm, end=True, chunks=[(2, 3, 0.0), (3, 2, 0.1)])
    message, (buffer,) = sent[0]
    assert (message["stream"], message["end"]) == (4, True)
    assert message["chunks"] == [(2, 3, 0.0), (3, 2, 0.1)]
    assert np.array_equal(np.frombuffer(buffer, "<i2"), pcm)


def test_the_first_page_plays_until_another_claims_it(player: Player) -> None:
    _says(player, type="hello", page="a")
    _says(player, type="hello", page="b")
    assert player.page == "a"
    _says(player, type="claim", page="b")
    assert player.page == "b"


def test_a_page_that_left_or_went_silent_is_replaced(
    player: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    _says(player, type="hello", page="a")
    _says(player, type="bye", page="a")
    _says(player, type="hello", page="b")
    assert player.page == "b"
    later_s = module.time.monotonic() + module.PAGE_TIMEOUT_S + 1
    monkeypatch.setattr(module.time, "monotonic", lambda: later_s)
    _says(player, type="hello", page="c")
    assert player.page == "b"  # a busy kernel may not have read yet what it said
    _says(player, type="state", page="b", state="running", mode="worklet")
    _says(player, type="wait", page="c")
    assert player.page == "b"
    monkeypatch.setattr(module.time, "monotonic", lambda: later_s + module.PAGE_TIMEOUT_S + 1)
    _says(player, type="wait", page="c")
    _says(player, type="wait", page="c")
    assert player.page == "c"


def test_the_solo_of_a_page_that_is_gone_silences_nothing_on_the_next(
    player: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    _says(player, type="hello", page="a")
    player.push(4, np.zeros(3, np.int16), end=True)
    player.solo = [4]
    later_s = module.time.monotonic() + module.PAGE_TIMEOUT_S + 1
    monkeypatch.setattr(module.time, "monotonic", lambda: later_s)
    _says(player, type="hello", page="b")
    _says(player, type="wait", page="b")
    assert (player.page, player.solo) == ("b", [])


def test_a_tab_that_waits_takes_the_sound_when_the_other_leaves(player: Player) -> None:
    _says(player, type="hello", page="a")
    _says(player, type="wait", page="b")
    assert player.page == "a"
    player.push(4, np.zeros(3, np.int16))
    _says(player, type="wait", page="a")  # asked before it knew that it has the sound
    assert player.page == "a"
    _says(player, type="bye", page="a")
    _says(player, type="wait", page="b")
    assert player.page == "b"


def test_what_was_sent_to_a_page_that_is_gone_is_over(player: Player) -> None:
    _says(player, type="hello", page="a")
    player.push(4, np.zeros(3, np.int16), end=True)
    player.push(9, np.zeros(3, np.int16))
    _status(player, [_playing(4, 0.5), _playing(9, 0.5)])
    _says(player, type="hello", page="a")  # its notebook was closed and reopened
    assert (player.heard[4].is_done, player.heard[9].is_done) == (True, False)
    assert not player.heard[9].is_playing
    _says(player, type="bye", page="a")
    player.end(9)  # to nobody
    assert player.heard[9].is_done


def test_without_a_page_rows_do_not_pile_up(player: Player) -> None:
    for number in range(10, 40):
        player.add(number, str(number))
        player.push(number, np.zeros(3, np.int16), end=True)
    assert len(player.streams) == len(player.heard) == module.MAX_STREAMS


def test_what_was_heard_is_kept_and_a_stall_is_told(player: Player) -> None:
    stalls: list[tuple[int, float]] = []
    player.on_stall = lambda *stall: stalls.append(stall)
    _says(player, type="hello", page="a")
    events = [{"kind": "resume", "stream": 9, "gap_s": 0.2, "tapped": 0}]
    _status(player, [_playing(9, 0.5)], events)
    assert stalls == [(9, 0.2)]
    assert player.heard[9].underruns == 1
    samples = np.array([0.5, -0.25], np.float32)
    _status(player, [], [_done(9, tapped=2)], [samples.tobytes()])
    assert player.heard[9].is_done
    assert np.array_equal(player.heard[9].tap, samples)


def test_reports_of_a_page_that_does_not_play_are_ignored(player: Player) -> None:
    _says(player, type="hello", page="a")
    _says(player, type="state", page="b", state="running", mode="worklet")
    assert player.audio_state == "no page yet"


def test_only_streams_that_sound_tell_their_buffer(player: Player) -> None:
    told: list[tuple[int, float]] = []
    player.on_buffer = lambda *report: told.append(report)
    _says(player, type="hello", page="a")
    _status(player, [_playing(4, 0.75), _playing(9, 0.5, is_playing=False)])
    assert told == [(4, pytest.approx(0.75, abs=0.01))]
    player.muted = [4]  # a muted stream plays on: its buffer still runs down
    _status(player, [_playing(4, 0.5)])
    assert len(told) == 2
    _status(player, [], [_done(4)])
    player.stop(9)
    _status(player, [_playing(4, 0.5), _playing(9, 0.5)])
    assert len(told) == 2


def test_a_report_that_waited_in_a_busy_kernel_is_corrected_or_dropped(player: Player) -> None:
    told: list[float] = []
    player.on_buffer = lambda _stream, buffered_s: told.append(buffered_s)
    _says(player, type="hello", page="a")
    _status(player, [_playing(4, 0.9)])
    _status(player, [_playing(4, 0.9)], age_s=0.3)
    _status(player, [_playing(4, 0.9)], age_s=module.STALE_S + 0.2)
    assert told == [pytest.approx(0.9, abs=0.01), pytest.approx(0.6, abs=0.01)]
    _says(player, type="claim", page="b")  # of a machine whose clock is an hour slow
    _status(player, [_playing(4, 0.9)], age_s=3600.0, page="b")
    assert told[2] == pytest.approx(0.9, abs=0.01)


def test_old_streams_lose_their_row_and_those_that_play_keep_it(player: Player) -> None:
    _says(player, type="hello", page="a")
    player.muted = [4, 9]
    _status(player, [], [_done(4)])
    for number in range(10, 10 + module.MAX_STREAMS):
        player.add(number, str(number))
    shown = [number for number, _ in player.streams]
    assert shown == [9, *range(10, 10 + module.MAX_STREAMS)]  # all of these still play
    assert player.muted == [9]


def test_a_stream_that_is_over_keeps_no_other_silent_and_takes_nothing(
    player: Player, sent: list[Any]
) -> None:
    _says(player, type="hello", page="a")
    player.solo = [4, 9]
    player.stop(4)
    _status(player, [], [_done(9)])
    assert player.solo == []
    del sent[:]
    player.push(4, np.zeros(3, np.int16))
    player.end(9)
    assert not sent


class _Engine(FakeEngine):
    """Its listeners' reports reach a scheduler in virtual time."""

    def __init__(self) -> None:
        super().__init__("reported")
        self.world = FakeWorld(Settings(sm_split=Split(100, 32)), FAKE_PREPARED)

    def report_listener(self, request_id: int, buffered_s: float) -> None:
        super().report_listener(request_id, buffered_s)
        now_s = self.world.clock.now_s()
        self.world.send(now_s, ListenerReport(request_id, buffered_s))


def test_the_schedulers_clock_follows_the_player_until_all_is_delivered(player: Player) -> None:
    engine = _Engine()
    engine.world.arrive(0.0, 4, 60)
    listening = Listening(engine, player, lambda _: None)
    listening._streams[4] = FakeStream(engine, 4)
    _says(player, type="hello", page="a")
    for step in range(5):
        engine.world.run(until_s=0.1 + 0.01 * step)  # the first chunk is there after 0.097 s
        _status(player, [_playing(4, 5.0)])
    engine.world.run(until_s=0.145)
    table = engine.world.scheduler.board.table
    moved_s = float(table.due_s[0] - table.deadline_s[0])
    assert moved_s == pytest.approx(0.010 * 0.04)  # as far as it may in 40 ms
    listening._streams.clear()
    _status(player, [_playing(4, 5.0)])
    assert len(engine.reports) == 5
