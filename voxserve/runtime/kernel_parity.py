"""Compares every kernel with its reference in float64, on fresh random inputs.

One case per op and size. Both sides see the same values, rounded to the kernel's type first.
The kernel's own error is what remains.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from voxserve.kernels.backend import forced_reference, use_reference
from voxserve.kernels.causal_conv import causal_conv
from voxserve.kernels.conv_state import ConvInput, ConvStateLayout, PaddedBuffers
from voxserve.kernels.decode_attention import decode_attention
from voxserve.kernels.depth_attention import depth_attention
from voxserve.kernels.depthwise_norm import depthwise_norm
from voxserve.kernels.embedding_sum import embedding_sum
from voxserve.kernels.final_conv import final_conv
from voxserve.kernels.fused_linear import linear_residual, norm_gate_up, norm_linear
from voxserve.kernels.kv_cache import PAGE_SIZE, qk_norm_rope_write
from voxserve.kernels.linear_kernel import LinearTile, launch_linear
from voxserve.kernels.prefill_attention import prefill_attention
from voxserve.kernels.residual_unit import ResidualUnitWeights, residual_unit
from voxserve.kernels.rms_norm import rms_norm
from voxserve.kernels.rope import rope_table
from voxserve.kernels.sampling import FirstCodebookRules, SamplingParams, sample
from voxserve.kernels.silu_mul import silu_mul
from voxserve.kernels.snake import snake, snake_params
from voxserve.kernels.window_attention import window_attention

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class ParityCase:
    """One comparison: how to make inputs and what to compute from them.

    build: makes the inputs from a generator; float tensors become the kernel's type, those named
        in `keep` excepted.
    call: runs the op on a dictionary of inputs (which it may change) and returns all results.
    keep: names of float inputs that stay float32.
    """

    name: str
    build: Callable[[torch.Generator], Tensors]
    call: Callable[[Tensors], list[torch.Tensor]]
    keep: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ParityResult:
    """Error of one case: the largest `|out - ref| / |ref|` (norms) over its results."""

    name: str
    relative_error: float


def run_case(
    case: ParityCase, device: torch.device | str, dtype: torch.dtype, seed: int
) -> ParityResult:
    """Runs one case on `device` in `dtype` against float64 on the same device."""
    inputs = case.build(torch.Generator().manual_seed(seed))
    rounded = {
        name: value.to(dtype) if value.is_floating_point() and name not in case.keep else value
        for name, value in inputs.items()
    }
    results = case.call({name: value.clone().to(device) for name, value in rounded.items()})
    exact = {
        name: (value.double() if value.is_floating_point() else value.clone()).to(device)
        for name, value in rounded.items()
    }
    with forced_reference():
        expected = case.call(exact)
    errors = [
        relative_error(result, reference)
        for result, reference in zip(results, expected, strict=True)
    ]
    return ParityResult(case.name, max(errors))


def relative_error(result: torch.Tensor, reference: torch.Tensor) -> float:
    """Returns `|result - reference| / |reference|` (Euclidean norms); NaN counts as infinite."""
    result, reference = result.detach().cpu().double(), reference.cpu().double()
    error = float((result - reference).norm() / reference.norm().clamp(min=1e-30))
    return error if error == error else float("inf")


def _normal(gen: torch.Generator, *shape: int, scale: float = 1.0) -> torch.Tensor:
    return torch.randn(*shape, generator=gen) * scale


def _around_one(gen: torch.Generator, *shape: int) -> torch.Tensor:
    return 1.0 + 0.2 * torch.randn(*shape, generator=gen)


def _poison(*shape: int, like: torch.Tensor) -> torch.Tensor:
    return torch.full(shape, float("nan"), dtype=like.dtype, device=like.device)


def norm_cases(rows: int, width: int, out: int) -> list[ParityCase]:
    """Norms, gated activation and the fused products."""

    def build(gen: torch.Generator) -> Tensors:
        return {
            "x": _normal(gen, rows, width),
            "norm": _around_one(gen, width),
            "weight": _normal(gen, 2 * out, width, scale=width**-0.5),
            "back": _normal(gen, width, out, scale=out**-0.5),
            "hidden": _normal(gen, rows, out),
            "residual": _normal(gen, rows, width),
        }

    size = f"[{rows}x{width}x{out}]"
    return [
        ParityCase(f"rms_norm{size}", build, lambda t: [rms_norm(t["x"], t["norm"])]),
        ParityCase(f"silu_mul{size}", build, lambda t: [silu_mul(t["x"])]),
        ParityCase(f"silu_mul_unscaled{size}", build, lambda t: [silu_mul(t["x"], t["hidden"])]),
        ParityCase(
            f"norm_linear{size}", build, lambda t: [norm_linear(t["x"], t["norm"], t["weight"])]
        ),
        ParityCase(
            f"norm_linear_folded{size}", build, lambda t: [norm_linear(t["x"], None, t["weight"])]
        ),
        ParityCase(
            f"norm_gate_up{size}", build, lambda t: [norm_gate_up(t["x"], None, t["weight"])]
        ),
        ParityCase(
            f"linear_residual{size}",
            build,
            lambda t: [linear_residual(t["hidden"], t["back"], t["residual"])],
        ),
    ]


def linear_tile_case(rows: int, width: int, out: int, tile: LinearTile, kind: str) -> ParityCase:
    """The product kernel with a given program shape; `kind` is `norm`, `gated` or `residual`."""

    def build(gen: torch.Generator) -> Tensors:
        outputs = 2 * out if kind == "gated" else out
        return {
            "x": _normal(gen, rows, width),
            "weight": _normal(gen, outputs, width, scale=width**-0.5),
            "residual": _normal(gen, rows, out),
        }

    def call(t: Tensors) -> list[torch.Tensor]:
        if not use_reference(t["x"]):
            residual = t["residual"] if kind == "residual" else None
            options = {"norm": kind != "residual", "gated": kind == "gated"}
            return [launch_linear(t["x"], t["weight"], tile, residual=residual, **options)]
        if kind == "residual":
            return [linear_residual(t["x"], t["weight"], t["residual"])]
        return [(norm_gate_up if kind == "gated" else norm_linear)(t["x"], None, t["weight"])]

    shape = "x".join(str(value) for value in (tile.bm, tile.bn, tile.bk, tile.split))
    return ParityCase(f"linear_tile[{rows}x{width}x{out},{kind},{shape}]", build, call)


def _paged_inputs(
    gen: torch.Generator, lengths: list[int], q_heads: int, kv_heads: int, head_dim: int
) -> Tensors:
    slots = len(lengths) + 2
    max_pages = max(lengths) // PAGE_SIZE + 2
    pages = torch.randperm(slots * max_pages, generator=gen).view(slots, max_pages)
    order = torch.randperm(slots, generator=gen)[: len(lengths)]
    all_lengths = torch.zeros(slots, dtype=torch.int32)
    all_lengths[order] = torch.tensor(lengths, dtype=torch.int32)
    width = (q_heads + 2 * kv_heads) * head_dim
    return {
        "qkv": _normal(gen, len(lengths), width),
        "x": _normal(gen, len(lengths), 80, scale=1.7),
        "q_norm": _around_one(gen, head_dim),
        "k_norm": _around_one(gen, head_dim),
        "table": rope_table(max_pages * PAGE_SIZE, head_dim, 1e6),
        "kv": _normal(gen, slots * max_pages, 2, kv_heads, PAGE_SIZE, head_dim),
        "page_table": pages.int(),
        "lengths": all_lengths,
        "slots": order.int(),
    }


def decode_attention_case(
    lengths: list[int], q_heads: int, kv_heads: int, head_dim: int, normed: bool = True
) -> ParityCase:
    """Paged decode attention over requests of the given lengths; the cache is compared too."""

    def call(t: Tensors) -> list[torch.Tensor]:
        out = decode_attention(
            t["qkv"],
            t["q_norm"] if normed else None,
            t["k_norm"] if normed else None,
            t["table"],
            t["kv"],
            t["page_table"],
            t["lengths"],
            t["slots"],
        )
        unscaled = decode_attention(
            t["qkv"],
            t["q_norm"] if normed else None,
            t["k_norm"] if normed else None,
            t["table"],
            t["kv"],
            t["page_table"],
            t["lengths"],
            t["slots"],
            unscaled=t["x"],
        )
        return [out, unscaled, t["kv"]]

    return ParityCase(
        f"decode_attention[{len(lengths)}x{max(lengths)},{q_heads}/{kv_heads}x{head_dim}]",
        lambda gen: _paged_inputs(gen, lengths, q_heads, kv_heads, head_dim),
        call,
        frozenset({"table"}),
    )


def prefill_case(lengths: list[int], q_heads: int, kv_heads: int, head_dim: int) -> ParityCase:
    """Cache write, then packed causal attention, of prompts of the given lengths."""

    def build(gen: torch.Generator) -> Tensors:
        inputs = _paged_inputs(gen, lengths, q_heads, kv_heads, head_dim)
        counts = torch.tensor(lengths)
        inputs["slots"] = inputs["slots"].repeat_interleave(counts)
        inputs["positions"] = torch.cat([torch.arange(n, dtype=torch.int32) for n in lengths])
        inputs["qkv"] = _normal(gen, sum(lengths), inputs["qkv"].shape[1])
        inputs["x"] = _normal(gen, sum(lengths), 80, scale=1.7)
        return inputs

    def call(t: Tensors) -> list[torch.Tensor]:
        place = (t["page_table"], t["slots"], t["positions"])
        parts = (t["qkv"], t["q_norm"], t["k_norm"], t["table"], t["kv"], *place)
        q = qk_norm_rope_write(*parts, unscaled=t["x"])
        return [q, t["kv"], prefill_attention(q, t["kv"], *place)]

    name = f"prefill_attention[{len(lengths)}x{max(lengths)},{q_heads}/{kv_heads}x{head_dim}]"
    return ParityCase(name, build, call, frozenset({"table"}))


def depth_case(rows: int, q_heads: int, kv_heads: int, head_dim: int, steps: int) -> ParityCase:
    """The depth transformer's attention over `steps` positions in order."""

    def build(gen: torch.Generator) -> Tensors:
        return {
            "qkv": _normal(gen, rows, steps, (q_heads + 2 * kv_heads) * head_dim),
            "x": _normal(gen, rows, steps, 80, scale=1.7),
            "q_norm": _around_one(gen, head_dim),
            "k_norm": _around_one(gen, head_dim),
            "table": rope_table(32, head_dim, 1e6),
        }

    def call(t: Tensors) -> list[torch.Tensor]:
        cache = _poison(rows, 2, kv_heads, 16, head_dim, like=t["qkv"])
        return [
            depth_attention(
                t["qkv"][:, j],
                t["q_norm"],
                t["k_norm"],
                t["table"],
                cache,
                j,
                unscaled=t["x"][:, j] if j % 2 else None,
            )
            for j in range(steps)
        ]

    name = f"depth_attention[{rows}x{steps},{q_heads}/{kv_heads}x{head_dim}]"
    return ParityCase(name, build, call, frozenset({"table"}))


