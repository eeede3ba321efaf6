"""Qwen3-TTS 12 Hz (CustomVoice) behind the model interface."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from voxserve.core.jobs import RowStatus
from voxserve.kernels.kv_cache import PAGE_SIZE
from voxserve.models.base import ModelInfo, PrefillInputs, SpeechModel, StateSize
from voxserve.models.blocks.sampling import (
    MOST,
    NO_SETTINGS,
    SETTING_COLUMNS,
    SamplingDefaults,
    setting_row,
)
from voxserve.models.blocks.weights import WeightSource
from voxserve.models.qwen3_tts.codec import Codec
from voxserve.models.qwen3_tts.config import CodecConfig, TalkerConfig
from voxserve.models.qwen3_tts.prompt import (
    MAX_CONTEXT_TOKENS,
    MAX_PROMPT_TOKENS,
    PromptWriter,
)
from voxserve.models.qwen3_tts.state import QwenState
from voxserve.models.qwen3_tts.talker import Talker
from voxserve.models.qwen3_tts.tokenizer import TextTokenizer
from voxserve.models.request import PreparedRequest, SpeechOptions, TextFeed

_OWN_COLUMNS = SETTING_COLUMNS + 1  # of a slot's opening; pages follow


class Qwen3TTS(SpeechModel):
    """A loaded model.

    Args:
        name: Registry name.
        config, codec_config: Sizes and ids.
        get_talker, get_codec: Sources of the two files' tensors; their device and type are the
            model's.
        tokenizer: Of the checkpoint.
        defaults: Sampling where a request says nothing.
    """

    def __init__(
        self,
        name: str,
        config: TalkerConfig,
        codec_config: CodecConfig,
        get_talker: WeightSource,
        get_codec: WeightSource,
        tokenizer: TextTokenizer,
        defaults: SamplingDefaults,
    ) -> None:
        self.config, self.defaults = config, defaults
        with torch.inference_mode():
            self.talker = Talker(config, get_talker, MAX_CONTEXT_TOKENS)
            self.codec_decoder = Codec(codec_config, get_codec)
        self.device, self.dtype = self.talker.head.device, self.talker.head.dtype
        self._prompts = PromptWriter(config, tokenizer)
        self.info = ModelInfo(
            name=name,
            sample_rate_hz=codec_config.sample_rate_hz,
            frame_samples=codec_config.frame_samples,
            num_codebooks=config.num_codebooks,
            codec_delay_samples=0,
            lookahead_frames=0,
            max_prompt_tokens=MAX_PROMPT_TOKENS,
            max_context_tokens=MAX_CONTEXT_TOKENS,
            voices=self._prompts.voices,
            languages=self._prompts.languages,
            accepts_streamed_text=True,
        )

    def preprocess(self, text: str, options: SpeechOptions) -> PreparedRequest:
        """Prompts of a whole text (see `PromptWriter.write`)."""
        return self._prompts.write(text, options)

    def open_text(self) -> TextFeed:
        """A feed for one request's streamed text."""
        return self._prompts.open_text()

    def preprocess_streamed(
        self, ids: NDArray[np.int32], options: SpeechOptions
    ) -> PreparedRequest:
        """The prompt of a streamed text from its first token."""
        return self._prompts.write_streamed(int(ids[0]), options)

    def allocate(self, size: StateSize) -> QwenState:
        """Allocates the state of all slots on the model's device."""
        paged = size.num_kv_pages > 0
        assert not paged or size.kv_page_tokens == PAGE_SIZE, f"pages have {PAGE_SIZE} tokens"
        return QwenState(
            *(size, self.config, self.codec_decoder, MAX_CONTEXT_TOKENS, self.dtype, self.device)
        )

    def open_row(
        self, state: QwenState, request: PreparedRequest | None, pages: Sequence[int] = ()
    ) -> NDArray[np.int32]:
        """Sampling settings, fewest frames, and the slot's pages where the state keeps pages."""
        settings, min_frames = NO_SETTINGS, 0
        if request is not None:
            options = request.options
            settings = setting_row(options.seed, options.sampling, self.defaults)
            min_frames = min(options.min_frames or 0, MOST)
        row = np.frombuffer(settings + min_frames.to_bytes(4, "little"), np.int32)
        return np.concatenate((row, state.cache.row(pages))) if state.is_paged else row

    def open_slots(self, state: QwenState, slots: torch.Tensor, rows: torch.Tensor) -> None:
        """Resets what the LM lane keeps; a codec chunk from frame 0 on resets the codec's."""
        index = slots.long()
        state.status.index_fill_(0, index, RowStatus.END)
        state.num_frames.index_fill_(0, index, 0)
        state.num_text.index_fill_(0, index, 0)
        state.sampling.open(index, rows)
        state.wanted_min_frames.index_copy_(0, index, rows[:, SETTING_COLUMNS])
        if rows.shape[1] > _OWN_COLUMNS:
            state.cache.table.index_copy_(0, index, rows[:, _OWN_COLUMNS:])

    def append_text(
        self,
        state: QwenState,
        slot: int,
        start: int,
        ids: NDArray[np.int32],
        is_complete: bool,
    ) -> None:
        """Adds text tokens to a slot's queue; the end of the text is a token of its own."""
        if is_complete:
            ids = np.append(ids, np.int32(self.config.text_ids.eos))
        end = min(start + len(ids), state.text_ids.shape[1])  # more than a context is never read
        added = torch.from_numpy(ids[: end - start].astype(np.int32))
        state.text_ids[slot, start:end].copy_(added, non_blocking=True)
        state.num_text[slot] = end

    def prefill(self, state: QwenState, inputs: PrefillInputs) -> None:
        """Runs prompts and makes each piece's first frame."""
        with torch.inference_mode():
            self.talker.prefill(state, inputs)

    def decode(self, state: QwenState, slots: torch.Tensor, max_tokens: int) -> None:
        """One frame for each row."""
        with torch.inference_mode():
            self.talker.decode(state, slots)

    def codec(
        self,
        state: QwenState,
        slots: torch.Tensor,
        first_frame: torch.Tensor,
        num_valid: torch.Tensor,
        is_last: torch.Tensor,
        frames: int,
    ) -> torch.Tensor:
        """Decodes one chunk per row; nothing is held back, so the last chunk is like any other."""
        with torch.inference_mode():
            place = first_frame[:, None] + torch.arange(
                frames, dtype=torch.int32, device=slots.device
            )
            place = place.long().clamp(max=state.codes.shape[1] - 1)
            codes = state.codes[slots.long()[:, None], place]
            return self.codec_decoder.decode(codes, state.codec, slots, first_frame, num_valid)
