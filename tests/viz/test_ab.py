"""A/B runs both sides alike, puts everything back, and hears what a listener would."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from viz.fakes import FakeEngine, tone

from voxserve.core.errors import InvalidInput, InvalidSetting
from voxserve.core.request import RequestState
from voxserve.viz.ab import AB
from voxserve.viz.ab_run import Figure, boundary_step


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine("ab", speed=40.0)


def test_both_sides_are_spoken_and_the_settings_put_back(engine: FakeEngine) -> None:
    before = engine.settings
    made = AB(engine, {}, {"chunk_ramp": (10,)}, ["one two three four", "five six"])
    assert made.wait(20)
    assert engine.settings == before
    assert [len(side.spoken) for side in made.sides.values()] == [2, 2]
    assert [len(side.spoken[0].chunks) for side in made.sides.values()] == [3, 2]
    assert "chunk_ramp=(10,)" in made.as_html()
    assert all(cell in made._table.value for row in made.rows() for cell in row)
    made.close()


def test_both_sides_serve_the_same_load_and_the_one_before_goes_on(engine: FakeEngine) -> None:
    engine.load("seedtts", rate_rps=1.0)
    load = {"workload": "words:5@regular", "rate_rps": 20.0, "settle_s": 0.2, "measure_s": 1.0}
    made = AB(engine, {}, {"background_batch": 2}, "one two three", **load)
    made.wait(20)
    asked = [("libritts", 0.0), ("words:5@regular", 20.0), ("libritts", 0.0)]
    warm_up = ("libritts", 0.0)
    assert engine.loads == [("seedtts", 1.0), warm_up, *asked, *asked, ("seedtts", 1.0)]
    assert all(side.numbers.num_requests > 1 for side in made.sides.values())
    made.close()


class Starving(FakeEngine):
    """Gives its background requests nothing."""

    def _arrivals(self) -> None:
        while True:
            time.sleep(0.05)
            if self._rate_rps:
                self._ids += 1
                self._state(self._ids, RequestState.WAITING)


def test_requests_that_starve_count_and_the_load_is_measured_before_the_texts() -> None:
    engine = Starving("starving", speed=40.0)
    shown: list[str] = []
    made = AB(engine, {}, {}, "one two", rate_rps=20.0, settle_s=0.2, measure_s=1.0)
    made._table.observe(lambda change: shown.append(change["new"]), names="value")
    for side in made.sides.values():
        assert side.numbers.num_requests > 5
        assert side.numbers.attainment is not None
        assert side.numbers.attainment < 0.5
        assert side.numbers.ttfa_p90_s is not None
        assert side.numbers.ttfa_p90_s > engine.settings.ttfa_target_s
    assert any("<progress" in words and "under B" in words for words in shown)
    made.close()


@pytest.mark.parametrize("name", ["settle_s", "measure_s"])
@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_times_that_are_none_are_refused(engine: FakeEngine, name: str, seconds: float) -> None:
    with pytest.raises(InvalidInput, match=name):
        AB(engine, {}, {}, "one two", **{name: seconds})


def test_playing_sends_both_and_the_switch_mutes_one(engine: FakeEngine) -> None:
    made = AB(engine, {}, {}, "one two three")
    made.wait(20)
    sent: list[dict[str, object]] = []
    made.player.send = lambda message, buffers=(): sent.append(message)
    made.play()
    assert [m["stream"] for m in sent if m["type"] == "pcm"] == [3, 4]
    assert made.player.muted == [4]
    made._choice.value = "B"
    assert made.player.muted == [3]
    made.player.muted = [4]  # a mute button of the player
    assert made._choice.value == "A"
    made.close()


def test_a_late_chunk_is_heard_as_silence_and_marked(engine: FakeEngine) -> None:
    engine.late = {1: 0.5}
    made = AB(engine, {}, {}, "one two three")
    (spoken,) = made.sides["A"].spoken
    assert spoken.stall_s > 0.2
    pcm, parts = spoken.as_heard(engine.sample_rate_hz)
    assert len(pcm) == sum(count for _, count, _ in parts)
    assert [index for index, _, stall_s in parts if stall_s > 0.2] == [1]
    name, a, b, _ = made.rows()[1]
    assert (name, a, b) == ("stalled texts", "1 of 1", "1 of 1")
    made.close()


def test_a_cell_run_again_waits_then_closes_what_it_made_before(engine: FakeEngine) -> None:
    settings = engine.settings
    first, other = (AB(engine, {"background_batch": n}, {}, "one two three") for n in (2, 4))
    again = AB(engine, {"background_batch": 2}, {}, "one two three")
    again.wait(20)
    assert first.widget.comm is None
    assert other.widget.comm is not None
    assert engine.settings == settings  # nobody took another's settings for the engine's own
    for made in (other, again):
        made.close()


def test_what_is_refused_starts_nothing(engine: FakeEngine) -> None:
    with pytest.raises(InvalidSetting):
        AB(engine, {"background_batch": 2}, {"background_batch": 0}, "one two")
    with pytest.raises(InvalidInput, match="no workload"):
        AB(engine, {}, {}, "one two", workload="podcasts")
    with pytest.raises(InvalidInput, match="one text"):
        AB(engine, {}, {}, [])
    assert not engine.loads


def test_what_fails_while_it_runs_is_shown_and_raised(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise InvalidInput("there is no text left to speak after it was read")

    monkeypatch.setattr(engine, "stream", fail)
    before = engine.settings
    made = AB(engine, {"background_batch": 2}, {}, "…")
    with pytest.raises(InvalidInput, match="no text"):
        made.wait(20)
    assert "no text" in made._table.value
    assert engine.settings == before
    made.close()


def test_a_click_at_a_border_stands_out() -> None:
    wave = (1000 * np.sin(np.arange(4000) / 20)).astype(np.int16)
    assert boundary_step((wave[:2000], wave[2000:])) <= 1.01
    assert boundary_step((wave[:2000], wave[2000:] + 3000)) > 10
    assert boundary_step((wave,)) == 0.0


def test_differences_carry_their_sign() -> None:
    figure = Figure("first audio", 100.0, "ms")
    assert figure.difference(replace(figure, value=142.4)) == "+42 ms"
    assert figure.difference(replace(figure, value=58.0)) == "-42 ms"
    assert figure.difference(replace(figure, value=100.4)) == "="  # as both are shown
    assert figure.difference(replace(figure, value=None)) == ""
    share = Figure("attainment", 90.0, "%")
    assert share.difference(replace(share, value=95.0)) == "+5 points"


def test_both_sides_say_the_same(engine: FakeEngine) -> None:
    made = AB(engine, {}, {"chunk_ramp": (10,)}, "one two three")
    for side, request_id in zip(made.sides.values(), (2, 3), strict=True):
        assert np.array_equal(side.spoken[0].pcm[:100], tone(request_id, 0, 100))
    made.close()
