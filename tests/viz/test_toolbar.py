"""Presets, undo, the state as code, and files."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from viz.fakes import PREPARED, FakeEngine
from viz.records import change, chunk, span
from waiting import wait_for

from voxserve.core import settings as core
from voxserve.core import trace_file
from voxserve.core.jobs import JobKind, LaneName
from voxserve.core.settings import Settings, Split
from voxserve.viz import export
from voxserve.viz.load import Load
from voxserve.viz.presets import code, presets
from voxserve.viz.workbench import Workbench


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def bench(engine: FakeEngine) -> Iterator[Workbench]:
    workbench = Workbench(engine)
    yield workbench
    workbench.close()


def test_every_preset_is_valid_for_the_device(engine: FakeEngine) -> None:
    for preset in presets(PREPARED, engine.settings):
        engine.set(**preset.settings)


def test_presets_use_the_splits_a_gpu_has_prepared() -> None:
    gpu = replace(PREPARED, splits=(Split(), Split(100, 32), Split(116, 16)))
    found = {preset.name: preset.settings for preset in presets(gpu, Settings())}
    assert found["Paper default"]["sm_split"] == Split(100, 32)
    assert found["Codec starved"]["sm_split"] == Split(116, 16)
    assert found["Time sharing"]["lane_mode"] == "time_sharing"
    assert ("No urgent lane" in found) == ("partitioned" in core.LANE_MODES)


def test_a_preset_is_one_change_and_one_undo_takes_it_back(
    bench: Workbench, engine: FakeEngine
) -> None:
    engine.set(urgency_margin_s=0.4, background_batch=2)
    before = engine.settings
    bench.toolbar.preset.value = "Time sharing"
    assert engine.settings.lane_mode == "time_sharing"
    assert engine.settings.urgency_margin_s == 0.1
    assert bench.toolbar.preset.value == ""
    bench.toolbar.undo.click()
    assert engine.settings == before
    bench.toolbar.undo.click()
    assert "no change to undo" in bench._parts.detail.value


def test_the_overload_preset_raises_the_load(bench: Workbench, engine: FakeEngine) -> None:
    engine.set(background_batch=2)
    bench.toolbar.preset.value = "Overload"
    assert engine.loads == [("libritts", bench.rate.max)]
    assert engine.settings.background_batch == 8
    bench.toolbar.undo.click()  # settings and load together
    assert bench.rate.value == 0.0
    assert engine.settings.background_batch == 2


def test_the_code_reproduces_the_settings(bench: Workbench, engine: FakeEngine) -> None:
    start = engine.settings
    engine.set(background_batch=3, sm_split="none")
    bench.rate.value = 1.0
    made = bench.toolbar.as_code()
    compile(made, "code", "exec")
    assert "background_batch=3" in made
    assert "sm_split='none'" in made
    assert "engine.load('libritts', rate_rps=1)" in made
    assert "player" not in made
    bench.player.jitter_s = 0.2
    assert "workbench.player.jitter_s = 0.2" in bench.toolbar.as_code()
    assert "engine.set" not in code(start, start, "vox-tiny", "cpu", Load())


def test_files(bench: Workbench, engine: FakeEngine, tmp_path: Path) -> None:
    engine.trace.append(span(LaneName.LM, JobKind.DECODE, 1.0, 1.5, batch=4))
    engine.trace.append(chunk(1, 1, delivered_s=2.0, deadline_s=1.5, stall_s=0.5))
    engine.trace.append(change(1.2, "background_batch", "8", "4"))
    saved = trace_file.load(bench.save(tmp_path / "run.trace.gz"))
    assert saved.records == tuple(engine.trace.records())
    assert saved.about["model"] == "vox-tiny"

    events = json.loads(bench.save(tmp_path / "run.json").read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert (slices[0]["name"], slices[0]["dur"]) == ("decode 4", 500_000)
    assert {"b", "e", "i", "M"} <= {event["ph"] for event in events}

    with bench.save(tmp_path / "run.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["stall_s"] == "0.5"
    assert "deadline" in bench.save(tmp_path / "run.html").read_text(encoding="utf-8")
    assert bench.save(tmp_path / "run.png").read_bytes()[:4] == b"\x89PNG" == bench.png()[:4]


def test_an_unknown_ending_is_refused(engine: FakeEngine, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must end in"):
        export.save(engine, tmp_path / "run.txt")


def test_the_save_menu_says_where(
    bench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bench.toolbar.save.value = ".csv"
    (file,) = tmp_path.iterdir()
    assert file.name in bench._parts.detail.value


def test_what_if_is_simulated_aside_and_drawn_as_ghosts(
    bench: Workbench, engine: FakeEngine
) -> None:
    sent: list[dict[str, Any]] = []
    bench.timeline.send = lambda message, buffers=None: sent.append(message)
    list(engine.stream("one two three"))
    wait_for(lambda: engine.stats().running == 0)
    time.sleep(engine.settings.ttfa_target_s)
    bench.toolbar.what_if.value = "Time sharing"
    assert "Simulating the last 20 s" in bench._parts.detail.value
    wait_for(lambda: "simulated otherwise" in bench._parts.detail.value)
    ghost = next(message for message in sent if message["type"] == "ghost")
    assert ghost["name"] == "Time sharing"
    assert "TTFA p90" in ghost["words"]


def test_a_new_question_cancels_the_one_under_way(bench: Workbench, engine: FakeEngine) -> None:
    list(engine.stream("one two three"))
    bench.toolbar.what_if.value = "Time sharing"
    first = bench.stories._question
    bench.toolbar.what_if.value = "No urgent lane"
    assert first is not None
    assert first.is_cancelled
    wait_for(lambda: "simulated otherwise" in bench._parts.detail.value)
    assert bench._parts.status.value == ""


def test_what_if_without_any_request_says_what_is_missing(bench: Workbench) -> None:
    bench.toolbar.what_if.value = "Time sharing"
    assert "no request arrived" in bench._parts.status.value


def _suppose(bench: Workbench, setting: str, value: str) -> None:
    bench.toolbar.what_if.value = "one setting"
    bench.toolbar.suppose.setting.value = setting
    bench.toolbar.suppose.value.value = value
    bench.toolbar.suppose.run.click()


def test_any_value_of_a_setting_can_be_supposed(bench: Workbench, engine: FakeEngine) -> None:
    list(engine.stream("one two three"))
    wait_for(lambda: engine.stats().running == 0)
    time.sleep(engine.settings.ttfa_target_s)
    assert bench.toolbar.suppose.box.layout.display == "none"
    _suppose(bench, "urgency_margin_s", "37")
    assert bench.toolbar.suppose.box.layout.display == ""
    assert bench.toolbar.suppose.value.placeholder == "0 to 1000; now 100"
    wait_for(lambda: "urgency_margin_s 0.1 → 0.037" in bench._parts.detail.value)
    assert engine.settings.urgency_margin_s == 0.1


@pytest.mark.parametrize(
    ("setting", "value", "told"),
    [
        ("urgency_margin_s", "2000", "outside 0.0 to 1.0 s"),
        ("urgency_margin_s", "nan", "outside 0.0 to 1.0 s"),
        ("background_batch", "x", "not a number"),
        ("background_batch", "99", "outside 1 to 8"),
        ("max_decode_batch", "3", "it has 1, 2, 4, 8, 16"),
        ("sm_split", "9/9", "not prepared"),
        ("lane_mode", "none", "is not one of"),
        ("lane_mode", "partitioned urgent", "is partitioned urgent already"),
        ("chunk_ramp", " ", "choose or type a value"),
        ("urgency_margin_s", "100", "is 100 already"),
    ],
)
def test_a_supposed_value_has_the_engines_limits(
    bench: Workbench, setting: str, value: str, told: str
) -> None:
    _suppose(bench, setting, value)
    assert told in bench._parts.status.value


def test_every_setting_offers_values_that_can_be_supposed(bench: Workbench) -> None:
    suppose = bench.toolbar.suppose
    asked: list[dict[str, Any]] = []
    suppose._ask = lambda changes, name, seconds: asked.append(changes)
    for _, name in suppose.setting.options:
        suppose.setting.value = name
        for text in suppose.value.options:
            suppose.value.value = text
            suppose.run.click()
            assert "already" in bench._parts.status.value or name in asked[-1]
