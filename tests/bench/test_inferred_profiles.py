"""Shipped profiles that were not measured: as built, and every number says where it comes from."""

from __future__ import annotations

import pytest

from voxserve.bench import inferred_profiles
from voxserve.core import profile as profiles
from voxserve.core.profile import Source
from voxserve.core.settings import Split
from voxserve.sim.device import default_settings, prepared_of


def test_the_paper_profile_is_as_built():
    assert profiles.load("h100") == inferred_profiles.h100_paper()


@pytest.mark.parametrize(
    "profile", [inferred_profiles.h100_paper(), inferred_profiles.h200_provisional()]
)
def test_nothing_poses_as_measured(profile):
    assert all(time.source is not Source.MEASURED for time in profile.times)
    assert profile.host.source is not Source.MEASURED
    assert all(time.note for time in profile.times)


def test_stated_figures_are_the_papers():
    stated = {
        (time.rows, time.sms, bool(time.beside)): time.seconds
        for time in inferred_profiles.h100_paper().times
        if time.source is Source.STATED
    }
    assert stated == {
        (1, 0, False): 0.0019,
        (16, 0, False): 0.010,
        (1, 24, True): 0.005,
        (16, 24, True): 0.049,
    }


def test_the_papers_split_is_chosen():
    profile = inferred_profiles.h100_paper()
    assert default_settings(profile, prepared_of(profile)).sm_split == Split(100, 32)


def test_a_measured_profile_is_not_overwritten(tmp_path, monkeypatch):
    monkeypatch.setattr(profiles, "PROFILES_DIR", tmp_path)
    assert len(inferred_profiles.write()) == 2
    path = tmp_path / "h200-qwen3-tts-1.7b.json"
    path.write_text(path.read_text().replace('"provisional"', '"measured"'))
    before = path.read_bytes()
    assert inferred_profiles.write() == ["h100-qwen3-tts-1.7b-paper"]
    assert path.read_bytes() == before
