"""vox-tiny computes what the code it was trained with computes (tests/golden/make_vox_tiny.py)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from models import contract
from safetensors import safe_open

from voxserve.core.jobs import RowStatus
from voxserve.models.request import Piece, PreparedRequest, Sampling, SpeechOptions
from voxserve.models.vox_tiny.model import VoxTiny

LOGIT_TOLERANCE = 2e-3  # of logits up to 30; fp32 sums in another order
SAMPLE_TOLERANCE = 1e-4

_GOLDEN = Path(__file__).parents[2] / "golden" / "vox_tiny.safetensors"


@pytest.fixture(scope="module")
def golden() -> dict[str, torch.Tensor]:
    with safe_open(_GOLDEN, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}


@pytest.fixture(scope="module")
def piece(vox_tiny: VoxTiny) -> Piece:
    """The golden text as a bare prompt, without the lead-in."""
    with safe_open(_GOLDEN, framework="pt") as file:
        text = file.metadata()["text"]
    config = vox_tiny.config
    letters = [config.first_char_id + config.characters.index(letter) for letter in text]
    ids = np.zeros((len(letters) + 2, 1 + config.num_codebooks), np.int32)
    ids[:, 0] = [config.text_bos_id, *letters, config.audio_bos_id]
    mask = np.zeros(ids.shape, np.bool_)
    mask[:, 0] = True
    return Piece(ids, mask, None, text)


def _with_codes(piece: Piece, codes: torch.Tensor) -> Piece:
    """The prompt followed by frames that are given."""
    rows = np.zeros((len(codes), piece.ids.shape[1]), np.int32)
    rows[:, 1:] = codes.numpy()
    mask = rows > -1
    mask[:, 0] = False
    return Piece(np.concatenate([piece.ids, rows]), np.concatenate([piece.mask, mask]))


def test_greedy_codes(vox_tiny: VoxTiny, piece: Piece, golden: dict[str, torch.Tensor]) -> None:
    state = contract.allocate(vox_tiny, 1)
    greedy = SpeechOptions(sampling=Sampling(temperature=0.0, depth_temperature=0.0))
    vox_tiny.open_slot(state, 0, PreparedRequest((piece,), 100, greedy))
    vox_tiny.prefill(state, vox_tiny.pack_prefill((0,), (piece,), vox_tiny.device))
    while state.num_frames[0] < len(golden["codes"]):
        vox_tiny.decode(state, torch.tensor([0]), 0)
        assert state.status[0] == RowStatus.CONTINUE
    assert torch.equal(state.codes[0, : len(golden["codes"])], golden["codes"])


def test_prompt_logits(vox_tiny: VoxTiny, piece: Piece, golden: dict[str, torch.Tensor]) -> None:
    state = contract.allocate(vox_tiny, 1)
    given = _with_codes(piece, golden["codes"])
    for part, expected in ((piece, golden["first_logits"]), (given, golden["last_logits"])):
        with torch.inference_mode():
            ids, mask = torch.from_numpy(part.ids), torch.from_numpy(part.mask)
            text, codes = ids[mask[:, 0], 0], ids[~mask[:, 0], 1:].long()
            history = state.text_history[0].zero_()
            encoded = vox_tiny.talker.encode(text, history)
            x = torch.cat([encoded, vox_tiny.talker.frame_input(codes)])
            hidden = vox_tiny.talker.extend(x, state.kv[:, 0], 0)
            logits = torch.mm(vox_tiny.talker.normed(hidden), vox_tiny.talker.head)[0]
        assert (logits - expected).abs().max() < LOGIT_TOLERANCE


def test_samples(
    vox_tiny: VoxTiny, golden: dict[str, torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vox_tiny.decoder, "noise", torch.zeros_like(vox_tiny.decoder.noise))
    state = contract.allocate(vox_tiny, 1)
    frames = len(golden["samples"]) // vox_tiny.info.frame_samples
    contract.load_codes(vox_tiny, state, 0, golden["codes"][:frames], seed=0)
    samples = contract.decode_chunks(vox_tiny, state, 0, frames, [frames])
    assert np.abs(samples - golden["samples"].numpy()).max() < SAMPLE_TOLERANCE
