"""On a GPU: float32 kernels against the CPU, and captured stages against the same ones eager.

The model is random, as wide as the kernels' tiles need; the real sizes in bfloat16 are compared
by `python -m voxserve.bench.parity`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from models.qwen3_tts.qwen_support import (
    CHECKPOINT,
    GREEDY,
    WAVE_TOLERANCE,
    relative_error,
    slots_of,
)

from voxserve.models.base import StateSize
from voxserve.models.blocks.sampling import SamplingDefaults
from voxserve.models.blocks.transformer import TransformerShape
from voxserve.models.blocks.weights import RandomWeights, Shapes, WeightSource
from voxserve.models.qwen3_tts.config import CodecConfig, TalkerConfig, parse_codec, parse_talker
from voxserve.models.qwen3_tts.model import Qwen3TTS
from voxserve.models.qwen3_tts.shapes import codec_shapes, random_gain, talker_shapes
from voxserve.models.qwen3_tts.state import QwenState
from voxserve.models.qwen3_tts.tokenizer import BpeTokenizer
from voxserve.models.request import Sampling, SpeechOptions

pytestmark = pytest.mark.gpu
TEXTS = ("Hello there.", "A much longer sentence follows the first one, and goes on.", "Hm.")
FRAMES = 20


def configs() -> tuple[TalkerConfig, CodecConfig]:
    from golden import qwen3_tts_configs as small

    talker = parse_talker(small.identity_config())
    codec = parse_codec(small.speech_tokenizer_config())
    wide = TransformerShape(3, 256, 512, 4, 2, 64, rope_theta=1e6, norm_eps=1e-6)
    talker = replace(talker, backbone=wide, depth=replace(wide, hidden=128, ffn=256))
    inner = TransformerShape(2, 128, 256, 2, 2, 64, 1e4, 1e-5, has_head_norms=False)
    codec = replace(
        codec, transformer=inner, num_codebooks=16, code_dim=128, latent=128, channels=512
    )
    return talker, codec


def build(device: str) -> Qwen3TTS:
    """The same weights on any device: made on the CPU, then moved."""
    talker, codec = configs()

    def source(shapes: Shapes) -> WeightSource:
        make = RandomWeights(shapes, torch.device("cpu"), torch.float32, 1, random_gain)
        return lambda name: make(name).to(device)

    return Qwen3TTS(
        *("wide", talker, codec, source(talker_shapes(talker)), source(codec_shapes(codec))),
        *(BpeTokenizer(CHECKPOINT), SamplingDefaults()),
    )


@pytest.fixture(scope="module")
def gpu() -> Qwen3TTS:
    if not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU")
    torch.backends.cuda.matmul.allow_tf32 = False
    return build("cuda")


@pytest.fixture(scope="module")
def cpu() -> Qwen3TTS:
    return build("cpu")


def started(model: Qwen3TTS, sampling: Sampling) -> tuple[QwenState, torch.Tensor]:
    """Three requests behind their prefill, and a step's rows with padding."""
    state = model.allocate(StateSize(4, 12, 64, 128))
    pieces = []
    for slot, text in enumerate(TEXTS):
        options = SpeechOptions(seed=slot, min_frames=FRAMES, sampling=sampling)
        request = model.preprocess(text, options)
        model.open_slot(state, slot, request, (11 - slot, 3 * slot, 3 * slot + 1))
        pieces += request.pieces
    model.prefill(state, model.pack_prefill((0, 1, 2), tuple(pieces), model.device))
    return state, slots_of(2, 0, 1, state.scratch).to(model.device)


def stage(run: Callable[[], object], captured: bool) -> Callable[[], object]:
    """A stage as it is, or as a CUDA graph of it; a warm-up run has compiled its kernels."""
    if not captured:
        return run
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def speak(model: Qwen3TTS, sampling: Sampling, captured: bool = False) -> torch.Tensor:
    """Codes [3, frames, codebooks] of the three requests."""
    state, rows = started(model, sampling)
    model.decode(state, rows, 0)
    step = stage(lambda: model.decode(state, rows, 0), captured)
    for _ in range(FRAMES - 2):
        step()
    assert state.num_frames[:3].tolist() == [FRAMES] * 3
    return state.codes[:3, :FRAMES].cpu()


def sound(model: Qwen3TTS, codes: torch.Tensor, captured: bool = False) -> torch.Tensor:
    """[3, samples] of codes decoded in two chunks of ten."""
    state = model.allocate(StateSize(4, 0, 64, 128))
    state.codes[:3, :FRAMES] = codes.to(model.device)
    slots, valid, first, last = (
        slots_of(*values).to(model.device)
        for values in ((2, 0, 1, 4), (10, 10, 10, 0), (0, 0, 0, 0), (0, 0, 0, 0))
    )
    out: list[torch.Tensor] = []

    def run() -> None:
        out[:] = [model.codec(state, slots, first, valid, last != 0, 10)]

    run()
    chunk = stage(run, captured)
    waves = []
    for start in (0, 10):
        first.fill_(start)
        chunk()
        waves.append(out[0][:3].cpu())
    return torch.cat(waves, 1)[[1, 2, 0]]


def test_greedy_codes_equal_the_cpus(gpu: Qwen3TTS, cpu: Qwen3TTS) -> None:
    assert torch.equal(speak(gpu, GREEDY), speak(cpu, GREEDY))


def test_sampled_codes_equal_the_cpus(gpu: Qwen3TTS, cpu: Qwen3TTS) -> None:
    """The same noise and the same rules; logits differ by rounding only."""
    assert torch.equal(speak(gpu, Sampling()), speak(cpu, Sampling()))


def test_captured_steps_equal_eager_ones(gpu: Qwen3TTS) -> None:
    assert torch.equal(speak(gpu, Sampling(), captured=True), speak(gpu, Sampling()))


def test_sound_equals_the_cpus(gpu: Qwen3TTS, cpu: Qwen3TTS) -> None:
    codes = torch.randint(64, (3, FRAMES, 16), generator=torch.Generator().manual_seed(0)).int()
    reference = sound(cpu, codes)
    assert float(reference.abs().max()) > 0.05
    assert relative_error(sound(gpu, codes), reference) <= 10 * WAVE_TOLERANCE
    assert torch.equal(sound(gpu, codes, captured=True), sound(gpu, codes))
