"""Slack of the chunk that each running request is generating, for many requests at once.

Slack = time to the chunk's deadline - estimated time still needed to generate and decode it,
counting audio that is already generated but undelivered.
"""

from __future__ import annotations

import numpy as np

from voxserve.core.jobs import Partition
from voxserve.core.playback import FloatArray
from voxserve.sched.board import Board
from voxserve.sched.state import IntArray


def slack_s(board: Board, now_s: float) -> FloatArray:
    """[width] float64 seconds; infinite where nobody listens, no meaning for a free slot.

    Whole columns: picking some slots from each would take several times as long.
    """
    table = board.table
    need_s = (table.border - table.frames) * board.step_s()
    need_s += codec_alone_s(board)[table.next_frames]
    to_deadline_s = table.due_s - now_s
    on_way = (table.ready_frames != table.heard_frames).nonzero()[0]
    if len(on_way):
        to_deadline_s[on_way] = _deadlines_s(board, now_s, on_way) - now_s
    to_deadline_s -= need_s
    return to_deadline_s


def smallest_slack_s(board: Board, now_s: float) -> float:
    """Smallest slack of the running requests that a prefill could still hurt (inf: none).

    Only requests with slack >= 0 that are not starved count: a lost request must not hold new
    ones back. A request that waits for its next piece's prefill counts as running.
    """
    table = board.table
    if not board.policy.has_deadlines:
        return np.inf
    is_running = (table.is_active | table.is_pending) & ~table.is_starved
    if not np.count_nonzero(is_running):
        return np.inf
    slack = slack_s(board, now_s)
    is_running &= slack >= 0.0
    return float(np.minimum.reduce(slack[is_running], initial=np.inf))


def _deadlines_s(board: Board, now_s: float, slots: IntArray) -> FloatArray:
    """When the audio delivered and ready runs out, for slots with chunks on their way.

    A chunk plays from its estimated delivery, or from when the audio before it runs out if that
    is later; a first chunk plays from its delivery.
    """
    table = board.table
    due_s, is_playing = table.due_s[slots], table.is_playing[slots]
    delivered_s = np.maximum(table.busy_until_s[slots], now_s)
    start_s: FloatArray = np.maximum(delivered_s, due_s)
    if np.count_nonzero(is_playing) < len(slots):
        start_s = np.where(is_playing | (due_s == np.inf), start_s, delivered_s)
    pending_frames = table.ready_frames[slots] - table.heard_frames[slots]
    return start_s + pending_frames * board.frame_s


def codec_alone_s(board: Board) -> FloatArray:
    """One chunk alone on the lane that takes it when it is pressed."""
    if board.has_urgent_lane:
        return board.estimates.alone_s(board.codec_split, Partition.WHOLE)
    split = board.codec_split
    return board.estimates.alone_s(split, board.codec_partition(split))
