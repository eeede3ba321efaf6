"""What no view can show is told to whoever passed it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from viz.fakes import FakeEngine
from viz.records import span

from voxserve.core.errors import InvalidInput, InvalidSetting
from voxserve.core.jobs import JobKind, LaneName
from voxserve.core.trace_file import SavedTrace
from voxserve.viz.ab import AB
from voxserve.viz.replay import Replay
from voxserve.viz.whatif import what_if
from voxserve.viz.workbench import Workbench


@pytest.fixture
def bench() -> Iterator[Workbench]:
    made = Workbench(FakeEngine())
    yield made
    made.close()


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf"), 1e9, "x", None, True])
def test_a_window_that_cannot_be_shown_is_told(bench: Workbench, wrong: Any) -> None:
    for show in (bench.figure, bench.png, bench.what_if):
        with pytest.raises(InvalidInput, match="window"):
            show(wrong)


@pytest.mark.parametrize("seconds", [1e-3, np.float32(0.5), 3600])
def test_every_window_that_is_taken_can_be_drawn(bench: Workbench, seconds: float) -> None:
    bench.speak("one")
    assert bench.figure(seconds).data
    assert bench.png(seconds)[:4] == b"\x89PNG"


@pytest.mark.parametrize("wrong", [-1, 0, float("nan"), "x"])
def test_a_wrong_rate_leaves_the_workbench_that_is_open(bench: Workbench, wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="max_rate_rps"):
        Workbench(bench.engine, max_rate_rps=wrong)
    assert not bench._is_closed


class OtherEngine:
    """Has what an engine has only once it is made."""


@pytest.mark.parametrize("wrong", [None, "vox-tiny", FakeEngine, OtherEngine(), 3])
def test_what_is_no_engine_is_told_how_to_make_one(wrong: Any) -> None:
    for show in (
        lambda: Workbench(wrong),
        lambda: AB(wrong, {}, {}, "one"),
        lambda: what_if(wrong),
    ):
        with pytest.raises(InvalidInput, match=r"is no engine; make one: voxserve\.Engine\(\)"):
            show()


@pytest.mark.parametrize("wrong", [None, 3, b"one", ["one"]])
def test_a_workbenchs_text_is_a_text(bench: Workbench, wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="is not a text"):
        Workbench(bench.engine, text=wrong)
    assert not bench._is_closed


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"texts": ""}, "empty"),
        ({"texts": ["one", " \n"]}, "empty"),
        ({"texts": []}, "at least one text"),
        ({"texts": None}, "at least one text"),
        ({"texts": ["one", 2]}, "is not a text"),
        ({"rate_rps": float("nan")}, "rate_rps nan is not a finite number"),
        ({"rate_rps": -1}, "rate_rps -1 is not a finite number"),
        ({"rate_rps": "20"}, "rate_rps '20' is not a finite number"),
        ({"rate_rps": 1e9}, "more than 10000 requests/s"),
        ({"measure_s": None}, "measure_s None is not a finite number"),
        ({"settle_s": float("inf")}, "settle_s inf is not a finite number"),
        ({"seed": 0.5}, "seed 0.5 is not a whole number"),
        ({"workload": "none"}, "none"),
        ({"a": None}, "a None is not like"),
        ({"b": {"urgent_batch": 4}}, "fixed at start"),
        ({"b": {"background_batch": 0}}, "outside 1 to 8"),
    ],
)
def test_a_comparison_that_cannot_be_made_is_told_before_anything_runs(
    wrong: dict[str, Any], told: str
) -> None:
    engine = FakeEngine()
    arguments: dict[str, Any] = {"a": {}, "b": {}, "texts": "one"} | wrong
    with pytest.raises((InvalidInput, InvalidSetting), match=told):
        AB(engine, **arguments)
    assert not engine.loads
    assert not engine.stats().done + engine.stats().running


@pytest.mark.parametrize(
    "wrong", [{"speed": 0}, {"speed": float("nan")}, {"speed": "fast"}, {"name": 3}]
)
def test_a_wrong_replay_leaves_the_one_that_is_open(wrong: dict[str, Any]) -> None:
    records = [span(LaneName.LM, JobKind.DECODE, 1.0, 1.5)]
    replay = Replay(records)
    with pytest.raises(InvalidInput):
        Replay(records, **wrong)
    about = {"settings": {"ttfa_target_s": "soon"}}
    with pytest.raises(InvalidInput, match="not seconds"):
        Replay(SavedTrace(tuple(records), 0.08, 24_000, about))
    assert replay.timeline.comm is not None
    replay.close()
