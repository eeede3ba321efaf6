"""Per-request device state of vox-tiny: everything that outlives a call, one row per slot."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from voxserve.models.base import ModelState, StateSize
from voxserve.models.vox_tiny.config import VoxTinyConfig
from voxserve.models.vox_tiny.sampling import DrawRule
from voxserve.models.vox_tiny.streams import SlotText


@dataclass(frozen=True, slots=True)
class SlotRules:
    """Host-side rules of the request in a slot.

    Attributes:
        first, depth: How the first and the other codebooks are drawn.
        repetition_penalty: Of the first codebook.
        min_frames: The end token is not taken before.
    """

    first: DrawRule
    depth: DrawRule
    repetition_penalty: float
    min_frames: int


_NO_REQUEST = SlotRules(DrawRule(0.0, 1, 1.0), DrawRule(0.0, 1, 1.0), 1.0, 0)


class VoxTinyState(ModelState):
    """Tensors of all slots; the last row is scratch.

    The LM stages use the first group, the codec stage the second; they share `codes` only.

    Attributes:
        kv: [layers, slots + 1, context, 2, kv_heads, head_dim] keys, then values.
        context: [slots + 1] int32, rows of `kv` in use.
        budget: [slots + 1] int32, `num_frames` at which the current piece counts as a runaway.
        repeats: [slots + 1] int32, frames in a row with the first code of the last frame.
        step_input: [slots + 1, hidden], input of the next decode step.
        text_history: [slots + 1, blocks, reach, hidden], what the text encoder remembers.
        is_open: [slots + 1] bool, words of the piece are still to come: no end of speech.
        texts: Host-side, by slot, the texts that arrive while they are spoken.
        uniforms: [slots + 1, max_frames, codebooks], the request's draws.
        rules: Host-side rules per slot.
        min_frames: [slots + 1] int32, of the rules.
        conv: Per causal convolution [slots + 1, kernel - 1, channels].
        pending: [slots + 1, channels], the block that waits for its look-ahead.
        source: [slots + 1, fft - hop] excitation not yet used up.
        overlap: [slots + 1, 3, hop] samples that later blocks add to.
        phase: [slots + 1] float64, cycles of the pulse train, in [0, 1).
        last_f0: [slots + 1] float64, Hz; negative before the first block.
        noise_key: [slots + 1] int64.
    """

    def __init__(
        self,
        config: VoxTinyConfig,
        size: StateSize,
        context_tokens: int,
        conv_shapes: list[tuple[int, int]],
        trunk_width: int,
    ) -> None:
        rows = size.num_slots + 1
        talker, codec = config.talker, config.codec
        self.scratch = size.num_slots
        self.codes = torch.zeros(rows, size.max_frames, config.num_codebooks, dtype=torch.int32)
        self.num_frames = torch.zeros(rows, dtype=torch.int32)
        self.status = torch.zeros(rows, dtype=torch.int8)

        self.kv = torch.zeros(
            talker.layers, rows, context_tokens, 2, talker.kv_heads, talker.head_dim
        )
        self.context = torch.zeros(rows, dtype=torch.int32)
        self.budget = torch.zeros(rows, dtype=torch.int32)
        self.repeats = torch.zeros(rows, dtype=torch.int32)
        self.step_input = torch.ones(rows, talker.hidden)
        self.text_history = torch.zeros(
            rows, config.text_blocks, config.text_kernel // 2, talker.hidden
        )
        self.is_open = torch.zeros(rows, dtype=torch.bool)
        self.texts: dict[int, SlotText] = {}
        self.uniforms = torch.zeros(rows, size.max_frames, config.num_codebooks)
        self.rules = [_NO_REQUEST] * rows
        self.min_frames = torch.zeros(rows, dtype=torch.int32)

        self.conv = [torch.zeros(rows, taps, channels) for taps, channels in conv_shapes]
        self.pending = torch.zeros(rows, trunk_width)
        self.source = torch.zeros(rows, codec.fft_samples - codec.hop_samples)
        self.overlap = torch.zeros(rows, 3, codec.hop_samples)
        self.phase = torch.zeros(rows, dtype=torch.float64)
        self.last_f0 = torch.full((rows,), -1.0, dtype=torch.float64)
        self.noise_key = torch.zeros(rows, dtype=torch.int64)

    def begin_piece(self, slot: int, budget: int, is_open: bool) -> None:
        """Empties a slot's context for a piece of so many frames at most."""
        self.context[slot] = self.repeats[slot] = 0
        self.budget[slot] = self.num_frames[slot] + budget
        self.is_open[slot] = is_open

    def reset(
        self,
        slot: int,
        rules: SlotRules,
        uniforms: np.ndarray,
        noise_key: int,
        text: SlotText | None,
    ) -> None:
        """Gives a slot to a new request; `text` is there if it is streamed."""
        self.texts.pop(slot, None)
        if text is not None:
            self.texts[slot] = text
        self.rules[slot] = rules
        self.min_frames[slot] = rules.min_frames
        self.uniforms[slot, : len(uniforms)] = torch.from_numpy(uniforms)
        self.noise_key[slot] = noise_key
        for counter in (self.num_frames, self.status, self.context, self.repeats, self.phase):
            counter[slot] = 0
        self.is_open[slot] = False
        for buffer in (*self.conv, self.pending, self.source, self.overlap):
            buffer[slot].zero_()
        self.last_f0[slot] = -1.0
