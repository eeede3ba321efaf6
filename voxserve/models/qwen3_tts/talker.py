"""The backbone with its tables, the depth transformer, and the making of one frame per row.

All of it runs on tensors of fixed shapes without waiting for the device: a row that has ended, or
pads the batch, works on the scratch slot instead of its own.
"""

from __future__ import annotations

from functools import partial

import torch

from voxserve.kernels.embedding_sum import embedding_sum
from voxserve.kernels.frame_step import StepText, commit_frame, step_input
from voxserve.kernels.fused_linear import fold_norm, logits_linear
from voxserve.models.base import PrefillInputs
from voxserve.models.blocks.depth import DepthTransformer
from voxserve.models.blocks.transformer import (
    LayerWeights,
    Transformer,
    TransformerShape,
    fold_projection,
    layer_weights,
    with_folded_norms,
)
from voxserve.models.blocks.weights import WeightSource
from voxserve.models.qwen3_tts.config import TalkerConfig
from voxserve.models.qwen3_tts.state import QwenState

MIN_PIECE_FRAMES = 2
# A first code that comes 64 times in a row (5 s) is a runaway: held tones and pauses are shorter.
MAX_REPEATS = 64


class Talker:
    """Weights and the LM stages.

    Args:
        config: Sizes and ids.
        get: Source of tensors.
        max_context_tokens: Rows of the rotary table.
    """

    def __init__(self, config: TalkerConfig, get: WeightSource, max_context_tokens: int) -> None:
        self.config = config
        self.max_context_tokens = max_context_tokens
        prefix = "talker.model."
        layers = _layers(get, prefix, config.backbone)
        norm = get(f"{prefix}norm.weight")
        self.backbone = Transformer(config.backbone, layers, norm, max_context_tokens)
        self.head = get("talker.codec_head.weight")
        self.text_table = _projected_text(get)
        self.codec_table = get(f"{prefix}codec_embedding.weight")
        rest = [_depth_table(get, index) for index in range(config.num_codebooks - 1)]
        # Codes of all codebooks as one tensor; rows behind the codes of the first are control ids.
        first = self.codec_table[: config.depth_vocab]
        self.frame_tables = torch.stack((first, *rest))
        self.depth = _depth_transformer(config, get, (self.codec_table, *rest))

    def prefill(self, state: QwenState, inputs: PrefillInputs) -> None:
        """Runs prompts and makes each piece's first frame."""
        slots = inputs.slots.long()
        tokens, positions, last = _unpack(inputs, state.scratch)
        self._begin_pieces(state, slots, inputs.row_starts)
        x = self.embed_prompt(inputs)
        x = self.backbone.prefill(x, state.cache, tokens, positions)
        self._make_frame(state, inputs.slots, self.backbone.normalise(x[last]), added=0)

    def decode(self, state: QwenState, slots: torch.Tensor) -> None:
        """One step: one more token of context and one frame for each row."""
        slots, x = self.step_input(state, slots)
        hidden = self.backbone.decode(x, state.cache, slots)
        self._make_frame(state, slots, hidden, added=1)

    def embed_prompt(self, inputs: PrefillInputs) -> torch.Tensor:
        """Sums the sources each prompt row asks for; [tokens, hidden]."""
        ids, mask = inputs.ids.long(), inputs.mask[..., None]
        x = self.text_table[ids[:, 0]] * mask[:, 0]
        x += self.codec_table[ids[:, 1]] * mask[:, 1]
        # Frames of reference speech: all codebooks of a row, or the first column alone.
        x += embedding_sum(inputs.ids[:, 2:], self.frame_tables[1:]) * mask[:, 2]
        return x if inputs.features is None else x + inputs.features.to(x.dtype)

    def step_input(
        self, state: QwenState, slots: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows that go on, and each row's last frame plus its next streamed text token or padding.

        Returns:
            [rows] int32, slots (the scratch slot for ended rows), and [rows, hidden].
        """
        pad = self.config.text_ids.pad
        text = StepText(state.text_ids, state.num_text, self.text_table, pad)
        return step_input(slots, state.sequences, self.frame_tables, text)

    def first_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits of the first codebook, [rows, vocab] float32, from [rows, hidden]."""
        return logits_linear(hidden, self.head)

    def _begin_pieces(
        self, state: QwenState, slots: torch.Tensor, row_starts: torch.Tensor
    ) -> None:
        frames = state.num_frames[slots]
        state.cache.lengths[slots] = row_starts[1:] - row_starts[:-1]
        state.sequences.piece_start[slots] = frames
        state.sequences.repeats[slots] = torch.zeros_like(frames)
        wanted = state.wanted_min_frames[slots]
        state.sampling.rules.min_frames[slots] = torch.maximum(wanted, frames + MIN_PIECE_FRAMES)
        state.sampling.forget_end(slots)

    def _make_frame(
        self, state: QwenState, slots: torch.Tensor, hidden: torch.Tensor, added: int
    ) -> None:
        """Draws a frame per row from [rows, hidden], then commits the rows that go on.

        `added` tokens of context are not in the slots' lengths yet.
        """
        rows = slots.shape[0]
        frame = torch.empty(
            (rows, self.config.num_codebooks), dtype=torch.int32, device=slots.device
        )
        logits = self.first_logits(hidden)
        # An ended row's end id also has a row in the first table: nothing is out of bounds.
        table = self.depth.tables[0]
        first = torch.empty((rows, table.shape[1]), dtype=table.dtype, device=table.device)
        state.sampling.draw_first(
            *(logits, slots, state.num_frames, frame[:, 0]), next_table=table, next_rows=first
        )
        draw = partial(_draw, state, slots, frame)
        self.depth.frame(hidden, first, draw)
        commit_frame(
            *(frame, slots, state.sequences),
            added=added,
            end_id=self.config.codec_ids.eos,
            max_repeats=MAX_REPEATS,
            max_tokens=self.max_context_tokens,
        )


def _draw(
    state: QwenState,
    slots: torch.Tensor,
    frame: torch.Tensor,
    logits: torch.Tensor,
    codebook: int,
    next_table: torch.Tensor | None,
    next_rows: torch.Tensor | None,
    unscaled: torch.Tensor | None,
) -> None:
    state.sampling.draw_depth(
        *(logits, slots, state.num_frames, codebook),
        *(frame[:, codebook], next_table, next_rows, unscaled),
    )


def _unpack(inputs: PrefillInputs, scratch: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Slot and position of each packed token, and each row's last token.

    Tokens behind the last prompt pad the bucket: position 0 of the scratch slot.
    """
    starts = inputs.row_starts
    token = torch.arange(inputs.ids.shape[0], dtype=torch.int32, device=starts.device)
    row = torch.searchsorted(starts[1:], token, right=True)
    is_padding = row == inputs.slots.shape[0]
    row = row.clamp(max=inputs.slots.shape[0] - 1)
    slots = inputs.slots[row].masked_fill(is_padding, scratch)
    positions = (token - starts[row]).masked_fill(is_padding, 0)
    return slots, positions, (starts[1:].long() - 1).clamp(min=0)


def _projected_text(get: WeightSource) -> torch.Tensor:
    """The text table behind its two-layer projection, [text ids, hidden]."""
    prefix = "talker.text_projection.linear_fc"
    table = get("talker.model.text_embedding.weight")
    first, second = (
        (get(f"{prefix}{index}.weight"), get(f"{prefix}{index}.bias")) for index in (1, 2)
    )
    return fold_projection(table, (first, second))


def _depth_table(get: WeightSource, index: int) -> torch.Tensor:
    return get(f"talker.code_predictor.model.codec_embedding.{index}.weight")


def _depth_transformer(
    config: TalkerConfig, get: WeightSource, tables: tuple[torch.Tensor, ...]
) -> DepthTransformer:
    prefix = "talker.code_predictor."
    projection = None
    tables = tables[:-1]  # the last codebook's codes are not fed back
    if config.is_projected:
        name = f"{prefix}small_to_mtp_projection."
        projection = get(f"{name}weight"), get(f"{name}bias")
        tables = tuple(fold_projection(table, (projection,)) for table in tables)
    norm: torch.Tensor | None = get(f"{prefix}model.norm.weight")
    heads = tuple(get(f"{prefix}lm_head.{i}.weight") for i in range(config.num_codebooks - 1))
    if norm is not None and norm.is_cuda:
        heads, norm = tuple(fold_norm(head, norm) for head in heads), None
    layers = _layers(get, f"{prefix}model.", config.depth)
    return DepthTransformer(config.depth, layers, norm, heads, tables, projection)


def _layers(get: WeightSource, prefix: str, shape: TransformerShape) -> tuple[LayerWeights, ...]:
    layers = layer_weights(get, prefix, shape)
    return with_folded_norms(layers) if layers[0].qkv.is_cuda else layers