def sampling_case(rows: int, vocab: int, first: bool) -> ParityCase:
    """Ids with mixed settings per row; an error of 0 means that all are equal."""
    float_names = {"logits", "temperature", "top_p", "penalty"}

    def build(gen: torch.Generator) -> Tensors:
        slots = rows + 1

        def pick(choices: list[float]) -> torch.Tensor:
            return torch.tensor(choices)[torch.randint(len(choices), (slots,), generator=gen)]

        return {
            "logits": _normal(gen, rows, vocab, scale=3.0),
            "slots": torch.randperm(slots, generator=gen)[:rows].int(),
            "temperature": pick([0.0, 0.7, 0.9, 1.3]),
            "top_k": pick([0, 1, 5, 50]).int(),
            "top_p": pick([0.5, 0.9, 1.0]),
            "seeds": torch.randint(2**62, (slots,), generator=gen),
            "frames": torch.randint(4, (slots,), generator=gen).int(),
            "seen": torch.randint(2**30, (slots, -(-vocab // 32)), generator=gen).int(),
            "penalty": pick([1.0, 1.05, 1.5]),
            "min_frames": pick([0, 2]).int(),
            "next_table": _normal(gen, vocab, 48),
            "x": _normal(gen, rows, 80, scale=1.7),
        }

    def call(t: Tensors) -> list[torch.Tensor]:
        t = {name: t[name].float() if name in float_names else t[name] for name in t}
        rules = None
        if first:
            rules = FirstCodebookRules(
                t["seen"], t["penalty"], t["min_frames"], vocab * 2 // 3, vocab * 2 // 3 + 5
            )
        ids = torch.full((rows, 3), -1, dtype=torch.int32, device=t["logits"].device)
        next_rows = _poison(rows, 48, like=t["next_table"])
        sample(
            t["logits"],
            t["slots"],
            SamplingParams(t["temperature"], t["top_k"], t["top_p"]),
            t["seeds"],
            t["frames"],
            7,
            ids[:, 1],
            rules=rules,
            next_table=t["next_table"],
            next_rows=next_rows,
            unscaled=None if first else t["x"],
        )
        return [ids, t["seen"], next_rows]

    return ParityCase(f"sample[{rows}x{vocab},{first}]", build, call, frozenset(float_names))


def embedding_case(rows: int, frames: int, codebooks: int, vocab: int, width: int) -> ParityCase:
    """Summed code embeddings, written behind a history."""

    def build(gen: torch.Generator) -> Tensors:
        return {
            "ids": torch.randint(vocab, (rows, frames, codebooks), generator=gen).int(),
            "tables": _normal(gen, codebooks, vocab, width),
            "extra": _normal(gen, rows, frames, width),
        }

    def call(t: Tensors) -> list[torch.Tensor]:
        padded = _poison(rows, 2 + frames, width, like=t["tables"])
        return [embedding_sum(t["ids"], t["tables"], extra=t["extra"], out=padded[:, 2:])]

    return ParityCase(f"embedding_sum[{rows}x{frames}x{codebooks}x{width}]", build, call)


def conv_case(
    rows: int,
    frames: int,
    channels_in: int,
    channels_out: int,
    taps: int,
    dilation: int = 1,
    mode: str = "snake",
) -> ParityCase:
    """One causal convolution; `mode` is `plain`, `gelu` or `snake` (with residual)."""

    def build(gen: torch.Generator) -> Tensors:
        history = (taps - 1) * dilation
        return {
            "x": _normal(gen, rows, history + frames, channels_in),
            "weight": _normal(
                gen, taps, channels_in, channels_out, scale=(taps * channels_in) ** -0.5
            ),
            "bias": _normal(gen, channels_out),
            "residual": _normal(gen, rows, frames, channels_out),
            "snake": snake_params(
                _normal(gen, channels_out, scale=0.3), _normal(gen, channels_out, scale=0.3)
            ),
        }

    def call(t: Tensors) -> list[torch.Tensor]:
        out = _poison(rows, 3 + frames, channels_out, like=t["x"])[:, 3:]
        if mode == "snake":
            snake_out = _poison(rows, 6 + frames, channels_out, like=t["x"])[:, 6:]
            results = causal_conv(
                t["x"],
                t["weight"],
                t["bias"],
                dilation=dilation,
                residual=t["residual"],
                snake=t["snake"],
                out=out,
                snake_out=snake_out,
            )
            return [result for result in results if result is not None]
        causal_conv(t["x"], t["weight"], t["bias"], dilation=dilation, gelu=mode == "gelu", out=out)
        return [out]

    name = f"causal_conv[{rows}x{frames},{channels_in}>{channels_out},k{taps}d{dilation},{mode}]"
    return ParityCase(name, build, call, frozenset({"snake"}))


def residual_unit_case(rows: int, frames: int, channels: int, dilation: int) -> ParityCase:
    """A whole residual unit, in place on its residual stream."""

    def build(gen: torch.Generator) -> Tensors:
        def small(*shape: int) -> torch.Tensor:
            return _normal(gen, *shape, scale=0.3)

        return {
            "x": _normal(gen, rows, frames, channels),
            "activated": _normal(gen, rows, 6 * dilation + frames, channels),
            "conv1": _normal(gen, 7, channels, channels, scale=(7 * channels) ** -0.5),
            "bias1": small(channels),
            "snake2": snake_params(small(channels), small(channels)),
            "conv2": _normal(gen, 1, channels, channels, scale=channels**-0.5),
            "bias2": small(channels),
            "next_snake": snake_params(small(channels), small(channels)),
        }

    def call(t: Tensors) -> list[torch.Tensor]:
        weights = ResidualUnitWeights(
            t["conv1"], t["bias1"], dilation, t["snake2"], t["conv2"], t["bias2"]
        )
        snake_out = _poison(rows, 18 + frames, channels, like=t["x"])[:, 18:]
        residual_unit(
            t["x"], t["activated"], weights, t["next_snake"], out=t["x"], snake_out=snake_out
        )
        return [t["x"], snake_out]

    name = f"residual_unit[{rows}x{frames}x{channels},d{dilation}]"
    return ParityCase(name, build, call, frozenset({"snake2", "next_snake"}))


def codec_cases(rows: int, frames: int, width: int, heads: int, head_dim: int) -> list[ParityCase]:
    """Depthwise convolution, window attention, state movement, snake and the final convolution."""

    def depthwise(gen: torch.Generator) -> Tensors:
        return {
            "x": _normal(gen, rows, 6 + frames, width),
            "weight": _normal(gen, 7, width, scale=0.4),
            "bias": _normal(gen, width, scale=0.1),
            "norm_weight": _around_one(gen, width),
            "norm_bias": _normal(gen, width, scale=0.1),
        }

    def attention(gen: torch.Generator) -> Tensors:
        slots = rows + 2
        positions = torch.randint(200, (slots,), generator=gen).int()
        positions[:2] = torch.tensor([0, 3])
        return {
            "qkv": _normal(gen, rows, frames, 3 * heads * head_dim),
            "x": _normal(gen, rows, frames, 80, scale=1.7),
            "table": rope_table(256, head_dim, 1e4),
            "cache": _normal(gen, slots, 2, heads, 96, head_dim),
            "slots": torch.randperm(slots, generator=gen)[:rows].int(),
            "positions": positions,
        }

    def attend(t: Tensors) -> list[torch.Tensor]:
        out = window_attention(
            t["qkv"], t["table"], t["cache"], t["slots"], t["positions"], window=72
        )
        again = window_attention(
            *(t["qkv"], t["table"], t["cache"], t["slots"], t["positions"], 72, t["x"])
        )
        return [out, again, t["cache"]]

    layout = ConvStateLayout((ConvInput(6, width, 1), ConvInput(1, 48, 2), ConvInput(18, 96, 4)))

    def state(gen: torch.Generator) -> Tensors:
        slots = rows + 2
        sizes = [(6 + frames) * width, (1 + 2 * frames) * 48, (18 + 4 * frames) * 96]
        return {
            "state": _normal(gen, slots, layout.width),
            "slots": torch.randperm(slots, generator=gen)[:rows].int(),
            "positions": torch.randint(2, (slots,), generator=gen).int(),
            "valid": torch.randint(frames + 1, (rows,), generator=gen).int(),
        } | {f"x{j}": _normal(gen, rows, size) for j, size in enumerate(sizes)}

    def move(t: Tensors) -> list[torch.Tensor]:
        buffers = PaddedBuffers(layout, rows, frames, t["state"].dtype, t["state"].device)
        for j, view in enumerate(buffers.views):
            view.copy_(t[f"x{j}"].view_as(view))
        buffers.gather(t["state"], t["slots"], t["positions"])
        gathered = [view.clone() for view in buffers.views]
        buffers.scatter(t["state"], t["slots"], t["valid"])
        return [*gathered, t["state"]]

    def vocoder(gen: torch.Generator) -> Tensors:
        return {
            "x": _normal(gen, rows, 6 + 48 * frames, 96),
            "weight": _normal(gen, 7, 96, scale=0.02),
            "bias": _normal(gen, 1, scale=0.1),
        }

    def activation(gen: torch.Generator) -> Tensors:
        return {
            "x": _normal(gen, rows, 5 * frames, 96),
            "snake": snake_params(_normal(gen, 96, scale=0.3), _normal(gen, 96, scale=0.3)),
        }

    size = f"[{rows}x{frames}x{width}]"
    return [
        ParityCase(
            f"depthwise_norm{size}",
            depthwise,
            lambda t: [
                depthwise_norm(t["x"], t["weight"], t["bias"], t["norm_weight"], t["norm_bias"])
            ],
        ),
        ParityCase(f"window_attention{size}", attention, attend, frozenset({"table"})),
        ParityCase(f"conv_state{size}", state, move),
        ParityCase(
            f"final_conv{size}",
            vocoder,
            lambda t: [final_conv(t["x"], t["weight"], t["bias"])],
        ),
        ParityCase(
            f"snake{size}", activation, lambda t: [snake(t["x"], t["snake"])], frozenset({"snake"})
        ),
    ]


def small_cases() -> list[ParityCase]:
    """Cases a CPU interprets in seconds."""
    return [
        *norm_cases(3, 96, 40),
        linear_tile_case(3, 128, 40, LinearTile(16, 16, 32, 4, 2), "norm"),
        linear_tile_case(20, 128, 48, LinearTile(16, 16, 32, 4, 2), "gated"),
        linear_tile_case(20, 128, 40, LinearTile(16, 32, 32, 4, 2, split=2), "residual"),
        decode_attention_case([0, 1, 64, 130], 4, 2, 32),
        decode_attention_case([5, 70], 2, 2, 32, normed=False),
        prefill_case([5, 70, 1], 4, 2, 32),
        depth_case(3, 4, 2, 32, 5),
        sampling_case(6, 200, first=True),
        sampling_case(6, 128, first=False),
        embedding_case(2, 3, 4, 50, 40),
        conv_case(2, 5, 64, 48, 3, mode="plain"),
        conv_case(2, 20, 32, 96, 7, 3),
        conv_case(3, 7, 64, 64, 1, mode="gelu"),
        conv_case(1, 170, 32, 32, 7, 9),
        residual_unit_case(2, 40, 96, 3),
        residual_unit_case(1, 33, 192, 1),
        residual_unit_case(1, 9, 64, 1),
        *codec_cases(3, 5, 40, 2, 32),
    ]


def full_cases() -> list[ParityCase]:
    """Cases at the sizes of Qwen3-TTS 1.7B and its codec."""
    lengths = [(37 * j) % 400 for j in range(64)]
    cases = [case for rows in (1, 7, 33, 256) for case in norm_cases(rows, 2048, 3072)]
    for rows, bm in ((1, 16), (64, 64), (250, 128)):
        cases += [
            linear_tile_case(rows, 1024, 3072, LinearTile(bm, 32, 128, 4, 3), "norm"),
            linear_tile_case(rows, 1024, 3072, LinearTile(bm, 32, 128, 4, 3), "gated"),
            linear_tile_case(rows, 3072, 1024, LinearTile(bm, 32, 128, 4, 3, split=4), "residual"),
            linear_tile_case(rows, 2048, 1024, LinearTile(bm, 32, 128, 4, 3, split=2), "residual"),
        ]
    cases += [case for rows in (1, 17, 200) for case in norm_cases(rows, 1024, 3072)]
    cases += [
        decode_attention_case(lengths, 16, 8, 128),
        decode_attention_case([1900], 16, 8, 128),
        prefill_case([40] * 16, 16, 8, 128),
        prefill_case([200, 1, 77, 150], 16, 8, 128),
        depth_case(65, 16, 8, 128, 16),
        sampling_case(257, 3072, first=True),
        sampling_case(257, 2048, first=False),
        embedding_case(3, 10, 16, 2048, 512),
        conv_case(3, 10, 512, 1024, 3, mode="plain"),
        conv_case(2, 40, 1024, 1536, 7),
        conv_case(2, 40, 1536, 6144, 2),
        conv_case(1, 20, 1024, 4096, 1, mode="gelu"),
        conv_case(2, 6400, 192, 288, 2),
    ]
    for rows in (1, 3):
        for channels, frames in ((768, 80 * 4), (384, 1600), (192, 6400), (96, 19200)):
            for dilation in (1, 9):
                cases.append(residual_unit_case(rows, frames, channels, dilation))
            cases.append(conv_case(rows, frames, channels, channels, 7, 3))
            cases.append(residual_unit_case(rows, frames // 10, channels, 3))
    return cases + codec_cases(5, 10, 1024, 16, 64)
