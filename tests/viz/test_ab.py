"""A/B runs both sides alike, puts the settings back, and hears what a listener would."""

from __future__ import annotations

import numpy as np
import pytest
from viz.fakes import FakeEngine

from voxserve.core.errors import InvalidSetting
from voxserve.viz.ab import AB, boundary_step


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine("ab", speed=40.0)


def test_both_sides_are_spoken_and_the_settings_put_back(engine: FakeEngine) -> None:
    before = engine.settings
    made = AB(engine, {}, {"chunk_ramp": (10,)}, ["one two three four", "five six"])
    assert engine.settings == before
    assert [len(side) for side in made.heard.values()] == [2, 2]
    assert "chunk_ramp=(10,)" in made.as_html()
    made.close()


def test_playing_sends_both_and_the_switch_mutes_one(engine: FakeEngine) -> None:
    made = AB(engine, {}, {}, "one two three")
    sent: list[dict[str, object]] = []
    made.player.send = lambda message, buffers=(): sent.append(message)
    made.play()
    assert [m["stream"] for m in sent if m["type"] == "pcm"] == [3, 4]
    made._choice.value = "B"
    gains = {m["stream"]: m["gain"] for m in sent if m["type"] == "gain"}
    assert gains == {3: 0.0, 4: 1.0}
    made.close()


def test_a_late_chunk_is_heard_as_silence(engine: FakeEngine) -> None:
    engine.late = {1: 0.5}
    made = AB(engine, {}, {}, "one two three")
    (heard,) = made.heard["A"]
    assert heard.stall_s > 0.2
    made.close()


def test_settings_are_put_back_when_a_side_is_refused(engine: FakeEngine) -> None:
    before = engine.settings
    with pytest.raises(InvalidSetting):
        AB(engine, {"background_batch": 2}, {"background_batch": 0}, "one two")
    assert engine.settings == before


def test_a_click_at_a_border_stands_out() -> None:
    wave = (1000 * np.sin(np.arange(4000) / 20)).astype(np.int16)
    assert boundary_step([wave[:2000], wave[2000:]]) <= 1.01
    assert boundary_step([wave[:2000], wave[2000:] + 3000]) > 10
    assert boundary_step([wave]) == 0.0
