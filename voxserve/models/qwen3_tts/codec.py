"""The 12.5 Hz codec's decoder: codes to samples, chunk by chunk, with state in slots.

A chunk's first convolution history and attention ring come from the slot of its row; a row whose
first frame is 0 sees none of the slot's past. Rows beyond a row's valid length leave no trace.
"""

from __future__ import annotations

import torch

from voxserve.kernels.causal_conv import causal_conv, conv_weight
from voxserve.kernels.conv_state import ConvInput, ConvStateLayout, PaddedBuffers
from voxserve.kernels.embedding_sum import embedding_sum
from voxserve.kernels.final_conv import final_conv
from voxserve.kernels.snake import snake_params
from voxserve.models.blocks.rvq import projected_codebook
from voxserve.models.blocks.transformer import layer_weights, with_folded_norms
from voxserve.models.blocks.vocoder import Buffer, SnakeBlock, UpsampleConvNeXt
from voxserve.models.blocks.weights import WeightSource
from voxserve.models.blocks.window_transformer import WindowTransformer
from voxserve.models.qwen3_tts.config import DILATIONS, CodecConfig

MAX_CHUNK_FRAMES = 25


class CodecState:
    """Codec state of all slots.

    Attributes:
        conv: [slots, layout.width], convolution histories.
        rings: [layers, slots, 2, heads, ring, head_dim], keys and values.
        positions: [slots] int32, first frame of the chunk in work.
    """

    def __init__(self, codec: Codec, num_slots: int) -> None:
        device, dtype = codec.device, codec.dtype
        self.conv = codec.layout.new_state(num_slots, dtype, device)
        self.rings = codec.transformer.new_rings(num_slots, MAX_CHUNK_FRAMES)
        self.positions = torch.zeros(num_slots, dtype=torch.int32, device=device)


class Codec:
    """Weights and the decode.

    Args:
        config: Sizes.
        get: Source of tensors.
    """

    def __init__(self, config: CodecConfig, get: WeightSource) -> None:
        self.config = config
        self.tables = _code_tables(config, get)
        self.dtype, self.device = self.tables.dtype, self.tables.device
        self.pre_conv = _conv(get, "decoder.pre_conv")
        self.transformer = _transformer(config, get)
        rate = 1
        self.upsamples: list[UpsampleConvNeXt] = []
        for index, ratio in enumerate(config.upsampling_ratios):
            rate *= ratio
            prefix = f"decoder.upsample.{index}."
            self.upsamples.append(UpsampleConvNeXt(get, prefix, ratio, rate))
        self.first_conv = _conv(get, "decoder.decoder.0")
        first_rate = rate
        self.blocks: list[SnakeBlock] = []
        for index, stride in enumerate(config.upsample_rates, 1):
            prefix = f"decoder.decoder.{index}.block."
            self.blocks.append(SnakeBlock(get, prefix, stride, DILATIONS, rate))
            rate *= stride
        last = len(self.blocks) + 1
        self.last_snake = snake_params(
            get(f"decoder.decoder.{last}.alpha"), get(f"decoder.decoder.{last}.beta")
        )
        self.last_taps = get(f"decoder.decoder.{last + 1}.conv.weight")[0].T.contiguous()
        self.last_bias = get(f"decoder.decoder.{last + 1}.conv.bias")
        self.layout = ConvStateLayout(
            (
                _history(self.pre_conv, 1),
                *(need for stage in self.upsamples for need in stage.needs),
                _history(self.first_conv, first_rate),
                *(need for stage in self.blocks for need in stage.needs),
                ConvInput(self.last_taps.shape[0] - 1, self.last_taps.shape[1], rate),
            )
        )

    def decode(
        self,
        codes: torch.Tensor,
        state: CodecState,
        slots: torch.Tensor,
        first_frame: torch.Tensor,
        num_valid: torch.Tensor,
    ) -> torch.Tensor:
        """Decodes one chunk per row.

        Args:
            codes: [rows, frames, codebooks] int32; anything beyond a row's valid frames.
            state: Read and advanced at `slots`.
            slots: [rows] int32.
            first_frame: [rows] int32.
            num_valid: [rows] int32.

        Returns:
            [rows, frames * frame_samples] float32.
        """
        rows, frames, _ = codes.shape
        assert frames <= MAX_CHUNK_FRAMES, f"a chunk has at most {MAX_CHUNK_FRAMES} frames"
        state.positions.index_put_((slots.long(),), first_frame)
        buffers = PaddedBuffers(self.layout, rows, frames, self.dtype, self.device)
        buffers.gather(state.conv, slots, state.positions)
        inputs = [Buffer(*pair) for pair in zip(buffers.views, buffers.bodies, strict=True)]
        embedding_sum(codes, self.tables, out=inputs[0].body)
        latent, _ = causal_conv(inputs[0].view, *self.pre_conv)
        assert latent is not None, "without a snake there is a plain output"
        x = self.transformer.run(latent, state.rings, slots, state.positions)
        self._vocode(x, inputs[1:])
        wave = final_conv(inputs[-1].view, self.last_taps, self.last_bias)
        buffers.scatter(state.conv, slots, num_valid)
        return wave

    def _vocode(self, x: torch.Tensor, inputs: list[Buffer]) -> None:
        """From the transformer's output to the last buffer, the final convolution's input."""
        rest = iter(inputs)
        first = inputs[len(self.upsamples)]
        for index, stage in enumerate(self.upsamples):
            is_last = index == len(self.upsamples) - 1
            x = stage.run(x, next(rest), out=first.body if is_last else None)
        source = next(rest)
        groups = [tuple(next(rest) for _ in block.needs) for block in self.blocks]
        snake = self.blocks[0].first_snake
        causal_conv(source.view, *self.first_conv, snake=snake, snake_out=groups[0][0].body)
        targets = [*(group[0] for group in groups[1:]), next(rest)]
        snakes = [*(block.first_snake for block in self.blocks[1:]), self.last_snake]
        for block, group, target, snake in zip(self.blocks, groups, targets, snakes, strict=True):
            block.run(group, snake, target.body)


