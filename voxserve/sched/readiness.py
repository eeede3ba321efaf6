"""Turns frames into ready chunks and ready chunks into head chunks.

A chunk is ready when its frames and the look-ahead its codec needs exist, or the stream has
ended. A request's head chunk is the ready one whose predecessor was delivered: only it is classed.
"""

from __future__ import annotations

import numpy as np

from voxserve.sched.board import Board
from voxserve.sched.state import NEVER, ActiveRequest, IntArray


def chunks_ready(board: Board, now_s: float, slots: IntArray) -> None:
    """Books one more ready chunk for each slot; its frames have just been completed."""
    table = board.table
    table.num_ready[slots] += 1
    table.ready_frames[slots] += table.next_frames[slots]
    place = np.minimum(table.num_ready[slots], table.ramp.shape[1] - 1)
    size = table.ramp[slots, place]
    table.next_frames[slots] = size
    table.border[slots] = table.ready_frames[slots] + size + board.lookahead_frames
    table.check_at[slots] = np.minimum(table.border[slots], table.limit[slots])
    for slot in slots.tolist():
        _owner(board, slot).ready_s.append(now_s)
    make_heads(board, now_s, slots[~(table.is_head[slots] | table.is_busy[slots])])


def make_heads(board: Board, now_s: float, slots: IntArray) -> None:
    """The next ready chunk of each slot becomes its head chunk, to be classed."""
    table = board.table
    table.is_head[slots] = True
    table.is_new_head[slots] = True
    table.head_s[slots] = now_s
    table.promoted_s[slots] = np.nan


def complete_stream(board: Board, now_s: float, request: ActiveRequest) -> None:
    """Makes the rest of an ended stream ready: full chunks, the short last one, or a flush.

    An end on a chunk border makes no empty chunk, unless the last chunk has left already and the
    codec still holds samples back.
    """
    table, slot = board.table, request.slot
    total = int(table.frames[slot])
    ready = int(table.ready_frames[slot])
    while ready < total:
        place = min(len(request.ready_s), table.ramp.shape[1] - 1)
        ready = min(ready + int(table.ramp[slot, place]), total)
        request.ready_s.append(now_s)
    has_left = table.num_ready[slot] == table.num_done[slot] + int(table.is_busy[slot])
    if len(request.ready_s) == table.num_ready[slot] and has_left:
        if total > 0 and board.codec_delay_samples > 0:
            request.ready_s.append(now_s)
    table.num_ready[slot] = len(request.ready_s)
    table.ready_frames[slot] = total
    table.border[slot] = table.check_at[slot] = NEVER
    waits = table.num_ready[slot] > table.num_done[slot] + int(table.is_busy[slot])
    if waits and not table.is_head[slot] and not table.is_busy[slot]:
        make_heads(board, now_s, np.array([slot]))


def head_frames(board: Board, slots: IntArray) -> IntArray:
    """[slots] int64: valid frames of each slot's head chunk."""
    table = board.table
    place = np.minimum(table.num_done[slots], table.ramp.shape[1] - 1)
    return np.minimum(
        table.ramp[slots, place], table.ready_frames[slots] - table.done_frames[slots]
    )


def _owner(board: Board, slot: int) -> ActiveRequest:
    owner = board.table.owner[slot]
    assert owner is not None, f"slot {slot} works without an owner"
    return owner
