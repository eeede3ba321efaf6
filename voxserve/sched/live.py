"""What displays show of the chunks that are not delivered yet: a copy, nothing decides on it."""

from __future__ import annotations

import numpy as np

from voxserve.core.live import LiveChunks, Stage
from voxserve.sched.board import Board
from voxserve.sched.slack import codec_alone_s


def live_chunks(board: Board, now_s: float) -> LiveChunks:
    """The next chunk of every request in a slot that has a listener and more to deliver."""
    table = board.table
    is_shown = (table.request_id >= 0) & ~table.is_over & table.has_listener
    is_shown &= ~table.has_ended | (table.num_ready > table.num_done)
    slots = np.flatnonzero(is_shown)
    is_busy, is_head = table.is_busy[slots], table.is_head[slots]
    alone_s = codec_alone_s(board)
    left = np.maximum(table.border[slots] - table.frames[slots], 0)
    generate_s = left * board.step_s() + alone_s[table.next_frames[slots]]
    decode_s = np.maximum(table.busy_until_s[slots] - now_s, 0.0)
    need_s = np.where(is_head, alone_s[table.head_frames[slots]], generate_s)
    need_s = np.where(is_busy, decode_s, need_s)
    to_deadline_s = table.due_s[slots] - now_s
    would_be = ~table.is_playing[slots] | (to_deadline_s < board.settings.urgency_margin_s)
    stage = np.where(is_busy, Stage.IN_FLIGHT, np.where(is_head, Stage.READY, Stage.GENERATING))
    return LiveChunks(
        time_s=now_s,
        request_id=table.request_id[slots],
        index=table.num_done[slots],
        stage=stage.astype(np.int8),
        is_urgent=np.where(is_busy | is_head, table.is_urgent[slots], would_be),
        slack_s=to_deadline_s - need_s,
    )
