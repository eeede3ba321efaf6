"""A tiny deterministic SpeechModel for engine tests: real tensors, no weights, failures on request.

Every word is `FRAMES_PER_WORD` frames, every sentence a piece, and a sample tells its request's
seed and its frame, so that a test can see what was delivered.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from voxserve.core.errors import InvalidInput
from voxserve.core.jobs import RowStatus
from voxserve.models.base import ModelInfo, ModelState, PrefillInputs, SpeechModel, StateSize
from voxserve.models.request import Piece, PreparedRequest, SpeechOptions

FRAMES_PER_WORD = 3
FRAME_SAMPLES = 2400
SAMPLE_RATE_HZ = 24_000
CODES = 64

BROKEN_PROMPT = "poisonprompt"
BROKEN_STEP = "poisonstep"
BROKEN_CODEC = "poisoncodec"
NOT_A_NUMBER = "poisonsamples"


@dataclass
class FakeState(ModelState):
    """Per-slot state of the fake model."""

    codes: torch.Tensor
    num_frames: torch.Tensor
    status: torch.Tensor
    seed: torch.Tensor
    piece_end: torch.Tensor
    words: dict[int, str]


class FakeModel(SpeechModel):
    """Speaks numbers.

    Args:
        step_s: Seconds a decode step takes.
        codec_s: Seconds a codec batch takes.
    """

    def __init__(self, step_s: float = 0.0, codec_s: float = 0.0) -> None:
        self.step_s = step_s
        self.codec_s = codec_s
        self._opened: list[PreparedRequest] = []
        self.device = torch.device("cpu")
        self.info = ModelInfo(
            name="fake",
            sample_rate_hz=SAMPLE_RATE_HZ,
            frame_samples=FRAME_SAMPLES,
            num_codebooks=2,
            codec_delay_samples=0,
            lookahead_frames=0,
            max_prompt_tokens=128,
            max_context_tokens=512,
            voices=("only",),
            languages=("en",),
        )

    def preprocess(self, text: str, options: SpeechOptions) -> PreparedRequest:
        """One piece per sentence."""
        sentences = [part.strip() for part in text.split(".") if part.strip()]
        if not sentences:
            raise InvalidInput("nothing to say")
        words = sum(len(sentence.split()) for sentence in sentences)
        limit = options.max_frames or words * FRAMES_PER_WORD
        return PreparedRequest(tuple(map(_piece, sentences)), limit, options)

    def allocate(self, size: StateSize) -> FakeState:
        """Zeros."""
        rows = size.num_slots + 1
        return FakeState(
            codes=torch.zeros(rows, size.max_frames, 2, dtype=torch.int32),
            num_frames=torch.zeros(rows, dtype=torch.int32),
            status=torch.zeros(rows, dtype=torch.int8),
            seed=torch.zeros(rows, dtype=torch.int32),
            piece_end=torch.zeros(rows, dtype=torch.int32),
            words={},
        )

    def open_slot(
        self, state: Any, slot: int, request: PreparedRequest, pages: Sequence[int] = ()
    ) -> None:
        """Resets the slot."""
        state.num_frames[slot] = 0
        state.seed[slot] = request.options.seed
        state.words[slot] = " ".join(piece.text for piece in request.pieces)

    def open_row(
        self, state: Any, request: PreparedRequest | None, pages: Sequence[int] = ()
    ) -> np.ndarray:
        """Seed, and where the request is kept for the device to find."""
        if request is None:
            return np.array([0, -1], np.int32)
        self._opened.append(request)
        return np.array([request.options.seed, len(self._opened) - 1], np.int32)

    def open_slots(self, state: Any, slots: torch.Tensor, rows: torch.Tensor) -> None:
        """Resets slots."""
        for slot, (_, place) in zip(slots.tolist(), rows.tolist(), strict=True):
            if place >= 0:
                self.open_slot(state, slot, self._opened[place])

    def prefill(self, state: Any, inputs: PrefillInputs) -> None:
        """The first frame of a piece."""
        slots = inputs.slots.tolist()
        _raise_for(state, slots, BROKEN_PROMPT)
        starts = inputs.row_starts.tolist()
        for row, slot in enumerate(slots):
            num_words = starts[row + 1] - starts[row]
            state.piece_end[slot] = state.num_frames[slot] + num_words * FRAMES_PER_WORD
        self._make_frames(state, slots)

    def decode(self, state: Any, slots: torch.Tensor, max_tokens: int) -> None:
        """One frame, or the end of the piece."""
        time.sleep(self.step_s)
        _raise_for(state, slots.tolist(), BROKEN_STEP)
        self._make_frames(state, slots.tolist())

    def codec(
        self,
        state: Any,
        slots: torch.Tensor,
        first_frame: torch.Tensor,
        num_valid: torch.Tensor,
        is_last: torch.Tensor,
        frames: int,
    ) -> torch.Tensor:
        """Each frame is FRAME_SAMPLES samples of its first code."""
        time.sleep(self.codec_s)
        _raise_for(state, slots.tolist(), BROKEN_CODEC)
        out = torch.zeros(len(slots), frames * FRAME_SAMPLES)
        for row, slot in enumerate(slots.tolist()):
            first, valid = int(first_frame[row]), int(num_valid[row])
            codes = state.codes[slot, first : first + valid, 0].float()
            out[row, : valid * FRAME_SAMPLES] = _level(codes).repeat_interleave(FRAME_SAMPLES)
            if NOT_A_NUMBER in state.words.get(slot, ""):
                out[row, 0] = float("nan")
        return out

    def _make_frames(self, state: Any, slots: list[int]) -> None:
        for slot in slots:
            frame = int(state.num_frames[slot])
            if frame >= int(state.piece_end[slot]):
                state.status[slot] = RowStatus.END
                continue
            state.codes[slot, frame] = code_of(int(state.seed[slot]), frame)
            state.num_frames[slot] += 1
            state.status[slot] = RowStatus.CONTINUE


def code_of(seed: int, frame: int) -> int:
    """The code of a frame."""
    return 1 + (seed * 7 + frame) % (CODES - 1)


def expected_pcm(text: str, seed: int = 0) -> np.ndarray:
    """The samples a text must give, whole."""
    frames = len(text.replace(".", " ").split()) * FRAMES_PER_WORD
    codes = torch.tensor([code_of(seed, frame) for frame in range(frames)]).float()
    samples = _level(codes).mul(32767.0).round().to(torch.int16)
    return samples.repeat_interleave(FRAME_SAMPLES).numpy()


def _level(codes: torch.Tensor) -> torch.Tensor:
    return (codes + 16.0) / (CODES + 16.0)


def _piece(sentence: str) -> Piece:
    num_words = len(sentence.split())
    ids = np.zeros((num_words, 3), np.int32)
    return Piece(ids=ids, mask=np.ones((num_words, 3), np.bool_), text=sentence)


def _raise_for(state: FakeState, slots: list[int], poison: str) -> None:
    for slot in slots:
        if poison in state.words.get(slot, ""):
            raise RuntimeError(f"the fake model met {poison}")
