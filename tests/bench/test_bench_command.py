"""`voxserve bench` over the fake model: files, resuming, the last line, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_model import FakeModel
from waiting import assert_no_threads

from voxserve import cli
from voxserve.commands.settings_option import parse_settings, parse_several
from voxserve.core import trace_file
from voxserve.core.clock import Clock
from voxserve.core.errors import InvalidInput
from voxserve.engine import engine as engine_module
from voxserve.engine.build import Built
from voxserve.runtime.cpu import CpuExecutor

FEW_WORDS = "one two three\nfour five six seven\n"


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """A short measurement with a load of short texts."""

    def build(_model: str, _device: str, *, clock: Clock, name: str, **_: object) -> Built:
        model = FakeModel()
        return Built(CpuExecutor(model, clock, name), model)

    monkeypatch.setattr(engine_module, "build_executor", build)
    texts = tmp_path / "texts.txt"
    texts.write_text(FEW_WORDS)
    load = ["--workload", f"file:{texts}", "--seconds", "1", "--seeds", "2", "--rates", "3"]
    return ["bench", "--device", "cpu", *load, "--quiet", "-o", str(tmp_path / "out")]


def test_a_measurement_and_its_files(words: list[str], capsys, tmp_path: Path):
    assert cli.main([*words, "--traces", "--set", "chunk_ramp=2,10"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("capacity: ")
    assert "vox-tiny on cpu, in process" in last
    out = tmp_path / "out"
    report = json.loads((out / "sweep.json").read_text())
    (row,) = report["rates"]
    assert row["seeds"] == 2
    assert row["done"] == row["offered"]
    assert {"decode_busy", "background_batch", "urgent_later_share", "turn_p99_ms"} <= row.keys()
    assert report["configuration"]["settings"]["chunk_ramp"] == [2, 10]
    assert (out / "sweep.csv").read_text().startswith("rate_rps,")
    assert "plotly" in (out / "sweep.html").read_text()
    assert trace_file.load(out / "3rps-seed1.trace.jsonl.gz").records
    assert_no_threads()


def test_the_same_command_again_measures_nothing_anew(words: list[str], capsys, tmp_path: Path):
    assert cli.main(words) == 0
    first = capsys.readouterr().out
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.json.gz")}
    assert cli.main(words) == 0
    assert capsys.readouterr().out == first
    assert before == {path: path.stat().st_mtime_ns for path in before}
    assert cli.main([*words, "--set", "background_batch=3"]) == 2
    assert "background_batch 8, not 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (("--rates", "fast"), "is not like"),
        (("--rates", ""), "is empty"),
        (("--rates", " "), "is not like"),
        (("--rates", "-1"), "a rate is outside 0 to 10000"),
        (("--rates", "inf"), "a rate is outside 0 to 10000"),
        (("--seconds", "0"), "not positive"),
        (("--set", "sm_split"), "NAME=VALUE"),
        (("--set", "speed=3"), "no setting 'speed'"),
        (("--workload", "nothing"), "no workload"),
    ],
)
def test_what_cannot_be_measured_is_refused(words: list[str], capsys, changed, message: str):
    assert cli.main([*words, *changed]) == 2
    assert message in capsys.readouterr().err


def test_settings_are_numbers_or_words():
    assert parse_settings(["sm_split=100/32", "background_batch=4", "urgency_margin_s=0.05"]) == {
        "sm_split": "100/32",
        "background_batch": 4.0,
        "urgency_margin_s": 0.05,
    }
    assert parse_several(["sm_split=100/32,none", "urgency_margin_s=0.05"]) == {
        "sm_split": ["100/32", "none"],
        "urgency_margin_s": 0.05,
    }
    for text in ("sm_split", "sm_split=", "=1"):
        with pytest.raises(InvalidInput, match="NAME=VALUE is needed"):
            parse_settings([text])
