"""vox-tiny keeps the model contract."""

from __future__ import annotations

import pytest
import torch
from models import contract

from voxserve.models.vox_tiny.model import VoxTiny

TEXTS = ("No.", "Hello there.", "Wait!", "Come in.", "Open the door.", "Not today.")
LONG = "The lamp on the desk has been on since yesterday. Nobody knows why."


@pytest.fixture(scope="module")
def codes(vox_tiny: VoxTiny) -> torch.Tensor:
    job = contract.prepare(vox_tiny, LONG, seed=4)
    (made,) = contract.speak(vox_tiny, contract.allocate(vox_tiny, 1), [job], 1)
    return made


def test_tokens_do_not_depend_on_the_batch(vox_tiny: VoxTiny) -> None:
    contract.check_batch_does_not_matter(vox_tiny, TEXTS, batch=7, requests=12)


@pytest.mark.slow
def test_tokens_of_200_requests_do_not_depend_on_the_batch(vox_tiny: VoxTiny) -> None:
    contract.check_batch_does_not_matter(vox_tiny, (*TEXTS, LONG), batch=13, requests=200)


def test_audio_does_not_depend_on_the_chunks(vox_tiny: VoxTiny, codes: torch.Tensor) -> None:
    ramps = [(1,), (2, 4, 10), (3,), (7, 1, 5), (16,)]
    contract.check_chunking_does_not_matter(vox_tiny, codes, ramps)


def test_audio_does_not_depend_on_the_codec_batch(vox_tiny: VoxTiny, codes: torch.Tensor) -> None:
    contract.check_codec_batch_does_not_matter(
        vox_tiny, [codes[:1], codes[:9], codes[:20], codes[:12], codes[:4]]
    )


def test_ended_rows_are_ignored(vox_tiny: VoxTiny) -> None:
    contract.check_ended_rows_are_ignored(vox_tiny, "No.")


def test_only_given_slots_change(vox_tiny: VoxTiny) -> None:
    contract.check_only_given_slots_change(vox_tiny, "Come in.")


def test_limits_are_kept(vox_tiny: VoxTiny) -> None:
    contract.check_limits(vox_tiny, "Open the door.")
