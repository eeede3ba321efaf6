"""Compares a whole model in bfloat16 on a GPU with the same weights in float32 on the CPU.

Both are fed the same random prompts and the same random codes (teacher forcing: what either would
choose is compared, and never fed back), and decode the same codes into sound.
Command: `python -m voxserve.bench.parity --out FILE`.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import torch

from voxserve.bench.machine import cpu_name, revision, versions
from voxserve.bench.tables import Figure, Results
from voxserve.core.jobs import RowStatus
from voxserve.models.base import PrefillInputs, StateSize
from voxserve.models.blocks.sampling import SamplingDefaults
from voxserve.models.blocks.weights import RandomWeights, WeightSource
from voxserve.models.qwen3_tts.config import published_codec, published_talker
from voxserve.models.qwen3_tts.model import Qwen3TTS
from voxserve.models.qwen3_tts.shapes import codec_shapes, random_gain, talker_shapes
from voxserve.models.qwen3_tts.state import QwenState
from voxserve.models.qwen3_tts.tokenizer import HashTokenizer

MIN_AGREEMENT = 0.95
MAX_GAP_ERRORS = 3.0
MAX_WAVE_ERROR = 2e-2
MAX_LOAD_S = 20.0
_CHUNK_FRAMES = 10


@dataclass(frozen=True, slots=True)
class Inputs:
    """What both sides are fed.

    Attributes:
        prompt: [rows, tokens, 1 + codebooks] int32: text ids and first-table ids.
        codes: [rows, frames, codebooks] int32, forced on the LM.
        chunks: [rows, chunks * 10, codebooks] int32, decoded into sound.
    """

    prompt: torch.Tensor
    codes: torch.Tensor
    chunks: torch.Tensor


@dataclass(frozen=True, slots=True)
class Outputs:
    """What one side made of them, as float32 on the CPU.

    Attributes:
        first: [frames, rows, vocab], logits of the first codebook, impossible ids left out.
        depth: [frames, codebooks - 1, rows, codes].
        wave: [rows, samples].
    """

    first: torch.Tensor
    depth: torch.Tensor
    wave: torch.Tensor


@dataclass(frozen=True, slots=True)
class LogitParity:
    """How two sides' logits of the same draws compare.

    Attributes:
        agreement: Share of draws with the same best id.
        relative_error: Root mean square of the differences over the reference's standard deviation.
        gaps: Of each draw that disagrees, the gap between the reference's two best over the root
            mean square of that draw's own differences.
        num_draws: Draws compared.
    """

    agreement: float
    relative_error: float
    gaps: tuple[float, ...]
    num_draws: int

    @property
    def worst_gap(self) -> float:
        """Largest of `gaps`; 0 where no draw disagrees."""
        return max(self.gaps, default=0.0)

    @property
    def wide_share(self) -> float:
        """Share of `gaps` beyond `MAX_GAP_ERRORS`; 0 where no draw disagrees."""
        return sum(gap > MAX_GAP_ERRORS for gap in self.gaps) / max(len(self.gaps), 1)


def random_inputs(model: Qwen3TTS, rows: int, tokens: int, frames: int, seed: int) -> Inputs:
    """Fresh inputs of a model's ranges."""
    generator = torch.Generator().manual_seed(seed)
    config = model.config

    def ids(limit: int, *shape: int) -> torch.Tensor:
        return torch.randint(limit, shape, generator=generator, dtype=torch.int32)

    prompt = torch.zeros((rows, tokens, 1 + config.num_codebooks), dtype=torch.int32)
    prompt[..., 0] = ids(config.text_vocab, rows, tokens)
    prompt[..., 1] = ids(config.vocab, rows, tokens)
    limit = min(config.num_codes, config.depth_vocab)
    codes = ids(limit, rows, frames, config.num_codebooks)
    size = model.codec_decoder.config.codebook_size
    return Inputs(prompt, codes, ids(size, rows, 2 * _CHUNK_FRAMES, config.num_codebooks))


