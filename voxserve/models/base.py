"""The one model interface: what a SpeechLM must provide to be served, with its contract.

A model is a Python program of four steps over preallocated per-slot device state:

1. **preprocess** (host, any thread): text -> pieces of prompt rows, frame budget, notes.
2. **prefill** / **decode** (device, LM lane): the backbone forward and the sampling of one frame
   per row, including the depth transformer; the next step's input is prepared on the device.
3. **codec** (device, either codec lane): a batch of chunks -> samples, with per-request codec
   state gathered from and scattered back to slots.

Contract (tests/models/contract.py checks it for every registered model):

- State lives in tensors whose first dimension is `num_slots + 1`; the last slot is scratch, which
  padding rows of an executable point at. A stage reads and writes only the slots it is given.
- Any slots may share a batch: a row's result equals what it gets alone (tokens equal, samples
  within 1e-4), whatever the other rows are and whichever lane runs the codec.
- Random numbers are keyed by (request seed, frame or block, codebook): never by time, row or call.
- `decode` writes codes[slot, frame, codebook], advances num_frames[slot] and sets status[slot]
  (RowStatus). A row whose status is END or WATCHDOG made no frame and changed nothing else. A
  decode row that arrives after such a status (the step launched before the flag was read) is
  ignored.
- `prefill` starts a piece: it resets the slot's context (KV), keeps num_frames, codes and codec
  state, runs the prompt and samples the piece's first frame with the same rules as `decode`.
- `codec` decodes frames [first_frame, first_frame + num_frames) of each row. Rows of one batch may
  have different valid lengths up to the executable's `frames`; rows past the valid length leave
  no trace in the codec state. The chunks of a request arrive in order, each exactly once; the sum
  of the chunks equals the whole decode for any chunking. `is_last` flushes held-back samples.
- Streamed text: the prompt holds the first text token; each later one is added to one decode step,
  in order, and after the last (`is_complete`) steps go on without. Frame n needs n + 1 text tokens
  or complete text: the scheduler launches no other decode, so a slot short of text simply waits.
- LM and codec stages of one state may run at the same time on different threads or streams: they
  share only `codes`, of which the codec reads only frames that were complete before its job.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from voxserve.core.errors import InvalidInput
from voxserve.models.request import Piece, PreparedRequest, SpeechOptions, TextFeed


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Facts about a model that the host needs.

    Attributes:
        name: Registry name.
        sample_rate_hz: Of the samples delivered.
        frame_samples: Samples per frame.
        num_codebooks: Codes per frame.
        codec_delay_samples: Held back by the codec until its flush (0: none).
        lookahead_frames: Frames after a chunk that its decode needs.
        max_prompt_tokens: Longest prompt of one piece.
        max_context_tokens: Prompt and frames of one piece together.
        voices, languages: What can be asked for; the first of each is the default.
        accepts_streamed_text: Text tokens can be added while speaking.
    """

    name: str
    sample_rate_hz: int
    frame_samples: int
    num_codebooks: int
    codec_delay_samples: int
    lookahead_frames: int
    max_prompt_tokens: int
    max_context_tokens: int
    voices: tuple[str, ...]
    languages: tuple[str, ...]
    accepts_streamed_text: bool = False

    @property
    def frame_s(self) -> float:
        """Seconds of audio per frame."""
        return self.frame_samples / self.sample_rate_hz

    def chunk_samples(self, first_frame: int, num_frames: int, is_last: bool) -> int:
        """Samples the codec gives for a chunk: the first is short by the delay, the last long."""
        samples = num_frames * self.frame_samples
        if first_frame == 0:
            samples -= min(self.codec_delay_samples, samples)
        if is_last:
            held = min(self.codec_delay_samples, (first_frame + num_frames) * self.frame_samples)
            samples += held
        return samples


@dataclass(slots=True, eq=False)
class PrefillInputs:
    """A packed prompt batch on the device (static buffers when captured).

    Attributes:
        ids: [tokens, 1 + codebooks] int32.
        mask: Same shape, bool.
        features: [tokens, width] or None.
        row_starts: [rows + 1] int32, where each prompt begins in the packed rows.
        slots: [rows] int32.
        max_tokens: Longest prompt (host number).
    """

    ids: torch.Tensor
    mask: torch.Tensor
    features: torch.Tensor | None
    row_starts: torch.Tensor
    slots: torch.Tensor
    max_tokens: int


@dataclass(frozen=True, slots=True)
class StateSize:
    """How much per-request state to allocate.

    Attributes:
        num_slots: Requests with device state at once (one scratch slot is added).
        num_kv_pages: Pages of the KV pool; 0 gives each slot its own full context.
        kv_page_tokens: Tokens per page.
        max_frames: Longest request, in frames (rows of `codes`).
    """

    num_slots: int
    num_kv_pages: int
    kv_page_tokens: int
    max_frames: int


class ModelState(ABC):
    """Device state of all slots. Subclasses add KV, codec buffers, step inputs.

    Attributes:
        codes: [slots + 1, max_frames, codebooks] int32.
        num_frames: [slots + 1] int32, frames made so far.
        status: [slots + 1] int8, RowStatus of the last prefill or decode row.
    """

    codes: torch.Tensor
    num_frames: torch.Tensor
    status: torch.Tensor


