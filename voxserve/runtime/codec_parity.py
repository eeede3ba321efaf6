"""Comparisons of the ops of a streaming codec."""

from __future__ import annotations

import torch

from voxserve.kernels.causal_conv import causal_conv
from voxserve.kernels.conv_state import ConvInput, ConvStateLayout, PaddedBuffers
from voxserve.kernels.depthwise_norm import depthwise_norm
from voxserve.kernels.embedding_sum import embedding_sum
from voxserve.kernels.final_conv import final_conv
from voxserve.kernels.residual_unit import ResidualUnitWeights, residual_unit
from voxserve.kernels.rope import rope_table
from voxserve.kernels.snake import snake, snake_params
from voxserve.kernels.window_attention import window_attention
from voxserve.runtime.parity_case import ParityCase, Tensors, around_one, normal, poison


def embedding_case(rows: int, frames: int, codebooks: int, vocab: int, width: int) -> ParityCase:
    """Summed code embeddings, written behind a history."""

    def build(gen: torch.Generator) -> Tensors:
        return {
            "ids": torch.randint(vocab, (rows, frames, codebooks), generator=gen).int(),
            "tables": normal(gen, codebooks, vocab, width),
            "extra": normal(gen, rows, frames, width),
        }

    def call(t: Tensors) -> list[torch.Tensor]:
        padded = poison(rows, 2 + frames, width, like=t["tables"])
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
            "x": normal(gen, rows, history + frames, channels_in),
            "weight": normal(
                gen, taps, channels_in, channels_out, scale=(taps * channels_in) ** -0.5
            ),
            "bias": normal(gen, channels_out),
            "residual": normal(gen, rows, frames, channels_out),
            "snake": snake_params(
                normal(gen, channels_out, scale=0.3), normal(gen, channels_out, scale=0.3)
            ),
        }

    def call(t: Tensors) -> list[torch.Tensor]:
        out = poison(rows, 3 + frames, channels_out, like=t["x"])[:, 3:]
        if mode == "snake":
            snake_out = poison(rows, 6 + frames, channels_out, like=t["x"])[:, 6:]
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
            return normal(gen, *shape, scale=0.3)

        return {
            "x": normal(gen, rows, frames, channels),
            "activated": normal(gen, rows, 6 * dilation + frames, channels),
            "conv1": normal(gen, 7, channels, channels, scale=(7 * channels) ** -0.5),
            "bias1": small(channels),
            "snake2": snake_params(small(channels), small(channels)),
            "conv2": normal(gen, 1, channels, channels, scale=channels**-0.5),
            "bias2": small(channels),
            "next_snake": snake_params(small(channels), small(channels)),
        }

    def call(t: Tensors) -> list[torch.Tensor]:
        weights = ResidualUnitWeights(
            t["conv1"], t["bias1"], dilation, t["snake2"], t["conv2"], t["bias2"]
        )
        snake_out = poison(rows, 18 + frames, channels, like=t["x"])[:, 18:]
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
            "x": normal(gen, rows, 6 + frames, width),
            "weight": normal(gen, 7, width, scale=0.4),
            "bias": normal(gen, width, scale=0.1),
            "norm_weight": around_one(gen, width),
            "norm_bias": normal(gen, width, scale=0.1),
        }

    def attention(gen: torch.Generator) -> Tensors:
        slots = rows + 2
        positions = torch.randint(200, (slots,), generator=gen).int()
        positions[:2] = torch.tensor([0, 3])
        return {
            "qkv": normal(gen, rows, frames, 3 * heads * head_dim),
            "x": normal(gen, rows, frames, 80, scale=1.7),
            "table": rope_table(256, head_dim, 1e4),
            "cache": normal(gen, slots, 2, heads, 96, head_dim),
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
            "state": normal(gen, slots, layout.width),
            "slots": torch.randperm(slots, generator=gen)[:rows].int(),
            "positions": torch.randint(2, (slots,), generator=gen).int(),
            "valid": torch.randint(frames + 1, (rows,), generator=gen).int(),
        } | {f"x{j}": normal(gen, rows, size) for j, size in enumerate(sizes)}

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
            "x": normal(gen, rows, 6 + 48 * frames, 96),
            "weight": normal(gen, 7, 96, scale=0.02),
            "bias": normal(gen, 1, scale=0.1),
        }

    def activation(gen: torch.Generator) -> Tensors:
        return {
            "x": normal(gen, rows, 5 * frames, 96),
            "snake": snake_params(normal(gen, 96, scale=0.3), normal(gen, 96, scale=0.3)),
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
