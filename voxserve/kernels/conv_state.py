"""Convolution history of streaming codecs: one flat row per slot, padded buffers per batch.

A chunk starts with one gather (each convolution's history of each row's slot goes in front of
that convolution's padded buffer) and ends with one scatter (the last rows that are valid become
the new history). Convolutions in between just read their padded buffers, so rows of any
requests, chunk lengths and ages share a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from voxserve.kernels.backend import tl, triton, use_reference
from voxserve.kernels.kept import kept

_BLOCK = 512


@dataclass(frozen=True)
class ConvInput:
    """One convolution's input: `history` rows of `channels`, `rate` rows per codec frame."""

    history: int
    channels: int
    rate: int


@dataclass(frozen=True)
class ConvStateLayout:
    """All stateful convolution inputs of a codec, in a fixed order."""

    inputs: tuple[ConvInput, ...]

    @cached_property
    def state_offsets(self) -> tuple[int, ...]:
        """Where each input's history starts in a slot's flat row; the last entry is the width."""
        offsets = [0]
        for item in self.inputs:
            offsets.append(offsets[-1] + item.history * item.channels)
        return tuple(offsets)

    @property
    def width(self) -> int:
        """Elements of one slot's flat row."""
        return self.state_offsets[-1]

    def new_state(
        self, num_slots: int, dtype: torch.dtype, device: torch.device | str
    ) -> torch.Tensor:
        """Returns `[num_slots, width]` zeros."""
        return torch.zeros((num_slots, self.width), dtype=dtype, device=device)


def _places(layout: ConvStateLayout, rows: int, frames: int) -> tuple[list[int], list[int]]:
    """Elements per row of each padded buffer, and where each buffer starts in the workspace."""
    sizes = [(item.history + frames * item.rate) * item.channels for item in layout.inputs]
    # 64-element alignment keeps every row start on a 128-byte line where channels allow.
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + -(-rows * size // 64) * 64)
    return sizes, starts


def _block_table(
    layout: ConvStateLayout, rows: int, frames: int, device: torch.device
) -> torch.Tensor:
    """Per block of history: state start, count, workspace start, row size, frame step."""
    key = ("blocks", layout, rows, frames, device)
    return kept(
        key, lambda: torch.tensor(_blocks(layout, rows, frames), dtype=torch.int64).to(device)
    )


def _blocks(layout: ConvStateLayout, rows: int, frames: int) -> list[tuple[int, ...]]:
    sizes, starts = _places(layout, rows, frames)
    table = []
    for item, offset, start, size in zip(
        layout.inputs, layout.state_offsets, starts, sizes, strict=False
    ):
        history = item.history * item.channels
        for first in range(0, history, _BLOCK):
            count = min(_BLOCK, history - first)
            table.append((offset + first, count, start + first, size, item.rate * item.channels))
    return table


class PaddedBuffers:
    """The padded inputs of one batch shape, views of one flat workspace.

    views: per input `[rows, history + frames * rate, channels]`.
    bodies: the same without history, `[rows, frames * rate, channels]`: where producers write.
    """

    def __init__(
        self,
        layout: ConvStateLayout,
        rows: int,
        frames: int,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> None:
        self.layout = layout
        self.rows = rows
        self.frames = frames
        sizes, starts = _places(layout, rows, frames)
        self.workspace = torch.empty(starts[-1], dtype=dtype, device=device)
        self.views = tuple(
            self.workspace[start : start + rows * size].view(rows, -1, item.channels)
            for start, size, item in zip(starts, sizes, layout.inputs, strict=False)
        )
        self.bodies = tuple(
            view[:, item.history :] for view, item in zip(self.views, layout.inputs, strict=True)
        )
        self._blocks = _block_table(layout, rows, frames, torch.device(device))

    def gather(self, state: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor) -> None:
        """Puts each row's history in front of its buffers; zeros for a request's first chunk.

        Args:
            state: `[slots, layout.width]`.
            slots: `[rows]` int32.
            positions: `[slots]` int32 frames decoded so far; 0 marks a fresh slot.
        """
        if not use_reference(state):
            _gather_kernel[(self.rows, self._blocks.shape[0])](
                state, slots, positions, self.workspace, self._blocks, state.stride(0), BLOCK=_BLOCK
            )
            return
        history = state[slots.long()]
        history = history.masked_fill((positions[slots.long()] == 0)[:, None], 0)
        for view, item, start in zip(
            self.views, self.layout.inputs, self.layout.state_offsets, strict=False
        ):
            part = history[:, start : start + item.history * item.channels]
            view[:, : item.history] = part.view(self.rows, item.history, item.channels)

    def scatter(self, state: torch.Tensor, slots: torch.Tensor, valid: torch.Tensor) -> None:
        """Stores each row's new history; rows beyond its valid frames do not enter it.

        Args:
            state: `[slots, layout.width]`, updated in place.
            slots: `[rows]` int32; no two real rows share one.
            valid: `[rows]` int32 frames of this chunk that exist, 0 to `frames`.
        """
        if not use_reference(state):
            _scatter_kernel[(self.rows, self._blocks.shape[0])](
                state, slots, valid, self.workspace, self._blocks, state.stride(0), BLOCK=_BLOCK
            )
            return
        for view, item, start in zip(
            self.views, self.layout.inputs, self.layout.state_offsets, strict=False
        ):
            index = (valid * item.rate)[:, None] + torch.arange(item.history, device=valid.device)
            rows = torch.arange(self.rows, device=valid.device)[:, None]
            new = view[rows, index.long()].flatten(1)
            state[slots.long(), start : start + new.shape[1]] = new


@triton.jit
def _gather_kernel(state, slots, positions, workspace, blocks, state_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    entry = blocks + tl.program_id(1) * 5
    slot = tl.load(slots + row).to(tl.int64)
    count = tl.load(entry + 1)
    i = tl.arange(0, BLOCK)
    mask = i < count
    old = mask & (tl.load(positions + slot) > 0)
    value = tl.load(state + slot * state_stride + tl.load(entry) + i, mask=old, other=0.0)
    tl.store(workspace + tl.load(entry + 2) + row * tl.load(entry + 3) + i, value, mask=mask)


@triton.jit
def _scatter_kernel(state, slots, valid, workspace, blocks, state_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    entry = blocks + tl.program_id(1) * 5
    slot = tl.load(slots + row).to(tl.int64)
    shift = tl.load(valid + row) * tl.load(entry + 4)
    i = tl.arange(0, BLOCK)
    mask = i < tl.load(entry + 1)
    source = workspace + tl.load(entry + 2) + row * tl.load(entry + 3) + shift + i
    tl.store(
        state + slot * state_stride + tl.load(entry) + i, tl.load(source, mask=mask), mask=mask
    )
