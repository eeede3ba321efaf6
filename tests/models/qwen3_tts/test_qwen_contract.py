"""Qwen3-TTS keeps the model contract (its own tests go further where goldens allow)."""

from __future__ import annotations

import pytest
import torch
from models import contract

from voxserve.models.qwen3_tts.model import Qwen3TTS


@pytest.fixture(scope="module")
def codes(tiny: Qwen3TTS) -> torch.Tensor:
    job = contract.prepare(tiny, "Hello.", seed=4, min_frames=25, max_frames=25)
    (made,) = contract.speak(tiny, contract.allocate(tiny, 1), [job], 1)
    return made


def test_audio_does_not_depend_on_the_chunks(tiny: Qwen3TTS, codes: torch.Tensor) -> None:
    contract.check_chunking_does_not_matter(tiny, codes, [(2, 4, 10), (7, 1, 5), (16,)])


def test_audio_does_not_depend_on_the_codec_batch(tiny: Qwen3TTS, codes: torch.Tensor) -> None:
    parts = [codes[:1], codes[:9], codes[:20], codes[:12]]
    contract.check_codec_batch_does_not_matter(tiny, parts)


def test_only_given_slots_change(tiny: Qwen3TTS) -> None:
    contract.check_only_given_slots_change(tiny, "No.")


def test_limits_are_kept(tiny: Qwen3TTS) -> None:
    contract.check_limits(tiny, "No.")
