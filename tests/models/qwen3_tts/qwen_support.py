"""Models, goldens and a small generation loop shared by the Qwen3-TTS tests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from golden import qwen3_tts_configs as configs
from golden.seeded_weights import weight
from safetensors import safe_open

from voxserve.models.base import StateSize
from voxserve.models.blocks.sampling import SamplingDefaults
from voxserve.models.blocks.weights import Shapes, WeightSource
from voxserve.models.qwen3_tts.config import parse_codec, parse_talker
from voxserve.models.qwen3_tts.model import Qwen3TTS
from voxserve.models.qwen3_tts.shapes import codec_shapes, talker_shapes
from voxserve.models.qwen3_tts.state import QwenState
from voxserve.models.qwen3_tts.tokenizer import BpeTokenizer
from voxserve.models.request import PreparedRequest, Sampling, SpeechOptions

TESTS = Path(__file__).parents[2]
CHECKPOINT = TESTS / "data" / "qwen3_tts_tiny"
GOLDEN = TESTS / "golden" / "qwen3_tts"
GREEDY = Sampling(temperature=0.0, depth_temperature=0.0)
CPU = torch.device("cpu")
STAGE_TOLERANCE = 1e-4  # largest error over largest value, of what crosses a stage's border
WAVE_TOLERANCE = 1e-5  # the same, of streamed against whole decodes


def golden(name: str) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Tensors of a golden file, and its notes."""
    with safe_open(GOLDEN / f"{name}.safetensors", "pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}
        notes = json.loads(file.metadata()["notes"])
    return tensors, notes


def texts() -> dict[str, str]:
    """The texts that the goldens' cases name."""
    return json.loads((GOLDEN / "token_ids.json").read_text(encoding="utf-8"))["texts"]


def relative_error(ours: torch.Tensor, reference: torch.Tensor) -> float:
    """Largest error over the reference's largest value."""
    assert ours.shape == reference.shape
    return float((ours - reference).abs().max() / reference.abs().max())


def seeded(shapes: Shapes, seed: int) -> WeightSource:
    """The goldens' weights, by name."""
    return lambda name: torch.from_numpy(weight(name, shapes[name], seed))


def identity_model() -> Qwen3TTS:
    """The model without a projection, which no checkpoint is stored of."""
    config = replace(parse_talker(configs.identity_config()), takes_instructions=True)
    codec = parse_codec(configs.speech_tokenizer_config() | {"output_sample_rate": 24000})
    return Qwen3TTS(
        *("identity", config, codec),
        seeded(talker_shapes(config), 1),
        seeded(codec_shapes(codec), 0),
        BpeTokenizer(CHECKPOINT),
        SamplingDefaults(),
    )


def request_of(
    model: Qwen3TTS, case: dict[str, Any], **options: Any
) -> tuple[PreparedRequest, np.ndarray | None]:
    """A golden case as a request, and the text tokens that follow its prompt, if streamed."""
    wanted = SpeechOptions(
        voice=case["speaker"],
        language=case["language"],
        instruct=case.get("instruct"),
        **options,
    )
    text = texts()[case["text"]]
    if not case.get("streamed"):
        return model.preprocess(text, wanted), None
    feed = model.open_text()
    ids = np.concatenate([feed.push(text), feed.finish()])
    return model.preprocess_streamed(ids, wanted), ids[1:]


def slots_of(*slots: int) -> torch.Tensor:
    """Rows' slots as stages take them."""
    return torch.tensor(slots, dtype=torch.int32)


def state_of(model: Qwen3TTS, num_slots: int = 4, max_frames: int = 128) -> QwenState:
    """A fresh state in which each slot has a full context of its own."""
    return model.allocate(StateSize(num_slots, 0, 64, max_frames))


def prefill(
    model: Qwen3TTS,
    state: QwenState,
    requests: dict[int, PreparedRequest],
    piece: int = 0,
    pages: Sequence[int] = (),
) -> None:
    """Opens slots (for the first piece) and prefills one piece of each request, as one batch."""
    if piece == 0:
        for slot, request in requests.items():
            model.open_slot(state, slot, request, pages)
    pieces = tuple(request.pieces[piece] for request in requests.values())
    model.prefill(state, model.pack_prefill(tuple(requests), pieces, CPU))


def generate(
    model: Qwen3TTS, case: dict[str, Any], num_frames: int, **options: Any
) -> torch.Tensor:
    """Codes of one request alone, [frames, codebooks]: until its end, or `num_frames`."""
    state = state_of(model)
    request, rest = request_of(model, case, **options)
    prefill(model, state, {1: request})
    if rest is not None:
        model.append_text(state, 1, 0, rest, is_complete=True)
    for _ in range(num_frames - 1):
        if state.status[1]:
            break
        model.decode(state, slots_of(1), 0)
    return state.codes[1, : int(state.num_frames[1])]


@dataclass
class Seen:
    """What crossed the border between backbone, depth transformer and sampler, per frame."""

    hidden: list[torch.Tensor] = field(default_factory=list)
    logits: list[torch.Tensor] = field(default_factory=list)
    depth_logits: list[torch.Tensor] = field(default_factory=list)


@contextmanager
def watching(model: Qwen3TTS) -> Iterator[Seen]:
    """Records the first row of every frame made inside."""
    seen, depth = Seen(), model.talker.depth
    original = depth.frame

    def frame(hidden: torch.Tensor, first: torch.Tensor, draw: Any) -> None:
        def drawing(logits: torch.Tensor, *rest: Any) -> None:
            seen.depth_logits.append(logits[0].clone())
            draw(logits, *rest)

        seen.hidden.append(hidden[0].clone())
        seen.logits.append(torch.nn.functional.linear(hidden[0], model.talker.head))
        original(hidden, first, drawing)

    depth.frame = frame
    try:
        yield seen
    finally:
        depth.frame = original
