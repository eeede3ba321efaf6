"""vox-tiny behind the model interface: prefill, decode steps and codec chunks over slots."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import torch

from voxserve.core.errors import InvalidInput
from voxserve.core.jobs import RowStatus
from voxserve.models.base import (
    ModelInfo,
    PrefillInputs,
    PreparedRequest,
    SpeechModel,
    SpeechOptions,
    StateSize,
)
from voxserve.models.vox_tiny import keyed
from voxserve.models.vox_tiny.backbone import DepthTransformer, Talker
from voxserve.models.vox_tiny.checkpoint import Tensors
from voxserve.models.vox_tiny.config import VoxTinyConfig
from voxserve.models.vox_tiny.decoder import Decoder
from voxserve.models.vox_tiny.prompt import PromptWriter, piece_budget
from voxserve.models.vox_tiny.rows import StableRows, groups
from voxserve.models.vox_tiny.sampling import DrawRule, draw, penalise
from voxserve.models.vox_tiny.state import SlotRules, VoxTinyState

_CONTEXT_TOKENS = 512
_T = TypeVar("_T", int, float)
_NOISE_ROWS = 2048
# A second of one code is silence that does not end, or a note that got stuck.
_MAX_REPEATS = 12
VOICES = ("heart",)


class VoxTiny(SpeechModel):
    """The bundled model on a CPU."""

    def __init__(self, config: VoxTinyConfig, tensors: Tensors) -> None:
        self.config = config
        self.device = torch.device("cpu")
        self.talker = Talker(config, tensors, _CONTEXT_TOKENS)
        self.depth = DepthTransformer(config, tensors)
        noise = torch.randn(
            _NOISE_ROWS, 2, config.codec.bins, generator=torch.Generator().manual_seed(0)
        )
        self.decoder = Decoder(config, tensors, noise)
        self.row_sizes = StableRows([*self.talker.matrices(), *self.depth.matrices()]).doubled()
        self.writer = PromptWriter(config)
        self.info = ModelInfo(
            name="vox-tiny",
            sample_rate_hz=config.sample_rate_hz,
            frame_samples=config.frame_samples,
            num_codebooks=config.num_codebooks,
            codec_delay_samples=config.codec.delay_blocks * config.codec.hop_samples,
            lookahead_frames=0,
            max_prompt_tokens=self.writer.max_prompt_tokens,
            max_context_tokens=_CONTEXT_TOKENS,
            voices=VOICES,
            languages=("en",),
        )

    def preprocess(self, text: str, options: SpeechOptions) -> PreparedRequest:
        """See SpeechModel; a thread-safe pure function of text and options."""
        if options.voice not in (None, *self.info.voices):
            raise InvalidInput(f"no voice {options.voice!r}; vox-tiny has {self.info.voices[0]!r}")
        if options.language not in (None, *self.info.languages):
            raise InvalidInput(f"no language {options.language!r}; vox-tiny speaks 'en' only")
        request = self.writer.write(text, options)
        if not options.instruct:
            return request
        note = "vox-tiny takes no instructions; yours was left out"
        return replace(request, notes=(*request.notes, note))

    def allocate(self, size: StateSize) -> VoxTinyState:
        """See SpeechModel; each slot carries its own full context."""
        return VoxTinyState(
            self.config, size, _CONTEXT_TOKENS, self.decoder.conv_shapes, self.decoder.trunk_width
        )

    def open_slot(self, state: VoxTinyState, slot: int, request: PreparedRequest) -> None:
        """See SpeechModel."""
        options = request.options
        frames = min(request.max_frames, state.codes.shape[1])
        state.reset(
            slot,
            self._rules(options),
            keyed.uniforms(options.seed, frames, self.config.num_codebooks),
            keyed.noise_key(options.seed),
        )

    def _rules(self, options: SpeechOptions) -> SlotRules:
        asked, config = options.sampling, self.config
        return SlotRules(
            first=DrawRule(
                _default(asked.temperature, config.temperature),
                _default(asked.top_k, config.top_k),
                _default(asked.top_p, 1.0),
            ),
            depth=DrawRule(
                _default(asked.depth_temperature, config.depth_temperature),
                _default(asked.depth_top_k, config.top_k),
                _default(asked.depth_top_p, 1.0),
            ),
            repetition_penalty=_default(asked.repetition_penalty, 1.0),
            min_frames=_default(options.min_frames, 0),
        )

    @torch.inference_mode()
    def prefill(self, state: VoxTinyState, inputs: PrefillInputs) -> None:
        """See SpeechModel."""
        starts, slots = inputs.row_starts.tolist(), inputs.slots.tolist()
        last = []
        for start, end, slot in zip(starts, starts[1:], slots, strict=False):
            mask = inputs.mask[start:end]
            x = self.talker.embed(inputs.ids[start:end], mask)
            last.append(self.talker.prompt(x, [cache[slot] for cache in state.kv]))
            characters = int(mask[:, 0].sum()) - self.writer.extra_text_rows
            state.context[slot] = end - start
            state.budget[slot] = state.num_frames[slot] + piece_budget(characters)
            state.repeats[slot] = 0
        hidden = torch.cat(last)
        order = {slot: row for row, slot in enumerate(slots)}
        for group in groups(slots, self.row_sizes):
            rows = torch.tensor([order[slot] for slot in group])
            self._make_frame(state, group, hidden[rows])

    @torch.inference_mode()
    def decode(self, state: VoxTinyState, slots: torch.Tensor, max_tokens: int) -> None:
        """See SpeechModel; rows that ended before and padding rows are left out."""
        status = state.status.numpy()
        live = [
            slot
            for slot in slots.tolist()
            if slot != state.scratch and status[slot] == RowStatus.CONTINUE
        ]
        for group in groups(live, self.row_sizes):
            positions = state.context[torch.tensor(group)].tolist()
            x = self.talker.step(state.step_input[torch.tensor(group)], state.kv, group, positions)
            state.context[torch.tensor(group)] += 1
            self._make_frame(state, group, x)

    def _make_frame(self, state: VoxTinyState, slots: list[int], hidden: torch.Tensor) -> None:
        """Samples one frame per row and prepares the next step's input.

        Args:
            state: Slots.
            slots: Of each row; repeats at the end only fill the batch.
            hidden: [rows, hidden] of the talker.
        """
        index = torch.tensor(slots)
        frames = state.num_frames[index].long()
        rules = [state.rules[slot] for slot in slots]
        uniforms = state.uniforms[index, frames.clamp(max=state.uniforms.shape[1] - 1)]
        normed = self.talker.normed(hidden)
        logits = torch.mm(normed, self.talker.head)
        self._shape_logits(state, slots, rules, logits)
        code = draw(logits, uniforms[:, 0], [rule.first for rule in rules])
        status = self._judge(state, index, frames, code)
        codes = [code.clamp(max=self.config.codebook_size - 1)]
        depth_rules = [rule.depth for rule in rules]
        logits, caches = self.depth.begin(normed, codes[0])
        for codebook in range(1, self.config.num_codebooks):
            if codebook > 1:
                logits = self.depth.step(codes[-1], codebook, caches)
            codes.append(draw(logits, uniforms[:, codebook], depth_rules))
        self._store(state, index, frames, torch.stack(codes, 1), status)

    def _shape_logits(
        self,
        state: VoxTinyState,
        slots: list[int],
        rules: list[SlotRules],
        logits: torch.Tensor,
    ) -> None:
        """Applies what only some requests ask for: minimum length and repetition penalty."""
        for row, (slot, rule) in enumerate(zip(slots, rules, strict=True)):
            made = int(state.num_frames[slot])
            if made < rule.min_frames:
                logits[row, self.config.end_code] = -torch.inf
            if rule.repetition_penalty != 1.0:
                earlier = state.codes[slot, :made, 0]
                logits[row] = penalise(logits[row], earlier, rule.repetition_penalty)

    def _judge(
        self, state: VoxTinyState, index: torch.Tensor, frames: torch.Tensor, code: torch.Tensor
    ) -> torch.Tensor:
        """[rows] RowStatus: end token, runaway (frame budget, one code repeated), or go on."""
        last = state.codes[index, (frames - 1).clamp(min=0), 0]
        same = (code == last) & (frames > 0)
        repeats = torch.where(same, state.repeats[index] + 1, 0).int()
        state.repeats[index] = repeats
        runaway = (frames >= state.budget[index]) | (repeats >= _MAX_REPEATS)
        runaway &= frames >= state.min_frames[index]
        full = (state.context[index] >= _CONTEXT_TOKENS) | (frames >= state.codes.shape[1])
        status = torch.where(runaway | full, RowStatus.WATCHDOG, RowStatus.CONTINUE)
        return torch.where(code == self.config.end_code, RowStatus.END, status)

    def _store(
        self,
        state: VoxTinyState,
        index: torch.Tensor,
        frames: torch.Tensor,
        codes: torch.Tensor,
        status: torch.Tensor,
    ) -> None:
        state.status[index] = status.to(torch.int8)
        going = status == RowStatus.CONTINUE
        index, frames, codes = index[going], frames[going], codes[going]
        if len(index):
            state.codes[index, frames] = codes.int()
            state.num_frames[index] = (frames + 1).int()
            state.step_input[index] = self.talker.frame_input(codes)

    @torch.inference_mode()
    def codec(
        self,
        state: VoxTinyState,
        slots: torch.Tensor,
        first_frame: torch.Tensor,
        num_valid: torch.Tensor,
        is_last: torch.Tensor,
        frames: int,
    ) -> torch.Tensor:
        """See SpeechModel."""
        slots, first_frame = slots.long(), first_frame.long()
        places = first_frame[:, None] + torch.arange(frames)
        places.clamp_(max=state.codes.shape[1] - 1)
        codes = state.codes[slots[:, None], places].long()
        upsample = self.config.codec.upsample
        blocks = first_frame[:, None] * upsample + torch.arange(-1, frames * upsample)
        noise_rows = keyed.noise_rows(
            state.noise_key[slots][:, None].numpy(), blocks.numpy(), _NOISE_ROWS
        )
        return self.decoder.chunk(
            state,
            slots,
            codes,
            num_valid.long(),
            first_frame == 0,
            is_last,
            torch.from_numpy(noise_rows),
        )


def _default(value: _T | None, otherwise: _T) -> _T:
    return otherwise if value is None else value
