"""The short GPU run, over a driver that computes on the CPU."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from eager_driver import EagerDriver
from fake_model import FakeModel

from voxserve.bench import gpu_smoke
from voxserve.bench.quick_search import next_rate
from voxserve.core.clock import Clock
from voxserve.core.errors import DeviceUnavailable
from voxserve.core.settings import Split
from voxserve.engine import engine as engine_module
from voxserve.engine.build import Built, fixed_length
from voxserve.runtime.cuda import Capacity, CudaExecutor
from voxserve.runtime.executables import Sizes

SIZES = Sizes((4, 8), prefill=(128,), codec=(4, 8), urgent=(4,), chunk_frames=(4, 10))
WORDS = ["--model", "vox-tiny", "--device", "cpu", "--split", "8/4", "--seconds", "1"]


def build(_model: str, _device: str, *, clock: Clock, **_: object) -> Built:
    model = FakeModel()
    splits = (Split(8, 4), Split())
    executor = CudaExecutor(
        model,
        EagerDriver(clock),
        clock,
        splits=splits,
        sizes=SIZES,
        capacity=Capacity(64, 0, 4096),
        cuts_silence=False,
    )
    return Built(executor, model, partial(fixed_length, model))


def run(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    assert gpu_smoke.main([*WORDS, *words]) == 0
    return json.loads(capsys.readouterr().out)


def test_it_measures_everything_and_tells_it_once(monkeypatch, capsys, tmp_path: Path):
    monkeypatch.setattr(engine_module, "build_executor", build)
    path = tmp_path / "smoke.json"
    found = run(capsys, "--rates", "4", "--output", str(path))
    assert json.loads(path.read_text()) == found
    assert found["start with sm_split 8/4"]["num_executables"] > 0
    assert found["parity"]["streamed_error"] == 0.0
    assert found["parity"]["crowd_error"] == 0.0
    assert found["idle ttfa, chunk_ramp (10,)"]["p50_ms"] > 0.0
    (row,) = found["load"]["rates"]
    assert row["rate_rps"] == 4.0
    assert row["done"] == row["offered"] > 0
    assert found["load beside a busy loop"]["rate_rps"] == 4.0
    assert found["stop"] is None


def test_what_goes_wrong_is_told_in_its_place(monkeypatch, capsys):
    def refuse(*_: object, **__: object) -> Built:
        raise DeviceUnavailable("no such luck")

    monkeypatch.setattr(engine_module, "build_executor", refuse)
    found = run(capsys)
    assert "no such luck" in found["start with sm_split 8/4"]["error"]
    assert "no such luck" in found["start with sm_split none"]["error"]


def test_the_load_stops_within_the_budget(monkeypatch, capsys):
    monkeypatch.setattr(engine_module, "build_executor", build)
    found = run(capsys, "--budget", "5")
    assert found["load"]["rates"] == []


@pytest.mark.parametrize(
    ("attainment", "expected"),
    [
        ({}, 64.0),
        ({64.0: 1.0}, 84.0),
        ({64.0: 0.5}, 48.0),
        ({64.0: 1.0, 84.0: 0.2}, 72.0),
        ({64.0: 1.0, 68.0: 0.2}, 0.0),
    ],
)
def test_the_search_closes_in_on_the_capacity(attainment, expected):
    assert next_rate(attainment, 64.0) == expected
