"""Against the reference implementation: everything that crosses a stage's border, and the codes."""

from __future__ import annotations

import pytest
import torch
from models.qwen3_tts.qwen_support import (
    CPU,
    GREEDY,
    STAGE_TOLERANCE,
    generate,
    golden,
    prefill,
    relative_error,
    request_of,
    slots_of,
    state_of,
    watching,
)

from voxserve.models.qwen3_tts.codec import CodecState
from voxserve.models.qwen3_tts.model import Qwen3TTS

NAMES = ("tiny", "identity")
LAYOUTS = ("voice", "dialect", "instruct", "auto", "streamed")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_prompt_and_first_frame(both: dict[str, Qwen3TTS], name: str, layout: str) -> None:
    model = both[name]
    tensors, notes = golden(f"{name}_prompts")
    request, _ = request_of(model, notes["cases"][layout])
    rows = model.talker.embed_prompt(model.pack_prefill((0,), request.pieces, CPU))
    assert relative_error(rows, tensors[f"{layout}.prompt"]) <= STAGE_TOLERANCE
    with watching(model) as seen:
        prefill(model, state_of(model), {0: request})
    assert relative_error(seen.hidden[0], tensors[f"{layout}.hidden"]) <= STAGE_TOLERANCE
    assert relative_error(seen.logits[0], tensors[f"{layout}.logits"]) <= STAGE_TOLERANCE


@pytest.mark.parametrize("name", NAMES)
def test_streamed_text_rows(both: dict[str, Qwen3TTS], name: str) -> None:
    """Each later text token, then the end of the text, then padding is added to one step."""
    model = both[name]
    tensors, notes = golden(f"{name}_prompts")
    _, rest = request_of(model, notes["cases"]["streamed"])
    ids = torch.from_numpy(rest).long().tolist() + [model.config.text_ids.eos]
    rows = model.talker.text_table[ids]
    assert relative_error(rows, tensors["streamed.trailing"]) <= STAGE_TOLERANCE
    pad = model.talker.text_table[model.config.text_ids.pad][None]
    assert relative_error(pad, tensors["voice.trailing"]) <= STAGE_TOLERANCE


@pytest.mark.parametrize(
    ("name", "layout"), [("tiny", "voice"), ("tiny", "streamed"), ("identity", "voice")]
)
def test_greedy_codes_are_equal(both: dict[str, Qwen3TTS], name: str, layout: str) -> None:
    model = both[name]
    tensors, notes = golden(f"{name}_greedy_{layout}")
    frames = len(tensors["codes"])
    assert frames >= 64
    with watching(model) as seen:
        options = {"min_frames": frames, "max_frames": frames, "sampling": GREEDY}
        codes = generate(model, notes["case"], frames, **options)
    assert torch.equal(codes, tensors["codes"])
    assert relative_error(torch.stack(seen.hidden), tensors["hidden"]) <= STAGE_TOLERANCE
    assert relative_error(torch.stack(seen.logits[:2]), tensors["logits"]) <= STAGE_TOLERANCE
    depth = torch.stack(seen.depth_logits[: 2 * (model.config.num_codebooks - 1)])
    expected = tensors["depth_logits"].flatten(0, 1)
    assert relative_error(depth, expected) <= STAGE_TOLERANCE


@pytest.mark.parametrize("name", NAMES)
def test_sampled_codes_are_equal(both: dict[str, Qwen3TTS], name: str) -> None:
    """Default settings, noise keyed by seed, frame and codebook, the end token where it comes."""
    tensors, notes = golden(f"{name}_sampled")
    ends = 0
    for key, expected in tensors.items():
        seed = int(key.split(".")[1])
        codes = generate(both[name], notes["case"], len(expected) + 1, seed=seed)
        ends += len(codes) == len(expected)
        assert torch.equal(codes[: len(expected)], expected), f"seed {seed}"
    if name == "identity":
        assert ends == 2, "two of the three goldens end by themselves"


def test_codec_stages(tiny: Qwen3TTS) -> None:
    """Whole-sequence decode, four windows long; intermediate stages and the wave."""
    codec = tiny.codec_decoder
    tensors, _ = golden("codec")
    state = CodecState(codec, 1)
    seen: dict[str, torch.Tensor] = {}
    run = codec.transformer.run

    def watch(x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        seen.setdefault("pre_conv", x[0].clone())
        seen.setdefault("transformer", run(x, *rest)[0].clone())
        return run(x, *rest)

    codec.transformer.run = watch
    try:
        chunks = []
        for first in range(0, 40, 10):
            codes = tensors["codes"][None, first : first + 10]
            where = slots_of(first)
            chunks.append(codec.decode(codes, state, slots_of(0), where, slots_of(10))[0])
    finally:
        codec.transformer.run = run
    for name, ours in seen.items():
        assert relative_error(ours, tensors[name][:10]) <= STAGE_TOLERANCE, name
    wave = torch.cat(chunks)
    assert relative_error(wave[::13], tensors["wave_every_13"]) <= STAGE_TOLERANCE
    assert relative_error(wave[:1920], tensors["wave_head"]) <= STAGE_TOLERANCE
    assert float(wave.abs().max()) > 0.1, "a silent wave would prove nothing"
