"""The kernel's side of the player: which page plays, what it heard."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from voxserve.viz import player as module
from voxserve.viz.player import Player


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, Any], list[bytes]]]:
    return []


@pytest.fixture
def player(sent: list[Any]) -> Player:
    widget = Player(rate_hz=24000)
    widget.send = lambda message, buffers=(): sent.append((message, list(buffers)))
    return widget


def _says(player: Player, buffers: list[bytes] | None = None, **message: Any) -> None:
    player._handle_custom_msg(message, buffers or [])


def test_pcm_goes_out_as_little_endian_int16(player: Player, sent: list[Any]) -> None:
    pcm = np.array([0, 1, -1, 32767, -32768], np.int16)
    player.push(4, pcm, end=True, chunk=2)
    message, (buffer,) = sent[0]
    assert (message["stream"], message["end"], message["chunk"]) == (4, True, 2)
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
    assert player.page == "c"


def test_what_was_heard_is_kept_and_a_stall_is_told(player: Player) -> None:
    stalls: list[int] = []
    player.on_stall = lambda stream, _gap_s: stalls.append(stream)
    _says(player, type="hello", page="a")
    state = {"buffered_s": 0.5, "played_s": 1.0, "underruns": 1, "silent_s": 0.2}
    events = [{"kind": "underrun", "stream": 9, "at_s": 1.0, "tapped": 0}]
    _says(player, type="status", page="a", events=events, streams=[{"stream": 9, **state}])
    assert stalls == [9]
    assert player.heard[9].underruns == 1
    samples = np.array([0.5, -0.25], np.float32)
    done = {"kind": "done", "stream": 9, "played": 2, "underruns": 1, "silent_s": 0.2, "tapped": 2}
    _says(player, [samples.tobytes()], type="status", page="a", events=[done], streams=[])
    assert player.heard[9].is_done
    assert np.array_equal(player.heard[9].tap, samples)


def test_reports_of_a_page_that_does_not_play_are_ignored(player: Player) -> None:
    _says(player, type="hello", page="a")
    _says(player, type="state", page="b", state="running", mode="worklet")
    assert player.audio_state == "no page yet"
