"""The comparison of precisions, on the tiny model: bfloat16 against float32, both on the CPU."""

from __future__ import annotations

import torch
from models.qwen3_tts.qwen_support import CHECKPOINT

from voxserve.bench import parity
from voxserve.models.qwen3_tts.load import load
from voxserve.models.qwen3_tts.model import Qwen3TTS


def test_float32_agrees_with_itself(tiny: Qwen3TTS) -> None:
    inputs = parity.random_inputs(tiny, rows=2, tokens=9, frames=3, seed=1)
    once, again = (parity.run(tiny, inputs) for _ in range(2))
    rows = parity.figures(once, again)
    assert all(row.verdict() in ("", "must") for row in rows)
    assert torch.equal(once.depth, again.depth)


def test_bfloat16_stays_close(tiny: Qwen3TTS) -> None:
    half = load("cpu", str(CHECKPOINT), size="1.7b", dtype=torch.bfloat16)
    inputs = parity.random_inputs(tiny, rows=4, tokens=9, frames=4, seed=2)
    reference, other = parity.run(tiny, inputs), parity.run(half, inputs)
    for logits in ("first", "depth"):
        compared = parity.compare_logits(getattr(reference, logits), getattr(other, logits))
        assert compared.agreement >= 0.9
        assert compared.worst_gap < 10
        assert 0 < compared.relative_error < 0.05
    assert 0 < parity.compare_waves(reference.wave, other.wave) < 0.05


def test_a_wrong_weight_is_noticed(tiny: Qwen3TTS) -> None:
    wrong = load("cpu", str(CHECKPOINT), size="1.7b")
    with torch.inference_mode():
        wrong.talker.backbone.layers[0].down[0].zero_()
        wrong.codec_decoder.last_taps[0].neg_()
    inputs = parity.random_inputs(tiny, rows=4, tokens=9, frames=4, seed=3)
    rows = parity.figures(parity.run(tiny, inputs), parity.run(wrong, inputs))
    assert any(row.verdict() == "missed" for row in rows)
    assert parity.compare_waves(*(parity.run(m, inputs).wave for m in (tiny, wrong))) > 0.02
