"""From the engine's streams to the player's rows."""

from __future__ import annotations

from typing import Any

import pytest
from viz.fakes import FakeEngine, FakeStream

from voxserve.core.errors import RequestCancelled, RequestFailed, RequestRejected, VoxserveError
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