@torch.inference_mode()
def run(model: Qwen3TTS, inputs: Inputs) -> Outputs:
    """Feeds one side."""
    rows, frames = inputs.codes.shape[:2]
    state = model.allocate(StateSize(rows, 0, 64, max(frames, inputs.chunks.shape[1])))
    slots = torch.arange(rows, dtype=torch.int32, device=model.device)
    codes = inputs.codes.to(model.device)
    hidden = _prefill(model, state, inputs.prompt, slots)
    first: list[torch.Tensor] = []
    depth: list[torch.Tensor] = []
    for frame in range(frames):
        logits, deeper = _forced_frame(model, hidden, codes[:, frame])
        first.append(logits)
        depth.append(deeper)
        state.codes[:rows, frame] = codes[:, frame]
        state.num_frames[:rows] = frame + 1
        state.status[:rows] = RowStatus.CONTINUE
        if frame + 1 < frames:
            _, x = model.talker.step_input(state, slots)
            hidden = model.talker.backbone.decode(x, state.cache, slots)
            state.cache.lengths[:rows] += 1
    return Outputs(torch.stack(first), torch.stack(depth), _decode(model, state, inputs, slots))


def compare_logits(reference: torch.Tensor, other: torch.Tensor) -> LogitParity:
    """Compares logits [..., ids] of the same draws."""
    reference, other = reference.flatten(0, -2), other.flatten(0, -2)
    squares = (other - reference).square()
    best = reference.topk(2, -1)
    is_equal = best.indices[:, 0] == other.argmax(-1)
    gaps = (best.values[:, 0] - best.values[:, 1]) / squares.mean(-1).sqrt()
    return LogitParity(
        agreement=float(is_equal.float().mean()),
        relative_error=float(squares.mean().sqrt() / reference.std()),
        gaps=tuple(float(gap) for gap in gaps[~is_equal]),
        num_draws=len(reference),
    )


def wide_share_by_chance() -> float:
    """Share of differing draws whose gap exceeds `MAX_GAP_ERRORS` where errors are Gaussian.

    Two logits err independently with the draw's error each, so their difference errs with sqrt 2
    times as much, and small gaps are equally likely: with x = `MAX_GAP_ERRORS` / sqrt 2, the
    integral of the Gaussian tail beyond x over the one beyond 0.
    """
    x = MAX_GAP_ERRORS / math.sqrt(2.0)
    density = math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    return (density - x * math.erfc(x / math.sqrt(2)) / 2) * math.sqrt(2 * math.pi)


def compare_waves(reference: torch.Tensor, other: torch.Tensor) -> float:
    """Norm of the difference over the reference's norm."""
    return float(((other - reference).square().sum() / reference.square().sum()).sqrt())


def figures(reference: Outputs, other: Outputs) -> tuple[Figure, ...]:
    """All comparisons as rows of a results file."""
    rows: list[Figure] = []
    for name, pair in (
        ("first codebook", (reference.first, other.first)),
        ("depth codebooks", (reference.depth, other.depth)),
    ):
        parity = compare_logits(*pair)
        draws = f"{name}, {parity.num_draws} draws"
        rows += [
            Figure(
                f"same best code, {draws}",
                *(parity.agreement, "share", MIN_AGREEMENT),
                better="higher",
            ),
            Figure(
                f"largest top-2 gap of a differing code over the logit error, {draws}",
                *(parity.worst_gap, "logit errors", MAX_GAP_ERRORS),
            ),
            Figure(
                f"differing codes with a gap beyond 3 logit errors, {name}, of {len(parity.gaps)}",
                *(parity.wide_share, "share"),
            ),
            Figure(f"logit error over standard deviation, {draws}", parity.relative_error, "ratio"),
        ]
    rows.append(
        Figure(
            "differing codes with a gap beyond 3 logit errors, expected of Gaussian errors",
            *(wide_share_by_chance(), "share"),
        )
    )
    error = compare_waves(reference.wave, other.wave)
    clipped = float((reference.wave.abs() >= 1.0).float().mean())
    rows.append(Figure("codec audio error over signal (norms)", error, "ratio", MAX_WAVE_ERROR))
    rows.append(Figure("samples at the clamp, which hides errors", clipped, "share", 0.01))
    return tuple(rows)


def _prefill(
    model: Qwen3TTS, state: QwenState, prompt: torch.Tensor, slots: torch.Tensor
) -> torch.Tensor:
    """Runs the prompts; returns each row's last hidden state behind the final norm."""
    rows, tokens, columns = prompt.shape
    mask = torch.zeros((rows * tokens, columns), dtype=torch.bool, device=model.device)
    mask[:, :2] = True
    starts = torch.arange(0, rows * tokens + 1, tokens, dtype=torch.int32, device=model.device)
    ids = prompt.view(rows * tokens, columns).to(model.device)
    inputs = PrefillInputs(ids, mask, None, starts, slots, tokens)
    x = model.talker.embed_prompt(inputs)
    positions = torch.arange(tokens, dtype=torch.int32, device=model.device).repeat(rows)
    x = model.talker.backbone.prefill(
        x, state.cache, slots.repeat_interleave(tokens).contiguous(), positions
    )
    state.cache.lengths[:rows] = tokens
    return model.talker.backbone.normalise(x.view(rows, tokens, -1)[:, -1].contiguous())


