"""The stages of a model as programs over fixed buffers, ready to be captured.

A program reads one int32 input buffer, so that a launch copies once to the device, and leaves
what the host needs in one output buffer, so that it copies once back. Padding rows name the
scratch slot.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from voxserve.core.chunk import Chunks
from voxserve.models.base import PrefillInputs, SpeechModel
from voxserve.models.request import Piece
from voxserve.runtime.pcm import FULL_SCALE

IntArray = NDArray[np.int32]


class Program(Protocol):
    """A stage at one size.

    Attributes:
        inputs: int32 on the device.
        outputs: On the device, valid when `run` has ended.
    """

    inputs: torch.Tensor
    outputs: torch.Tensor

    def run(self) -> None:
        """Computes `outputs` and the model's state from `inputs`; allocates nothing that lasts."""
        ...


class DecodeProgram:
    """One decode step of up to `bucket` rows; its output is each row's status, int8 [bucket]."""

    def __init__(self, model: SpeechModel, state: Any, bucket: int, scratch: int) -> None:
        self._model, self._state, self._scratch = model, state, scratch
        device = model.device
        self.inputs = torch.full((bucket,), scratch, dtype=torch.int32, device=device)
        self.outputs = torch.zeros(bucket, dtype=torch.int8, device=device)

    def fill(self, staged: IntArray, slots: IntArray) -> None:
        """Writes the inputs of a step into a host buffer."""
        staged[: len(slots)] = slots
        staged[len(slots) :] = self._scratch

    def run(self) -> None:
        """One step; rows that had ended keep their status."""
        self._model.decode(self._state, self.inputs, self._model.info.max_context_tokens)
        self.outputs.copy_(self._state.status[self.inputs.long()])


class PrefillProgram:
    """Packed prompts of at most `tokens` tokens in `rows` rows; outputs as for a decode step.

    It also opens the slots of requests that begin, from rows of numbers the model made of them:
    nothing else has to be sent to the device for them. Masks travel as bytes.
    """

    def __init__(
        self, model: SpeechModel, state: Any, tokens: int, rows: int, scratch: int
    ) -> None:
        self._model, self._state, self._scratch = model, state, scratch
        self.tokens, self.rows = tokens, rows
        self._columns = 1 + model.info.num_codebooks
        self._cells = tokens * self._columns
        self._mask_size = -(-self._cells // 4)
        closed = model.open_row(state, None)
        self._row_size = len(closed)
        self._padding = np.zeros(self.size(), np.int32)
        *_, slot_rows, opened_slots, opened_rows = self._parts(self._padding)
        slot_rows[:] = opened_slots[:] = scratch
        opened_rows[:] = closed
        self.inputs = torch.tensor(self._padding, device=model.device)
        self.outputs = torch.zeros(rows, dtype=torch.int8, device=model.device)

    def size(self) -> int:
        """Elements of the input buffer: ids, masks, row starts, slots, opened slots, their rows."""
        return self._cells + self._mask_size + (3 + self._row_size) * self.rows + 1

    def fill(
        self,
        staged: IntArray,
        slots: Sequence[int],
        pieces: Sequence[Piece],
        opened: Mapping[int, IntArray] | None = None,
    ) -> None:
        """Writes packed prompts into a host buffer.

        NOTE: what is large is copied as bytes: numpy hands the interpreter over for more than 500
        elements, which costs much more than the copy where another thread computes.

        Args:
            staged: [size()].
            slots: One for each prompt.
            pieces: The prompts.
            opened: Rows from `SpeechModel.open_row` of the slots that begin.
        """
        written = staged.data.cast("B")
        written[:] = self._padding.data.cast("B")
        ids_at, mask_at = 0, 4 * self._cells
        for piece in pieces:
            ids, mask = piece.ids.data.cast("B"), piece.mask.data.cast("B")
            assert len(ids) == 4 * len(mask), "ids are int32, masks bytes"
            written[ids_at : ids_at + len(ids)] = ids
            written[mask_at : mask_at + len(mask)] = mask
            ids_at, mask_at = ids_at + len(ids), mask_at + len(mask)
        _, _, starts, slot_rows, opened_slots, opened_rows = self._parts(staged)
        ends = list(itertools.accumulate(piece.num_tokens for piece in pieces))
        starts[1 : len(slots) + 1] = ends
        starts[len(slots) + 1 :] = ends[-1]
        slot_rows[: len(slots)] = slots
        for place, (slot, row) in enumerate((opened or {}).items()):
            opened_slots[place] = slot
            opened_rows[place] = row

    def run(self) -> None:
        """Opens slots and runs the prompts; each makes its first frame."""
        ids, mask, starts, slots, opened_slots, opened_rows = self._parts(self.inputs)
        mask = mask.view(torch.uint8)[: self._cells].view(self.tokens, self._columns)
        self._model.open_slots(self._state, opened_slots, opened_rows)
        inputs = PrefillInputs(ids, mask != 0, None, starts, slots, self.tokens)
        self._model.prefill(self._state, inputs)
        self.outputs.copy_(self._state.status[slots.long()])

    def _parts(self, flat: Any) -> tuple[Any, Any, Any, Any, Any, Any]:
        """The input buffer's parts, as views: of a tensor on the device, of an array here."""
        rows, mask_end = self.rows, self._cells + self._mask_size
        rest = flat[mask_end:]
        return (
            flat[: self._cells].reshape(self.tokens, self._columns),
            flat[self._cells : mask_end],
            rest[: rows + 1],
            rest[rows + 1 : 2 * rows + 1],
            rest[2 * rows + 1 : 3 * rows + 1],
            rest[3 * rows + 1 :].reshape(rows, self._row_size),
        )


class CodecProgram:
    """A batch of chunks of at most `frames` frames.

    The output is int16: one flag per row (1: all samples are finite numbers), then
    [bucket, samples] of PCM.
    """

    def __init__(
        self, model: SpeechModel, state: Any, bucket: int, frames: int, scratch: int
    ) -> None:
        self._model, self._state, self._scratch = model, state, scratch
        self.bucket, self.frames = bucket, frames
        info, device = model.info, model.device
        self.samples = frames * info.frame_samples + info.codec_delay_samples
        self.inputs = torch.zeros(4 * bucket, dtype=torch.int32, device=device)
        self.inputs[:bucket] = scratch
        size = bucket * (1 + self.samples)
        self.outputs = torch.zeros(size, dtype=torch.int16, device=device)

    def used(self, rows: int) -> int:
        """Elements of the output buffer that `rows` rows fill."""
        return self.bucket + rows * self.samples

    def fill(self, staged: IntArray, chunks: Chunks) -> None:
        """Writes the inputs of a batch into a host buffer."""
        rows, table = len(chunks), staged.reshape(4, self.bucket)
        table[0, rows:] = self._scratch
        table[1:, rows:] = 0
        table[0, :rows] = chunks.slot
        table[1, :rows] = chunks.first_frame
        table[2, :rows] = chunks.num_frames
        table[3, :rows] = chunks.is_last

    def run(self) -> None:
        """Decodes the chunks and rounds to PCM."""
        slots, first, valid, is_last = self.inputs.view(4, self.bucket)
        wave = self._model.codec(self._state, slots, first, valid, is_last != 0, self.frames)
        self.outputs[: self.bucket].copy_(torch.isfinite(wave).all(dim=1))
        pcm = self.outputs[self.bucket :].view(self.bucket, self.samples)
        scaled = wave.nan_to_num(0.0).clamp(-1.0, 1.0).mul(FULL_SCALE).round_()
        pcm[:, : wave.shape[1]].copy_(scaled)
