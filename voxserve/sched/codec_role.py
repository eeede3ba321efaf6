"""Role CODEC: streams whose codes are made on another device get a slot and become ready here."""

from __future__ import annotations

import numpy as np

from voxserve.core.jobs import CodesArrived
from voxserve.core.request import RequestState
from voxserve.sched.board import Board
from voxserve.sched.life import change_state
from voxserve.sched.progress import stream_ended
from voxserve.sched.readiness import chunks_ready
from voxserve.sched.state import NEVER, ActiveRequest


def open_streams(board: Board, now_s: float) -> None:
    """Gives waiting requests slots, oldest first; no prefill is needed."""
    table = board.table
    while board.waiting and table.free and table.num_held < board.settings.max_running:
        request = board.waiting.popleft()
        table.open(request, now_s, board.lookahead_frames)
        table.limit[request.slot] = NEVER
        table.check_at[request.slot] = table.border[request.slot]
        table.is_active[request.slot] = True  # the other device goes on generating
        change_state(board, request, RequestState.RUNNING, now_s)
        if request.early_codes is not None:
            _take(board, now_s, request, request.early_codes)


def codes_arrived(board: Board, now_s: float, event: CodesArrived) -> None:
    """More frames are here; ignored for requests that have ended."""
    request = board.requests.get(event.request_id)
    if request is None:
        return
    if request.slot < 0:
        request.early_codes = event
    elif not board.table.has_ended[request.slot]:
        _take(board, now_s, request, event)


def _take(board: Board, now_s: float, request: ActiveRequest, event: CodesArrived) -> None:
    table, slot = board.table, request.slot
    table.frames[slot] = max(int(table.frames[slot]), event.num_frames)
    while table.frames[slot] >= table.border[slot]:
        chunks_ready(board, now_s, np.array([slot]))
    if event.reason is not None:
        stream_ended(board, now_s, request, event.reason)