class SpeechModel(ABC):
    """A loaded model. Stateless between calls: everything per request is in a ModelState."""

    info: ModelInfo
    device: torch.device

    @abstractmethod
    def preprocess(self, text: str, options: SpeechOptions) -> PreparedRequest:
        """Turns text into prompt pieces. Called on user threads; must be thread-safe.

        Raises:
            InvalidInput: Nothing to say, unknown voice or language, or too long; says the limit.
        """

    @abstractmethod
    def allocate(self, size: StateSize) -> Any:
        """Allocates a ModelState for `size` on the model's device."""

    @abstractmethod
    def prefill(self, state: Any, inputs: PrefillInputs) -> None:
        """Runs prompts and samples each piece's first frame (see the contract)."""

    @abstractmethod
    def decode(self, state: Any, slots: torch.Tensor, max_tokens: int) -> None:
        """One step for `slots` [rows] int32.

        Args:
            state: From `allocate`.
            slots: One row each; padding rows name the scratch slot.
            max_tokens: Upper bound of any row's context length (host number, eager only).
        """

    @abstractmethod
    def codec(
        self,
        state: Any,
        slots: torch.Tensor,
        first_frame: torch.Tensor,
        num_valid: torch.Tensor,
        is_last: torch.Tensor,
        frames: int,
    ) -> torch.Tensor:
        """Decodes one chunk per row.

        Args:
            state: From `allocate`.
            slots: [rows] int32.
            first_frame: [rows] int32.
            num_valid: [rows] int32, 0..frames.
            is_last: [rows] bool.
            frames: Frames of the executable.

        Returns:
            [rows, samples] float32 in [-1, 1]; row r's first
            `info.chunk_samples(first_frame, num_valid, is_last)` samples are valid.
        """

    def open_slot(
        self, state: Any, slot: int, request: PreparedRequest, pages: Sequence[int] = ()
    ) -> None:
        """Resets a slot for a new request: seed, sampling, frame counter, codec state.

        A model opens its slots either here, from the host, or by `open_row` and `open_slots`, where
        this does the same one by one.

        Args:
            state: From `allocate`.
            slot: Nobody's.
            request: Its new owner.
            pages: KV pages of the slot, in order, where `StateSize.num_kv_pages` is not 0.
        """
        row = torch.tensor(self.open_row(state, request, pages)[None])
        slots = torch.tensor([slot], dtype=torch.int32, device=self.device)
        self.open_slots(state, slots, row.to(self.device))

    def open_row(
        self, state: Any, request: PreparedRequest | None, pages: Sequence[int] = ()
    ) -> NDArray[np.int32]:
        """What opening a slot takes, as numbers that travel with its first prompt.

        Args:
            state: From `allocate`.
            request: None: the row of a slot that is not opened, which goes with the scratch slot.
            pages: KV pages of the slot, in order, where the state keeps pages.

        Returns:
            [columns] int32, the same number of columns for every request of a state.
        """
        raise AssertionError(f"{self.info.name} opens its slots from the host")

    def open_slots(self, state: Any, slots: torch.Tensor, rows: torch.Tensor) -> None:
        """`open_slot` for many slots, on the device; can be captured.

        Only for models that run as executables: a call per slot and setting would cost the host
        more than all else in a prefill.

        Args:
            state: From `allocate`.
            slots: [rows] int32; padding rows name the scratch slot, any number of times.
            rows: [rows, columns] int32, from `open_row`.
        """
        raise AssertionError(f"{self.info.name} opens its slots from the host")

    def open_text(self) -> TextFeed:
        """A feed for one request's streamed text.

        Raises:
            InvalidInput: The model takes whole texts only.
        """
        raise InvalidInput(f"{self.info.name} takes whole texts only, not streamed ones")

    def preprocess_streamed(
        self, ids: NDArray[np.int32], options: SpeechOptions
    ) -> PreparedRequest:
        """The prompt of a streamed text from its first token, `ids[0]`.

        The other tokens and later ones go through `append_text` once the slot is open.

        Args:
            ids: [tokens >= 1], from a feed.
            options: As asked for.

        Raises:
            InvalidInput: Unknown voice or language, or the model takes whole texts only.
        """
        raise InvalidInput(f"{self.info.name} takes whole texts only, not streamed ones")

    def append_text(
        self, state: Any, slot: int, start: int, ids: NDArray[np.int32], is_complete: bool
    ) -> None:
        """Adds text tokens to a slot's queue, on the LM lane.

        Args:
            state: From `allocate`.
            slot: Opened for a request of `preprocess_streamed`.
            start: Tokens appended before (not counting the prompt's).
            ids: [tokens], possibly none.
            is_complete: These were the last.
        """
        raise AssertionError(f"{self.info.name} takes whole texts only")

    def pack_prefill(
        self, slots: tuple[int, ...], pieces: tuple[Piece, ...], device: torch.device
    ) -> PrefillInputs:
        """Packs prompts row after row into device tensors."""
        lengths = [piece.num_tokens for piece in pieces]
        features = [piece.features for piece in pieces]
        packed = None
        if any(item is not None for item in features):
            width = next(item.shape[1] for item in features if item is not None)
            packed = torch.from_numpy(
                np.concatenate(
                    [
                        np.zeros((length, width), np.float32) if item is None else item
                        for item, length in zip(features, lengths, strict=True)
                    ]
                )
            ).to(device)
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        return PrefillInputs(
            ids=torch.from_numpy(np.concatenate([p.ids for p in pieces])).to(device),
            mask=torch.from_numpy(np.concatenate([p.mask for p in pieces])).to(device),
            features=packed,
            row_starts=torch.from_numpy(starts).to(device),
            slots=torch.tensor(slots, dtype=torch.int32, device=device),
            max_tokens=max(lengths),
        )
