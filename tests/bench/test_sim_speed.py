"""The simulator's own speed figures carry their bounds."""

from __future__ import annotations

from sim_profiles import round_profile

from voxserve.bench import sim_speed


def test_figures(monkeypatch):
    profile = round_profile()
    monkeypatch.setattr(sim_speed, "RATE_RPS", 5.0)
    monkeypatch.setattr(sim_speed, "SECONDS", 2.0)
    run, capacity = sim_speed.simulator_figures(profile, seeds=(0,))
    assert (run.must, run.aim, run.unit) == (3, 1, "s")
    assert (capacity.must, capacity.aim, capacity.unit) == (60, 20, "s")
    assert "after" in capacity.figure