def _forced_frame(
    model: Qwen3TTS, hidden: torch.Tensor, codes: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of one frame's draws: [rows, codes + 1] (the end id last) and [depth, rows, codes]."""
    talker, config = model.talker, model.config
    logits = talker.first_logits(hidden).cpu()
    possible = torch.cat((logits[:, : config.num_codes], logits[:, [config.codec_ids.eos]]), 1)
    depth: list[torch.Tensor] = []

    def force(
        logits: torch.Tensor,
        codebook: int,
        table: torch.Tensor | None,
        rows: torch.Tensor | None,
        unscaled: torch.Tensor | None,
    ) -> None:
        wide = logits.float()
        if unscaled is not None:
            squares = unscaled.float().square().mean(-1, keepdim=True)
            wide = wide * torch.rsqrt(squares + talker.depth.shape.norm_eps)
        depth.append(wide.cpu())
        if table is not None and rows is not None:
            rows.copy_(table[codes[:, codebook].long()])

    talker.depth.frame(hidden, talker.depth.tables[0][codes[:, 0].long()], force)
    return possible, torch.stack(depth)


def _decode(model: Qwen3TTS, state: QwenState, inputs: Inputs, slots: torch.Tensor) -> torch.Tensor:
    """The wave of the given codes in two chunks, so that state is carried once."""
    rows = len(slots)
    state.codes[:rows, : inputs.chunks.shape[1]] = inputs.chunks.to(model.device)
    valid = torch.full_like(slots, _CHUNK_FRAMES)
    last = torch.zeros(rows, dtype=torch.bool, device=model.device)
    waves = [
        model.codec(state, slots, torch.full_like(slots, first), valid, last, _CHUNK_FRAMES)
        for first in range(0, inputs.chunks.shape[1], _CHUNK_FRAMES)
    ]
    return torch.cat(waves, 1).float().cpu()


def _models(size: str, device: torch.device, seed: int) -> tuple[Qwen3TTS, Qwen3TTS, float]:
    """The same random weights twice: float32 on the CPU, bfloat16 on the device.

    The last value is how long the second took, in seconds.
    """
    config, codec = published_talker(size), published_codec()
    sources = (
        RandomWeights(talker_shapes(config), device, torch.bfloat16, seed),
        RandomWeights(codec_shapes(codec), device, torch.bfloat16, seed, random_gain),
    )

    def build(get_talker: WeightSource, get_codec: WeightSource) -> Qwen3TTS:
        tokenizer = HashTokenizer(config.text_ids.im_start)
        return Qwen3TTS(
            *(f"qwen3-tts-{size}", config, codec, get_talker, get_codec),
            *(tokenizer, SamplingDefaults()),
        )

    def on_cpu(source: WeightSource) -> WeightSource:
        return lambda name: source(name).float().cpu()

    started = time.monotonic()
    other = build(*sources)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    load_s = time.monotonic() - started
    return build(on_cpu(sources[0]), on_cpu(sources[1])), other, load_s


def main(arguments: list[str] | None = None) -> int:
    """Runs the comparison; 1 where a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="1.7b", choices=("1.7b", "0.6b"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--frames", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    reference, other, load_s = _models(options.size, device, options.seed)
    inputs = random_inputs(
        reference, options.rows, options.prompt_tokens, options.frames, options.seed
    )
    rows = (
        *figures(run(reference, inputs), run(other, inputs)),
        Figure(f"random weights of {options.size} on the device", load_s, "s", MAX_LOAD_S),
    )
    is_gpu = device.type == "cuda"
    results = Results(
        device=torch.cuda.get_device_name(device) if is_gpu else cpu_name(),
        date=datetime.now(UTC).date().isoformat(),
        versions=versions("torch", "triton"),
        settings=revision()
        | {name: value for name, value in vars(options).items() if name != "out"},
        command="python -m voxserve.bench.parity",
        rows=rows,
    )
    if options.out is not None:
        results.save(options.out)
    for row in rows:
        sys.stdout.write(f"{row.figure}: {row.value:.4g} {row.unit} {row.verdict()}\n")
    sys.stdout.write(f"{results.settings}\n")
    return 1 if any(row.verdict() == "missed" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
