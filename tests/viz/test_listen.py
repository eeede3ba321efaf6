"""From the engine's streams to the player's rows."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from viz.fakes import FakeEngine, FakeStream
from waiting import wait_for

from voxserve.core.errors import (
    InvalidInput,
    RequestCancelled,
    RequestFailed,
    RequestRejected,
    VoxserveError,
)
from voxserve.viz.listen import Listening
from voxserve.viz.player import Player

ENDINGS = [
    (RequestRejected("overloaded"), {"type": "stop", "stream": 4, "state": "refused"}, True),
    (RequestCancelled("cancelled"), {"type": "stop", "stream": 4}, False),
    (RequestFailed("broken"), {"type": "end", "stream": 4}, True),
]


@pytest.mark.parametrize(("error", "message", "is_reported"), ENDINGS)
def test_a_row_says_how_a_stream_without_sound_ended(
    error: VoxserveError, message: dict[str, Any], is_reported: bool
) -> None:
    sent: list[dict[str, Any]] = []
    told: list[str] = []
    player = Player(rate_hz=24000)
    player.add(4, "four")
    player.send = lambda message, buffers=(): sent.append(message)
    engine = FakeEngine("refusing")
    stream = FakeStream(engine, 4)
    stream.items.put(error)
    Listening(engine, player, told.append)._deliver(stream)
    assert sent == [message]
    assert told == ([str(error)] if is_reported else [])
    assert player.heard[4].is_done


class Busy(FakeEngine):
    """Accepts a request once `free` is set."""

    def __init__(self) -> None:
        super().__init__("busy", speed=40.0)
        self.free = threading.Event()

    def stream(self, text: Any, **options: Any) -> FakeStream:
        assert self.free.wait(10)
        return super().stream(text, **options)


def test_a_row_is_there_before_the_request_is_accepted_and_keeps_its_mix() -> None:
    engine, player = Busy(), Player(rate_hz=24000)
    listening = Listening(engine, player, pytest.fail)
    listening.speak_all(["one two three", "four five six"])
    wait_for(lambda: len(player.streams) == 2)
    assert {label for _, label in player.streams} == {"one two three", "four five six"}
    places = [number for number, _ in player.streams]
    assert player.waiting == places
    player.muted, player.solo = places[:1], places[1:]
    engine.free.set()
    wait_for(lambda: sorted(number for number, _ in player.streams) == [1, 2])
    assert player.muted == [player.streams[0][0]]
    wait_for(lambda: not player.waiting and not listening.active)
    assert sorted(player.heard) == [1, 2]


def test_what_is_stopped_before_it_is_accepted_is_cancelled_then() -> None:
    engine, player = Busy(), Player(rate_hz=24000)
    listening = Listening(engine, player, pytest.fail)
    listening.speak_all(["one two three"])
    wait_for(lambda: bool(player.streams))
    listening.stop()
    assert player.waiting == []
    engine.free.set()
    wait_for(lambda: 1 in player.heard)
    wait_for(lambda: 1 in engine._cancelled and not listening.active)
    assert player.heard[1].is_done


def test_a_text_that_is_refused_leaves_no_row() -> None:
    told: list[str] = []
    player = Player(rate_hz=24000)
    listening = Listening(FakeEngine("wordless"), player, told.append)
    with pytest.raises(InvalidInput):
        listening.speak(" ")
    assert (player.streams, player.waiting, player.heard) == ([], [], {})
