"""Controls offer what is prepared, wait for the trace, and undo what the engine refuses."""

from __future__ import annotations

import threading

import pytest
from viz.fakes import PREPARED, FakeEngine

from voxserve.core.errors import InvalidSetting
from voxserve.core.settings import Split
from voxserve.viz.controls import Controls
from voxserve.viz.history import History


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def controls(engine: FakeEngine, said: list[str]) -> Controls:
    return Controls(engine, History(), said.append)


def _classes(controls: Controls, name: str) -> tuple[str, ...]:
    return controls.controls[name].widget._dom_classes


def test_only_prepared_values_are_offered(controls: Controls) -> None:
    split = controls.controls["sm_split"].widget
    assert [value for _, value in split.options] == list(PREPARED.splits)
    assert controls.controls["background_batch"].widget.max == PREPARED.codec_buckets[-1]
    assert controls.controls["max_decode_batch"].widget.options == PREPARED.decode_buckets


def test_every_control_has_a_label_and_a_tooltip(controls: Controls) -> None:
    for control in controls.controls.values():
        assert control.widget.description
        assert control.widget.tooltip


def test_a_change_is_pending_until_the_trace_has_it(controls: Controls, engine: FakeEngine) -> None:
    controls.controls["urgency_margin_s"].widget.value = 250
    assert engine.settings.urgency_margin_s == 0.25
    assert "vs-pending" in _classes(controls, "urgency_margin_s")
    controls.acknowledge(engine.trace.records())
    assert "vs-pending" not in _classes(controls, "urgency_margin_s")


def test_changes_made_elsewhere_are_shown_and_not_sent_back(
    controls: Controls, engine: FakeEngine
) -> None:
    engine.set(sm_split="none", background_batch=3)
    position = engine.trace.total
    controls.acknowledge(engine.trace.records())
    assert controls.controls["sm_split"].widget.value == Split()
    assert controls.controls["background_batch"].widget.value == 3
    assert engine.trace.total == position


def test_a_value_that_no_widget_offers_is_shown_all_the_same(
    controls: Controls, engine: FakeEngine, said: list[str]
) -> None:
    engine.set(chunk_ramp=(2, 2, 4))
    controls.acknowledge(engine.trace.records())
    assert controls.controls["chunk_ramp"].widget.value == (2, 2, 4)
    assert engine.settings.chunk_ramp == (2, 2, 4)
    assert not any(said)


def test_a_refused_value_is_explained_and_taken_back(
    controls: Controls, engine: FakeEngine, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_changes: object) -> None:
        raise InvalidSetting("background_batch: 5 is outside 1 to 4")

    monkeypatch.setattr(engine, "set", refuse)
    controls.controls["background_batch"].widget.value = 5
    assert said[-1] == "background_batch: 5 is outside 1 to 4"
    assert controls.controls["background_batch"].widget.value == 8
    assert "vs-pending" not in _classes(controls, "background_batch")


def test_a_control_works_from_a_kernel_thread_other_than_main(
    controls: Controls, engine: FakeEngine
) -> None:
    widget = controls.controls["background_batch"].widget
    thread = threading.Thread(target=lambda: widget.set_state({"value": 2}))
    thread.start()
    thread.join()
    assert engine.settings.background_batch == 2
