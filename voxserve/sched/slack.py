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


def slack_s(board: Board, now_s: float, slots: IntArray) -> FloatArray:
    """[slots] float64 seconds; infinite where nobody listens.

    Computed for all slots before picking: whole columns cost a fraction of picked ones.
    """
    table = board.table
    pending = table.ready_frames - table.heard_frames
    left = table.border - table.frames
    need_s = left * board.step_s() + codec_alone_s(board)[table.next_frames]
    return (_deadlines_s(board, now_s, pending) - now_s - need_s)[slots]


def smallest_slack_s(board: Board, now_s: float) -> float:
    """Smallest slack of the running requests that a prefill could still hurt (inf: none).

    Only requests with slack >= 0 that are not starved count: a lost request must not hold new
    ones back. A request that waits for its next piece's prefill counts as running.
    """
    table = board.table
    if not board.policy.has_deadlines:
        return np.inf
    slots = np.flatnonzero((table.is_active | table.is_pending) & ~table.is_starved)
    if len(slots) == 0:
        return np.inf
    slack = slack_s(board, now_s, slots)
    slack = slack[slack >= 0.0]
    return float(slack.min()) if len(slack) else np.inf


def _deadlines_s(board: Board, now_s: float, pending_frames: IntArray) -> FloatArray:
    """When the audio delivered and ready runs out, for every slot.

    A chunk on its way plays from its estimated delivery, or from when the audio before it runs
    out if that is later; a first chunk plays from its delivery.
    """
    table = board.table
    due_s = table.due_s
    delivery_s = np.maximum(table.busy_until_s, now_s)
    first_s = np.where(np.isfinite(due_s), delivery_s, due_s)
    start_s = np.where(table.is_playing, np.maximum(delivery_s, due_s), first_s)
    return np.where(pending_frames > 0, start_s + pending_frames * board.frame_s, due_s)


def codec_alone_s(board: Board) -> FloatArray:
    """One chunk alone on the lane that takes it when it is pressed."""
    if board.has_urgent_lane:
        return board.estimates.alone_s(board.codec_split, Partition.WHOLE)
    split = board.codec_split
    return board.estimates.alone_s(split, board.codec_partition(split))
