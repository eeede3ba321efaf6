"""Makes one frame per row: samples its codes, judges how it goes on, stores it in the slot."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from voxserve.core.jobs import RowStatus
from voxserve.models.vox_tiny.backbone import DepthTransformer, Talker
from voxserve.models.vox_tiny.config import VoxTinyConfig
from voxserve.models.vox_tiny.sampling import draw, penalise
from voxserve.models.vox_tiny.state import VoxTinyState

# A second of one code is silence that does not end, or a note that got stuck.
_MAX_REPEATS = 12

_Index = NDArray[np.int64]


class FrameMaker:
    """Samples with both transformers.

    Args:
        config: Of the checkpoint.
        talker: Makes the first codebook's logits.
        depth: Makes the others'.
        context_tokens: Positions of a slot.
    """

    def __init__(
        self, config: VoxTinyConfig, talker: Talker, depth: DepthTransformer, context_tokens: int
    ) -> None:
        self._config, self._talker, self._depth = config, talker, depth
        self._context_tokens = context_tokens

    def make(self, state: VoxTinyState, slots: Sequence[int], hidden: torch.Tensor) -> None:
        """Samples a frame and prepares the next step's input.

        Args:
            state: Slots.
            slots: Of each row; repeats at the end only fill the batch.
            hidden: [rows, hidden] of the talker.
        """
        index = np.array(slots)
        frames = state.num_frames.numpy()[index].astype(np.int64)
        places = np.minimum(frames, state.uniforms.shape[1] - 1)
        uniforms = torch.from_numpy(state.uniforms.numpy()[index, places])
        normed = self._talker.normed(hidden)
        logits = torch.mm(normed, self._talker.head)
        self._shape_logits(state, index, frames, logits)
        code = draw(logits, uniforms[:, 0], [state.rules[slot].first for slot in slots])
        status = self._judge(state, index, frames, code.numpy())
        rules = [state.rules[slot].depth for slot in slots]

        def choose(books: Sequence[int], logits: torch.Tensor) -> torch.Tensor:
            chances = uniforms[:, books[0] : books[-1] + 1].reshape(-1)
            codes = draw(logits.flatten(0, 1), chances, [rule for rule in rules for _ in books])
            return codes.view(-1, len(books))

        first = code.clamp_(max=self._config.codebook_size - 1)
        self._store(state, index, frames, self._depth.predict(normed, first, choose), status)

    def repeat(self, state: VoxTinyState, slot: int) -> None:
        """Makes the slot's last frame once more: silence between pieces."""
        made = int(state.num_frames[slot])
        if made == state.codes.shape[1]:
            state.status[slot] = RowStatus.WATCHDOG
            return
        state.codes[slot, made] = state.codes[slot, made - 1]
        state.num_frames[slot] = made + 1
        state.status[slot] = RowStatus.CONTINUE

    def _shape_logits(
        self, state: VoxTinyState, index: _Index, frames: _Index, logits: torch.Tensor
    ) -> None:
        """No end before the minimum length and the end of the text; repetition penalty."""
        is_early = (frames < state.min_frames.numpy()[index]) | state.is_open.numpy()[index]
        if is_early.any():
            logits[torch.from_numpy(is_early), self._config.end_code] = -torch.inf
        for row, slot in enumerate(index.tolist()):
            penalty = state.rules[slot].repetition_penalty
            if penalty != 1.0:
                earlier = state.codes[slot, : int(frames[row]), 0]
                logits[row] = penalise(logits[row], earlier, penalty)

    def _judge(
        self, state: VoxTinyState, index: _Index, frames: _Index, code: _Index
    ) -> NDArray[np.int8]:
        """[rows] RowStatus: end token, runaway (frame budget, one code repeated), or go on."""
        last = state.codes.numpy()[index, np.maximum(frames - 1, 0), 0]
        # While words are to come, silence may well be waiting for them.
        is_same = (code == last) & (frames > 0) & ~state.is_open.numpy()[index]
        repeats = np.where(is_same, state.repeats.numpy()[index] + 1, 0)
        state.repeats.numpy()[index] = repeats
        runaway = (frames >= state.budget.numpy()[index]) | (repeats >= _MAX_REPEATS)
        runaway &= frames >= state.min_frames.numpy()[index]
        full = state.context.numpy()[index] >= self._context_tokens
        full |= frames >= state.codes.shape[1]
        status = np.where(runaway | full, np.int8(RowStatus.WATCHDOG), np.int8(RowStatus.CONTINUE))
        return np.where(code == self._config.end_code, np.int8(RowStatus.END), status)

    def _store(
        self,
        state: VoxTinyState,
        index: _Index,
        frames: _Index,
        codes: torch.Tensor,
        status: NDArray[np.int8],
    ) -> None:
        state.status.numpy()[index] = status
        going = np.flatnonzero(status == RowStatus.CONTINUE)
        if not len(going):
            return
        if len(going) < len(index):
            index, frames, codes = index[going], frames[going], codes[torch.from_numpy(going)]
        state.codes.numpy()[index, frames] = codes.numpy()
        state.num_frames.numpy()[index] = frames + 1
        state.step_input.numpy()[index] = self._talker.frame_input(codes).numpy()
