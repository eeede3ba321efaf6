"""Turns frames into ready chunks and ready chunks into head chunks.

A chunk is ready when its frames and the look-ahead its codec needs exist, or the stream has
ended. A request's head chunk is the ready one whose predecessor was delivered: only it is classed.
"""

from __future__ import annotations

import numpy as np

from voxserve.core.jobs import Role
from voxserve.sched.board import Board
from voxserve.sched.state import NEVER, ActiveRequest, IntArray


def chunks_ready(board: Board, now_s: float, slots: IntArray) -> None:
    """Books one more ready chunk for each slot; its frames have just been completed."""
    table = board.table
    ready_size = table.next_frames[slots]
    num_ready = table.num_ready[slots] + 1
    ready_frames = table.ready_frames[slots] + ready_size
    size = table.ramp_size(slots, num_ready)
    border = ready_frames + size + board.lookahead_frames
    table.num_ready[slots] = num_ready
    table.ready_frames[slots] = ready_frames
    table.next_frames[slots] = size
    table.border[slots] = border
    table.check_at[slots] = np.minimum(border, table.limit[slots])
    is_behind = table.is_head[slots] | table.is_busy[slots]  # a chunk before it is not delivered
    if np.count_nonzero(is_behind):
        behind: list[int] = slots[is_behind].tolist()
        for slot in behind:
            table.ready_s[slot].append(now_s)
        slots, ready_size = slots[~is_behind], ready_size[~is_behind]
    table.head_ready_s[slots] = now_s
    _become_heads(board, now_s, slots, ready_size)


def make_heads(board: Board, now_s: float, slots: IntArray) -> None:
    """The next ready chunk of each slot becomes its head chunk, to be classed."""
    table = board.table
    rest = table.ready_frames[slots] - table.done_frames[slots]
    num_frames = np.minimum(table.ramp_size(slots, table.num_done[slots]), rest)
    slot_list: list[int] = slots.tolist()
    table.head_ready_s[slots] = [table.ready_s[slot].popleft() for slot in slot_list]
    _become_heads(board, now_s, slots, num_frames)


def _become_heads(board: Board, now_s: float, slots: IntArray, num_frames: IntArray) -> None:
    table = board.table
    table.head_frames[slots] = num_frames
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
    total, ready = int(table.frames[slot]), int(table.ready_frames[slot])
    num_ready = int(table.num_ready[slot])
    num_left = int(table.num_done[slot]) + int(table.is_busy[slot])
    # Role LM: the last chunk handed off tells the codec's device that the stream has ended.
    needs_flush = total > 0 and (board.codec_delay_samples > 0 or board.role is Role.LM)
    while ready < total:
        place = min(num_ready, table.ramp.shape[1] - 1)
        ready = min(ready + int(table.ramp[slot, place]), total)
        num_ready += 1
    if needs_flush and num_ready == num_left:
        num_ready += 1
    table.ready_s[slot] += [now_s] * (num_ready - int(table.num_ready[slot]))
    table.num_ready[slot] = num_ready
    table.ready_frames[slot] = total
    table.border[slot] = table.check_at[slot] = NEVER
    if num_ready > num_left and not table.is_head[slot] and not table.is_busy[slot]:
        make_heads(board, now_s, np.array([slot]))
