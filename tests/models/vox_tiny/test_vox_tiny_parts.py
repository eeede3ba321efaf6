"""Parts of vox-tiny: keyed numbers, draws, stable products, prompts, watchdog, loading."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from models import contract

from voxserve.core.errors import CheckpointError, DeviceUnavailable, InvalidInput
from voxserve.core.jobs import RowStatus
from voxserve.models.request import Sampling, SpeechOptions
from voxserve.models.vox_tiny import keyed
from voxserve.models.vox_tiny.load import load
from voxserve.models.vox_tiny.model import VoxTiny
from voxserve.models.vox_tiny.prompt import MAX_TEXT_CHARACTERS, piece_budget
from voxserve.models.vox_tiny.rows import StableRows, groups
from voxserve.models.vox_tiny.sampling import DrawRule, draw, penalise
from voxserve.models.vox_tiny.transformer import unit_rows


def test_uniform_numbers_depend_on_their_key_only() -> None:
    long, short = keyed.uniforms(5, 100, 8), keyed.uniforms(5, 10, 8)
    assert np.array_equal(long[:10], short)
    assert not np.array_equal(short, keyed.uniforms(6, 10, 8))
    assert 0.0 <= long.min() < long.max() < 1.0
    assert abs(long.mean() - 0.5) < 0.05
    assert keyed.uniforms(-1, 1, 1).shape == keyed.uniforms(2**70, 1, 1).shape == (1, 1)


def test_noise_rows_depend_on_seed_and_block() -> None:
    keys = np.array([[keyed.noise_key(0)], [keyed.noise_key(1)]])
    blocks = np.array([np.arange(-1, 99)] * 2)
    rows = keyed.noise_rows(keys, blocks, 64)
    assert np.array_equal(rows[:, 30:], keyed.noise_rows(keys, blocks[:, 30:], 64))
    assert not np.array_equal(rows[0], rows[1])
    assert rows.min() >= 0
    assert rows.max() < 64


def test_draws_follow_the_distribution() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.1, 0.4, 1e-9]])).repeat(2000, 1)
    uniforms = torch.arange(2000) / 2000
    codes = draw(logits, uniforms, [DrawRule(1.0, 0, 1.0)] * 2000)
    shares = torch.bincount(codes, minlength=4) / 2000
    assert torch.allclose(shares, torch.tensor([0.5, 0.1, 0.4, 0.0]), atol=2e-3)


@pytest.mark.parametrize(
    ("rule", "allowed"),
    [
        (DrawRule(0.0, 0, 1.0), {0}),
        (DrawRule(5.0, 1, 1.0), {0}),
        (DrawRule(1.0, 2, 1.0), {0, 2}),
        (DrawRule(1.0, 0, 0.6), {0, 2}),
        (DrawRule(1.0, 0, 0.0), {0}),
    ],
)
def test_candidates_are_limited(rule: DrawRule, allowed: set[int]) -> None:
    logits = torch.log(torch.tensor([[0.5, 0.1, 0.4]])).repeat(50, 1)
    codes = draw(logits, torch.linspace(0, 0.999, 50), [rule] * 50)
    assert set(codes.tolist()) == allowed


def test_rows_with_different_rules_are_drawn_as_alone() -> None:
    logits, uniforms = torch.randn(6, 40), torch.rand(6)
    rules = [DrawRule(0.3, 30, 1.0), DrawRule(0.0, 0, 1.0), DrawRule(1.0, 5, 0.9)] * 2
    together = draw(logits, uniforms, rules)
    alone = [draw(logits[i : i + 1], uniforms[i : i + 1], rules[i : i + 1]) for i in range(6)]
    assert torch.equal(together, torch.cat(alone))


def test_penalty_makes_earlier_codes_less_likely() -> None:
    changed = penalise(torch.tensor([2.0, -2.0, 2.0]), torch.tensor([0, 1, 1]), 2.0)
    assert changed.tolist() == [1.0, -4.0, 2.0]


def test_stable_products_are_products() -> None:
    weight, bias = torch.randn(40, 24), torch.randn(24)
    stable = StableRows([weight])
    for rows in (1, 2, 7, 97, 200):
        x = torch.randn(rows, 40)
        assert torch.allclose(stable.product(bias, x, weight), x @ weight + bias, atol=1e-5)
        assert torch.equal(
            stable.product(None, x, weight)[-1], stable.product(None, x[-1:], weight)[0]
        )


def test_norms_and_draws_round_alike_in_any_batch() -> None:
    x = torch.randn(40, 10, 40)
    together = unit_rows(x)
    assert all(torch.equal(together[i : i + 1], unit_rows(x[i : i + 1])) for i in range(40))
    logits, uniforms = torch.randn(400, 60) * 9, torch.rand(400)
    rule = DrawRule(0.3, 30, 0.99)
    codes = draw(logits, uniforms, [rule] * 400)
    alone = [draw(logits[i : i + 1], uniforms[i : i + 1], [rule]) for i in range(400)]
    assert torch.equal(codes, torch.cat(alone))


def test_rows_are_grouped_into_stable_sizes() -> None:
    assert groups([7], (2, 4)) == [[7, 7]]
    assert groups([1, 2, 3], (2, 4)) == [[1, 2, 3, 3]]
    assert groups([1, 2, 3, 4, 5], (2, 4)) == [[1, 2, 3, 4], [5, 5]]
    assert groups([], (2, 4)) == []


def test_prompt_is_the_text_between_its_marks(vox_tiny: VoxTiny) -> None:
    request = contract.prepare(vox_tiny, "No \u65e5")
    (piece,) = request.pieces
    config = vox_tiny.config
    assert piece.text == "no."
    assert piece.mask[:, 0].all()
    assert not piece.mask[:, 1:].any()
    assert piece.ids[0, 0] == config.text_bos_id
    assert piece.ids[-2:, 0].tolist() == [config.text_eos_id, config.audio_bos_id]
    assert len(piece.ids) == len("no.") + 3
    assert request.max_frames == piece_budget(3)
    assert len(request.notes) == 1


def test_long_texts_become_pieces(vox_tiny: VoxTiny) -> None:
    request = contract.prepare(vox_tiny, "One sentence. " * 3 + "word " * 90)
    assert len(request.pieces) > 4
    assert max(len(piece.text) for piece in request.pieces) <= 300
    assert request.max_frames == sum(piece_budget(len(piece.text)) for piece in request.pieces)


@pytest.mark.parametrize(
    ("text", "options", "told"),
    [
        ("", {}, "nothing to say"),
        ("?!", {}, "nothing to say"),
        ("x" * (MAX_TEXT_CHARACTERS + 1), {}, "at most 20,000"),
        ("Hi", {"voice": "nobody"}, "no voice 'nobody'"),
        ("Hi", {"language": "fr"}, "no language 'fr'"),
    ],
)
def test_refused(vox_tiny: VoxTiny, text: str, options: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        vox_tiny.preprocess(text, SpeechOptions(**options))


def test_an_instruction_is_not_dropped_silently(vox_tiny: VoxTiny) -> None:
    asked = vox_tiny.preprocess("Hi", SpeechOptions(instruct="Sing it."))
    assert "takes no instructions" in asked.notes[-1]
    assert vox_tiny.preprocess("Hi", SpeechOptions()).notes == ()


def test_watchdog_ends_a_piece_over_its_budget(vox_tiny: VoxTiny) -> None:
    state = contract.allocate(vox_tiny, 1)
    job = contract.prepare(vox_tiny, "Open the door.")
    vox_tiny.open_slot(state, 0, job)
    vox_tiny.prefill(state, vox_tiny.pack_prefill((0,), job.pieces, vox_tiny.device))
    state.budget[0] = 3
    for _ in range(3):
        vox_tiny.decode(state, torch.tensor([0]), 0)
    assert state.status[0] == RowStatus.WATCHDOG
    assert state.num_frames[0] == 3


def test_watchdog_ends_a_stuck_code(vox_tiny: VoxTiny, monkeypatch: pytest.MonkeyPatch) -> None:
    head = torch.zeros_like(vox_tiny.talker.head)
    monkeypatch.setattr(vox_tiny.talker, "head", head)  # every first code is 0
    state = contract.allocate(vox_tiny, 1)
    job = contract.prepare(vox_tiny, "Open the door.", sampling=Sampling(temperature=0.0))
    (codes,) = contract.speak(vox_tiny, state, [job], 1)
    assert state.status[0] == RowStatus.WATCHDOG
    assert len(codes) == 12


def test_random_weights_have_the_same_shapes() -> None:
    model = load("cpu", "random")
    job = contract.prepare(model, "Come in.", min_frames=6, max_frames=6)
    state = contract.allocate(model, 1)
    (codes,) = contract.speak(model, state, [job], 1)
    samples = contract.decode_chunks(model, state, 0, 6, [2, 4])
    assert len(codes) == 6
    assert np.isfinite(samples).all()


def test_loading_errors(tmp_path: Path) -> None:
    with pytest.raises(DeviceUnavailable, match="runs on 'cpu'"):
        load("cuda")
    with pytest.raises(CheckpointError, match="no vox-tiny weights"):
        load("cpu", str(tmp_path / "nothing"))
    broken = tmp_path / "tinyvox_int8.safetensors"
    broken.write_bytes(b"not a weights file")
    with pytest.raises(CheckpointError, match="cannot read"):
        load("cpu", str(tmp_path))