def _conv(get: WeightSource, prefix: str) -> tuple[torch.Tensor, torch.Tensor]:
    return conv_weight(get(f"{prefix}.conv.weight")), get(f"{prefix}.conv.bias")


def _history(conv: tuple[torch.Tensor, torch.Tensor], rate: int) -> ConvInput:
    taps, channels = conv[0].shape[:2]
    return ConvInput(history=taps - 1, channels=channels, rate=rate)


def _code_tables(config: CodecConfig, get: WeightSource) -> torch.Tensor:
    """[codebooks, codes, code_dim]: each codebook's entries, projected out of the quantiser."""
    tables = []
    for part, count in (("rvq_first", 1), ("rvq_rest", config.num_codebooks - 1)):
        prefix = f"decoder.quantizer.{part}."
        projection = get(f"{prefix}output_proj.weight")
        for index in range(count):
            book = f"{prefix}vq.layers.{index}._codebook."
            sums, usage = get(f"{book}embedding_sum"), get(f"{book}cluster_usage")
            tables.append(projected_codebook(sums, usage, projection))
    return torch.stack(tables)


def _transformer(config: CodecConfig, get: WeightSource) -> WindowTransformer:
    prefix = "decoder.pre_transformer."

    def scaled(part: str, weight: torch.Tensor) -> torch.Tensor:
        return weight * get(f"{part}_layer_scale.scale")[:, None]

    layers = layer_weights(get, prefix, config.transformer, scaled)
    return WindowTransformer(
        config.transformer,
        with_folded_norms(layers) if layers[0].qkv.is_cuda else layers,
        get(f"{prefix}norm.weight"),
        (get(f"{prefix}input_proj.weight"), get(f"{prefix}input_proj.bias")),
        (get(f"{prefix}output_proj.weight"), get(f"{prefix}output_proj.bias")),
        config.window,
        config.max_frames + MAX_CHUNK_FRAMES,
    )
