"""`voxserve simulate`, `plan` and `profile` as a user types them."""

from __future__ import annotations

import json

import pytest
from fake_model import FakeModel
from sim_profiles import round_profile

from voxserve import cli
from voxserve.core import profile as profiles
from voxserve.core import trace_file
from voxserve.models import registry


@pytest.fixture
def profile_path(tmp_path):
    path = tmp_path / "round.json"
    profiles.save(round_profile(), path)
    return str(path)


def simulate(profile_path, *more):
    return cli.main(
        ["simulate", "--profile", profile_path, "--seconds", "3", "--workers", "1", *more]
    )


def test_one_run(profile_path, tmp_path, capsys):
    trace, figures = tmp_path / "run.trace.gz", tmp_path / "run.json"
    arguments = ["--rate", "10", "--trace", str(trace), "--json", str(figures)]
    assert simulate(profile_path, *arguments) == 0
    out = capsys.readouterr().out
    assert "attainment" in out
    assert "per second until the last one was" in out  # why it can be below the goodput
    assert json.loads(figures.read_text())["rows"][0]["figures"]["attainment"] == 1.0
    assert trace_file.load(trace).about["rate_rps"] == 10.0
    assert simulate(profile_path, "--rate", "0", "--workload", f"replay:{trace}") == 0


def test_a_sweep_prints_a_table_and_draws(profile_path, tmp_path, capsys):
    page = tmp_path / "sweep.html"
    settings = ["--set", "sm_split=100/32,none", "--set", "background_batch=4"]
    assert simulate(profile_path, "--rate", "10,20", *settings, "--html", str(page)) == 0
    lines = capsys.readouterr().out.strip().splitlines()
    assert len(lines) == 5
    assert "sm_split" in lines[0]
    assert "plotly" in page.read_text()[:5000]


def test_capacity_is_the_last_line(profile_path, capsys):
    assert simulate(profile_path, "--capacity", "--seconds", "1.5") == 0
    assert capsys.readouterr().out.strip().splitlines()[-1].startswith("SLO capacity: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "sm_split"], "sm_split=100/32"),
        (["--set", "sm_split=99/33"], "not prepared"),
        (["--set", "colour=red"], "no setting"),
        (["--set", "background_batch=many"], "background_batch"),
        (["--rate", "fast"], "--rate"),
        (["--rate", "1,2", "--trace", "x"], "one run"),
        (["--capacity", "--set", "background_batch=1,2"], "one value"),
        (["--workload", "songs"], "no workload"),
        (["--rate", "1,2", "--workers", "0"], "at least one process"),
        (["--rate", "1,2", "--workers", "-1"], "at least one process"),
        (["--profile", "b300"], "no profile"),
    ],
)
def test_mistakes_are_one_line(profile_path, arguments, message, capsys):
    assert simulate(profile_path, *arguments) == 2
    error = capsys.readouterr().err.strip()
    assert message in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize("wrong", [("--check", "-1"), ("--workers", "0"), ("--rate", "nan")])
def test_a_wrong_plan_is_refused(profile_path, capsys, wrong):
    assert cli.main(["plan", "--profile", profile_path, *wrong]) == 2
    assert wrong[1] in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [("--rate", "-1"), ("--rate", "nan"), ("--workload", "songs")])
def test_a_wrong_target_is_told_before_the_stages_are_timed(tmp_path, monkeypatch, capsys, wrong):
    monkeypatch.setattr("voxserve.models.registry.load", lambda *_: pytest.fail("loaded"))
    assert cli.main(["profile", "-o", str(tmp_path / "x.json"), *wrong]) == 2
    assert wrong[1] in capsys.readouterr().err


def test_plan(profile_path, capsys):
    arguments = ["plan", "--profile", profile_path, "--gpus", "2", "--check", "0"]
    assert cli.main(arguments) == 0
    out = capsys.readouterr().out
    assert "one GPU: " in out
    assert "2 x both" in out


def test_profile_of_a_cpu_can_be_simulated(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(registry, "load", lambda *_: FakeModel())
    path = tmp_path / "cpu.json"
    assert cli.main(["profile", "-o", str(path)]) == 0
    assert "beside" in capsys.readouterr().out
    profile = profiles.load(path)
    assert {time.stage for time in profile.times} == {"decode", "prefill", "codec"}
    assert all(time.source == "measured" and time.samples >= 3 for time in profile.times)
    assert simulate(str(path), "--rate", "2") == 0


def test_only_the_cpu_is_profiled_here(capsys):
    assert cli.main(["profile", "--device", "tpu"]) == 2
    assert "tpu" in capsys.readouterr().err
