"""Predictions against traces and sweeps: a simulated trace must be predicted exactly."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from sim_profiles import round_profile

from voxserve.bench import validate
from voxserve.bench.runs import completed_steady_rps
from voxserve.core import trace_file
from voxserve.core.workload import find
from voxserve.sim.api import simulate
from voxserve.sim.device import prepared_of


def test_a_trace_of_the_simulator_is_predicted_exactly():
    profile = round_profile()
    run = simulate(profile, rate_rps=20.0, seconds=6.0, trace=True, background_batch=4)
    for item in validate.compare_trace(run.trace(), profile):
        assert item.predicted == pytest.approx(item.measured, rel=0.02), item.figure
        assert abs(item.error) < 0.02


def test_outcomes_of_a_trace_are_those_of_the_run():
    run = simulate(round_profile(), rate_rps=40.0, seconds=5.0, trace=True)
    found = validate.outcomes_of(run.records)
    expected = run.summary
    assert len(found) == expected.num_offered
    assert sum(item.stall_s for item in found) == pytest.approx(
        sum(item.stall_s for item in run.outcomes)
    )
    assert sum(item.state == "rejected" for item in found) == expected.num_rejected > 0
    assert sorted(item.ttfa_s for item in found if item.ttfa_s is not None) == pytest.approx(
        sorted(item.ttfa_s for item in run.outcomes if item.ttfa_s is not None)
    )


def test_settings_come_from_the_file_whether_text_or_values():
    profile = round_profile()
    prepared = prepared_of(profile)
    about = {
        "settings": {
            "chunk_ramp": "(4, 10)",
            "urgency_margin_s": "0.2",
            "sm_split": "68/64",
            "background_batch": 4,
            "of_a_later_version": 1,
        }
    }
    settings = validate.settings_of(about, profile, prepared)
    assert settings.chunk_ramp == (4, 10)
    assert settings.urgency_margin_s == 0.2
    assert str(settings.sm_split) == "68/64"
    assert settings.background_batch == 4


@pytest.mark.parametrize(
    ("written", "split"),
    [
        ("100/32", "100/32"),
        ("{'lm_sms': 100, 'codec_sms': 32}", "100/32"),
        ({"lm_sms": 0, "codec_sms": 0}, "none"),
        ("none", "none"),
    ],
)
def test_splits_come_in_several_spellings(written, split):
    profile = round_profile()
    about = {"settings": {"sm_split": written}}
    settings = validate.settings_of(about, profile, prepared_of(profile))
    assert str(settings.sm_split) == split


def test_a_sweep_is_predicted(monkeypatch):
    profile = round_profile()
    run = simulate(profile, rate_rps=3.0, seconds=20.0)
    report = {
        "configuration": {"workload": "libritts", "settings": {}, "seconds": 20.0},
        "capacity_rps": {"0.9": 20.0},
        "rates": [{"rate_rps": 3.0, "ttfa_p90_ms": run.summary.ttfa_p90_s * 1e3}],
    }

    def found(*_: object, seconds: float, **__: object) -> object:
        assert seconds == 20.0, "runs of other lengths have other capacities"
        return SimpleNamespace(rps={0.9: 22.0})

    monkeypatch.setattr(validate, "find_capacity", found)
    capacity, ttfa = validate.compare_sweep(report, profile)
    assert capacity.error == pytest.approx(0.1)
    assert ttfa.error == pytest.approx(0.0)


def test_what_is_completed_past_capacity_is_predicted():
    profile = round_profile()
    run = simulate(profile, rate_rps=60.0, seconds=8.0)
    completed = completed_steady_rps(run.outcomes, 8.0)
    report = {
        "configuration": {"workload": "libritts", "settings": {}, "seconds": 8.0},
        "capacity_rps": {"0.9": 0.0},
        "rates": [
            {
                "rate_rps": 60.0,
                "completed_steady_rps": completed,
                "ttfa_p90_ms": run.summary.ttfa_p90_s * 1e3,
            }
        ],
    }
    found = validate.compare_sweep(report, profile)
    assert [item.unit for item in found] == ["requests/s", "ms"]
    assert found[0].error == found[1].error == 0.0


def test_traces_in_a_folder_become_rows(tmp_path):
    profile = round_profile()
    run = simulate(profile, rate_rps=10.0, seconds=3.0, trace=True)
    trace_file.save(run.trace(), tmp_path / "10rps-seed0.trace.jsonl.gz")
    (tmp_path / "notes.txt").write_text("not a trace")
    rows = validate.measured_rows(profile, (tmp_path, tmp_path / "nothing"))
    assert len(rows) == 6
    assert all(row.verdict() == "aim" for row in rows if "error" in row.figure)


def test_paper_settings_are_valid_on_the_paper_profile():
    for _, settings, _ in validate.PAPER_ABLATION:
        run = simulate(validate.PAPER_PROFILE, find("seedtts"), seconds=1.0, **settings)
        assert run.summary.num_offered > 0
