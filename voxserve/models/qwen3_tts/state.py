"""Device state of all slots of a Qwen3-TTS model."""

from __future__ import annotations

import torch

from voxserve.core.jobs import RowStatus
from voxserve.kernels.frame_step import Sequences
from voxserve.models.base import ModelState, StateSize
from voxserve.models.blocks.sampling import SamplingState
from voxserve.models.blocks.transformer import PagedCache
from voxserve.models.qwen3_tts.codec import Codec, CodecState
from voxserve.models.qwen3_tts.config import TalkerConfig


class QwenState(ModelState):
    """Everything per request; the last slot is scratch: it always counts as ended, without frames.

    Attributes:
        is_paged: Slots get their pages from a pool; otherwise each has its own.
        cache: Backbone context.
        sampling: Settings, seeds, ids seen.
        sequences: Views for the ends of a step.
        wanted_min_frames: [slots + 1] int32, what the request asked for; the rules' own minimum
            also holds for each piece.
        text_ids: [slots + 1, context] int32, streamed text behind the prompt's token.
        num_text: [slots + 1] int32, how many of them there are.
        codec: Codec state.
    """

    def __init__(
        self,
        size: StateSize,
        config: TalkerConfig,
        codec: Codec,
        max_context_tokens: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        slots = size.num_slots + 1

        def counts() -> torch.Tensor:
            return torch.zeros(slots, dtype=torch.int32, device=device)

        self.scratch = size.num_slots
        self.is_paged = size.num_kv_pages > 0
        frame = (size.max_frames, config.num_codebooks)
        self.codes = torch.zeros((slots, *frame), dtype=torch.int32, device=device)
        self.num_frames = counts()
        self.status = torch.full((slots,), RowStatus.END, dtype=torch.int8, device=device)
        self.cache = PagedCache(
            *(config.backbone, size.num_slots, size.num_kv_pages),
            *(max_context_tokens, dtype, device),
        )
        self.sampling = SamplingState(
            slots, config.vocab, config.num_codes, config.codec_ids.eos, device
        )
        self.sequences = Sequences(
            codes=self.codes,
            num_frames=self.num_frames,
            status=self.status,
            lengths=self.cache.lengths,
            piece_start=counts(),
            repeats=counts(),
            min_frames=self.sampling.rules.min_frames,
        )
        self.wanted_min_frames, self.num_text = counts(), counts()
        text = (slots, max_context_tokens)
        self.text_ids = torch.zeros(text, dtype=torch.int32, device=device)
        self.codec = CodecState(codec, slots)
