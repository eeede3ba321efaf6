"""The background load's controls: what they ask for, what they show, and taking it back."""

from __future__ import annotations

import pytest
from viz.fakes import FakeEngine

from voxserve.core import workload as workloads
from voxserve.core.errors import InvalidInput
from voxserve.viz.history import History
from voxserve.viz.load import ARRIVALS, TEXTS, Load, LoadControls


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def history() -> History:
    return History()


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def controls(engine: FakeEngine, history: History, said: list[str]) -> LoadControls:
    return LoadControls(engine, history, said.append, 4.0)


@pytest.mark.parametrize("texts", TEXTS.values())
@pytest.mark.parametrize("arrivals", ARRIVALS.values())
def test_every_choice_is_a_workload_and_is_recognised(texts: str, arrivals: str) -> None:
    load = Load(texts, arrivals, 1.0)
    name = workloads.find(load.workload).name
    assert Load.of(name, 1.0) == load


def test_rate_texts_and_arrivals_change_the_load_while_it_runs(
    controls: LoadControls, engine: FakeEngine
) -> None:
    controls.texts.value = "words:5"  # nothing runs yet
    controls.rate.value = 2.0
    controls.arrivals.value = "burst:4"
    controls.rate.value = 0.0
    assert engine.loads == [("words:5", 2.0), ("words:5@burst:4", 2.0), ("words:5@burst:4", 0.0)]


def test_each_change_can_be_taken_back(
    controls: LoadControls, engine: FakeEngine, history: History
) -> None:
    controls.rate.value = 2.0
    controls.texts.value = "words:40"
    history.undo()
    assert controls.texts.value == "libritts"
    assert engine.loads[-1] == ("libritts", 2.0)
    history.undo()
    assert controls.rate.value == 0.0
    assert engine.loads[-1][1] == 0.0
    assert not history.undo()


def test_a_load_set_elsewhere_is_shown_and_not_sent_back(
    controls: LoadControls, engine: FakeEngine
) -> None:
    engine.load("file:mine.txt", rate_rps=9.0)
    controls.sync()
    assert (controls.rate.value, controls.texts.value) == (9.0, "file:mine.txt")
    engine.load("burst:64", rate_rps=1.0)
    controls.sync()
    assert (controls.texts.value, controls.arrivals.value) == ("libritts", "burst:64")
    engine.load(rate_rps=0.0)
    controls.sync()
    assert (controls.rate.value, controls.arrivals.value) == (0.0, "burst:64")
    assert len(engine.loads) == 3


def test_a_refused_load_is_explained_and_not_shown(
    controls: LoadControls, engine: FakeEngine, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise InvalidInput("a load of 3 requests per second is too much")

    monkeypatch.setattr(engine, "load", refuse)
    controls.rate.value = 3.0
    assert said[-1] == "a load of 3 requests per second is too much"
    assert controls.rate.value == 0.0


def test_every_control_has_a_label_and_a_tooltip(controls: LoadControls) -> None:
    assert all(widget.description and widget.tooltip for widget in controls.box())


def test_changes_made_as_one_are_taken_back_as_one() -> None:
    history, undone = History(), []
    with history.as_one():
        history.add(lambda: undone.append(1))
        history.add(lambda: undone.append(2))
    assert history.undo()
    assert undone == [2, 1]
    assert not history.undo()
