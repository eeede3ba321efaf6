"""vox-tiny behind the model interface: prefill, decode steps and codec chunks over slots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from voxserve.core.errors import InvalidInput
from voxserve.core.jobs import RowStatus
from voxserve.models.base import ModelInfo, PrefillInputs, SpeechModel, StateSize
from voxserve.models.request import PreparedRequest, SpeechOptions, TextFeed
from voxserve.models.vox_tiny import keyed
from voxserve.models.vox_tiny.backbone import DepthTransformer, Talker
from voxserve.models.vox_tiny.checkpoint import Tensors
from voxserve.models.vox_tiny.config import VoxTinyConfig
from voxserve.models.vox_tiny.decoder import Decoder
from voxserve.models.vox_tiny.feed import WordFeed
from voxserve.models.vox_tiny.frames import FrameMaker
from voxserve.models.vox_tiny.prompt import (
    MAX_PIECE_CHARACTERS,
    NUM_TEXT_MARKS,
    PromptWriter,
    piece_budget,
)
from voxserve.models.vox_tiny.rows import StableRows, groups
from voxserve.models.vox_tiny.sampling import DrawRule
from voxserve.models.vox_tiny.state import SlotRules, VoxTinyState
from voxserve.models.vox_tiny.streams import SlotText

# Of one piece. A streamed text goes on in new contexts, to its frame budget.
_CONTEXT_TOKENS = 1024
_STREAM_TOKENS = 1 << 20
_T = TypeVar("_T", int, float)
_NOISE_ROWS = 2048
VOICES = ("heart",)


class VoxTiny(SpeechModel):
    """The bundled model on a CPU."""

    def __init__(self, config: VoxTinyConfig, tensors: Tensors) -> None:
        self.config = config
        self.device = torch.device("cpu")
        self.talker = Talker(config, tensors, _CONTEXT_TOKENS)
        self.depth = DepthTransformer(config, tensors)
        self._frames = FrameMaker(config, self.talker, self.depth, _CONTEXT_TOKENS)
        noise = torch.randn(
            _NOISE_ROWS, 2, config.codec.bins, generator=torch.Generator().manual_seed(0)
        )
        self.decoder = Decoder(config, tensors, noise)
        self.row_sizes = StableRows([*self.talker.matrices(), *self.depth.matrices()]).sizes
        self.writer = PromptWriter(config)
        self.info = ModelInfo(
            name="vox-tiny",
            sample_rate_hz=config.sample_rate_hz,
            frame_samples=config.frame_samples,
            num_codebooks=config.num_codebooks,
            codec_delay_samples=config.codec.delay_blocks * config.codec.hop_samples,
            lookahead_frames=0,
            max_prompt_tokens=MAX_PIECE_CHARACTERS + NUM_TEXT_MARKS + 1,
            max_context_tokens=_STREAM_TOKENS,
            voices=VOICES,
            languages=("en",),
            accepts_streamed_text=True,
        )

    def preprocess(self, text: str, options: SpeechOptions) -> PreparedRequest:
        """See SpeechModel; a thread-safe pure function of text and options."""
        notes = self._check(options)
        request = self.writer.write(text, options)
        return replace(request, notes=(*request.notes, *notes))

    def open_text(self) -> TextFeed:
        """See SpeechModel."""
        return WordFeed(self.config, self.writer)

    def preprocess_streamed(
        self, ids: NDArray[np.int32], options: SpeechOptions
    ) -> PreparedRequest:
        """See SpeechModel; `ids` are rows of a feed."""
        notes = self._check(options)
        return replace(self.writer.write_streamed(ids[0], options), notes=notes)

    def _check(self, options: SpeechOptions) -> tuple[str, ...]:
        """Notes on what is not done as asked for."""
        if options.voice not in (None, *self.info.voices):
            raise InvalidInput(f"no voice {options.voice!r}; vox-tiny has {self.info.voices[0]!r}")
        if options.language not in (None, *self.info.languages):
            raise InvalidInput(f"no language {options.language!r}; vox-tiny speaks 'en' only")
        return ("vox-tiny takes no instructions; yours was left out",) if options.instruct else ()

    def allocate(self, size: StateSize) -> VoxTinyState:
        """See SpeechModel; each slot carries its own full context."""
        return VoxTinyState(
            self.config,
            size,
            _CONTEXT_TOKENS,
            self.decoder.conv_shapes,
            self.decoder.trunk_width,
        )

    def open_slot(
        self, state: VoxTinyState, slot: int, request: PreparedRequest, pages: Sequence[int] = ()
    ) -> None:
        """See SpeechModel; every slot has a context of its own."""
        options = request.options
        frames = min(request.max_frames, state.codes.shape[1])
        state.reset(
            slot,
            self._rules(options),
            keyed.uniforms(options.seed, frames, self.config.num_codebooks),
            keyed.noise_key(options.seed),
            None if request.is_text_complete else SlotText(self.config),
        )

    def append_text(
        self, state: VoxTinyState, slot: int, start: int, ids: NDArray[np.int32], is_complete: bool
    ) -> None:
        """See SpeechModel; `ids` are rows of a feed."""
        state.texts[slot].append(ids, is_complete)

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
        hidden = []
        for start, end, slot in zip(starts, starts[1:], slots, strict=False):
            ids = inputs.ids[start : end - 1, 0]  # without what opens the speech
            if slot in state.texts:
                hidden.append(self._begin_words(state, slot, ids.tolist()))
            else:
                hidden.append(self._begin_piece(state, slot, ids))
        self._make_frames(state, slots, torch.cat(hidden))

    def _begin_piece(self, state: VoxTinyState, slot: int, ids: torch.Tensor) -> torch.Tensor:
        """[1, hidden] of the last position of a whole piece's prompt."""
        history = state.text_history[slot].zero_()
        state.begin_piece(slot, piece_budget(len(ids) - NUM_TEXT_MARKS), is_open=False)
        return self._extend(state, slot, [self.talker.encode(ids, history), self.talker.opening])

    def _begin_words(self, state: VoxTinyState, slot: int, ids: list[int]) -> torch.Tensor:
        """[1, hidden] of the last position after a streamed piece's first row."""
        state.texts[slot].begin()
        state.text_history[slot].zero_()
        state.begin_piece(slot, state.codes.shape[1], is_open=True)
        return self._extend(state, slot, [*self._words(state, slot, ids), self.talker.opening])

    def _words(self, state: VoxTinyState, slot: int, ids: list[int]) -> list[torch.Tensor]:
        """Encodes a row's words; with the last one the piece may end."""
        text = state.texts[slot]
        encoded = [
            self.talker.encode(torch.tensor(segment), state.text_history[slot])
            for segment in text.segments(ids)
        ]
        if not text.is_open:
            state.is_open[slot] = False
            # From here on: lists, read word by word, take longer than the same text read whole.
            state.budget[slot] = state.num_frames[slot] + piece_budget(text.characters)
        return encoded

    def _extend(self, state: VoxTinyState, slot: int, parts: list[torch.Tensor]) -> torch.Tensor:
        """[1, hidden] of the last of more positions of a slot."""
        x, past = torch.cat(parts), int(state.context[slot])
        state.context[slot] = past + len(x)
        return self.talker.extend(x, state.kv[:, slot], past)

    @torch.inference_mode()
    def decode(self, state: VoxTinyState, slots: torch.Tensor, max_tokens: int) -> None:
        """See SpeechModel; rows that ended before and padding rows are left out."""
        status = state.status.numpy()
        live = [
            slot
            for slot in slots.tolist()
            if slot != state.scratch and status[slot] == RowStatus.CONTINUE
        ]
        read: dict[int, torch.Tensor] = {}
        silent: set[int] = set()
        for slot in live:
            if slot in state.texts:
                hidden = self._read(state, slot)
                if hidden is not None:
                    read[slot] = hidden
                elif state.texts[slot].is_silent:
                    silent.add(slot)
        stepping = [slot for slot in live if slot not in read and slot not in silent]
        hidden = [*self._steps(state, stepping), *read.values()]
        if hidden:
            self._make_frames(state, [*stepping, *read], torch.cat(hidden))

    def _read(self, state: VoxTinyState, slot: int) -> torch.Tensor | None:
        """[1, hidden] where this step's row brings words; silence between pieces is made here."""
        text = state.texts[slot]
        ids = text.take()
        if ids and text.is_silent:
            return self._begin_words(state, slot, ids)
        if ids:
            words = self._words(state, slot, ids)
            return self._extend(state, slot, [*words, state.step_input[slot : slot + 1]])
        if text.is_silent and text.has_taken:
            self._frames.repeat(state, slot)
        elif text.is_silent:
            assert text.is_over, "a frame is made only where a row of text is left for it"
            state.status[slot] = RowStatus.END
        return None

    def _steps(self, state: VoxTinyState, slots: list[int]) -> Iterator[torch.Tensor]:
        """[rows, hidden] of one more position, in groups."""
        for group in groups(slots, self.row_sizes):
            distinct = len(set(group))
            index = np.array(group)
            positions = state.context.numpy()[index]
            x = torch.from_numpy(state.step_input.numpy()[index])
            yield self.talker.step(x, state.kv, group, positions.tolist())[:distinct]
            state.context.numpy()[index] = positions + 1

    def _make_frames(self, state: VoxTinyState, slots: list[int], hidden: torch.Tensor) -> None:
        for group in groups(range(len(slots)), self.row_sizes):
            self._frames.make(state, [slots[row] for row in group], hidden[group])
        for slot in slots:
            if slot in state.texts and state.status[slot] == RowStatus.END:
                self._end_words(state, slot)

    def _end_words(self, state: VoxTinyState, slot: int) -> None:
        """A streamed piece's speech has ended: the next one begins, or silence until it does."""
        text = state.texts[slot]
        if state.num_frames[slot] == 0:
            return
        text.is_silent = True
        if text.has_taken:
            self._frames.repeat(state, slot)
        elif not text.is_over:
            ids = text.take()
            assert ids, "a frame is made only where a row of text is left for it"
            self._make_frames(state, [slot], self._begin_words(state, slot, ids))

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
