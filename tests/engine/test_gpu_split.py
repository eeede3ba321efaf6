"""Where a GPU's first split comes from."""

from __future__ import annotations

from voxserve.core import profile as profiles
from voxserve.core.settings import Split
from voxserve.engine.gpu_split import default_split
from voxserve.sim.placing import expected_load, split_of

MODEL, DEVICE, SMS = "qwen3-tts-1.7b", "NVIDIA H200", 132
PAPER = Split(100, 32)


def test_a_measured_device_starts_with_its_profiles_split():
    profile = profiles.load("h200-qwen3-tts-1.7b")
    split, why = default_split(MODEL, DEVICE, SMS, can_partition=True, usual=Split(1, 2))
    assert split == split_of(profile, expected_load(profile, "libritts")).split
    assert "profile h200-qwen3-tts-1.7b" in why


def test_other_devices_and_models_start_with_the_papers_ratio():
    for model, device, sms in (
        (MODEL, "NVIDIA L4", 58),
        ("qwen3-tts-0.6b", DEVICE, SMS),
        (MODEL, DEVICE, 60),
    ):
        split, why = default_split(model, device, sms, can_partition=True, usual=PAPER)
        assert split == PAPER
        assert "no profile" in why


def test_without_the_bindings_there_is_no_split():
    split, why = default_split(MODEL, DEVICE, SMS, can_partition=False, usual=PAPER)
    assert split == Split()
    assert "voxserve[cuda]" in why
