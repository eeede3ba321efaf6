"""Books ended prefills and decode steps: frames made, chunks ready, pieces and streams ended."""

from __future__ import annotations

import numpy as np

from voxserve.core.jobs import JobKind, RowStatus, StepDone
from voxserve.core.playback import BoolArray
from voxserve.core.request import FinishReason, RequestState
from voxserve.sched.board import Board, InFlight
from voxserve.sched.life import change_state, end, release, stop_generating
from voxserve.sched.readiness import chunks_ready, complete_stream
from voxserve.sched.state import NEVER, ActiveRequest, IntArray

_REASONS = {
    RowStatus.END: FinishReason.END,
    RowStatus.WATCHDOG: FinishReason.WATCHDOG,
}


def step_done(board: Board, now_s: float, event: StepDone) -> None:
    """Takes the flags of a step's rows; rows of sequences that ended before are discarded."""
    entry = board.finish(event.job_id, event.start_s, event.end_s, failed=False)
    slots, status = entry.slots, event.status
    assert len(status) == len(slots), f"job {event.job_id}: {len(status)} flags, {len(slots)} rows"
    is_live = _take_back(board, slots)
    for row, message in event.failed.items():
        if is_live[row]:
            is_live[row] = False
            _fail(board, now_s, int(slots[row]), message)
    if entry.job.kind is JobKind.PREFILL:
        _start_running(board, now_s, slots[is_live])
    _frames_made(board, now_s, slots[is_live & (status == RowStatus.CONTINUE)])
    for row in np.flatnonzero(is_live & (status != RowStatus.CONTINUE)).tolist():
        _sequence_ended(board, now_s, int(slots[row]), RowStatus(int(status[row])))
    slot_list: list[int] = slots[~is_live].tolist()
    for slot in slot_list:
        owner = board.table.owner[slot]
        if owner is not None:
            release(board, owner)


def step_failed(board: Board, now_s: float, entry: InFlight, message: str) -> None:
    """A whole prefill or decode job failed: so do its requests, and only they."""
    is_live = _take_back(board, entry.slots)
    slot_list: list[int] = entry.slots.tolist()
    for row, slot in enumerate(slot_list):
        owner = board.table.owner[slot]
        if is_live[row]:
            _fail(board, now_s, slot, message)
        elif owner is not None:
            release(board, owner)


def text_arrived(board: Board, now_s: float, request_id: int, num: int, is_all: bool) -> None:
    """More streamed text: the request may go on for as many frames, or to its end."""
    request = board.requests.get(request_id)
    if request is None:
        return
    request.text_frames = NEVER if is_all else request.text_frames + num
    if request.slot < 0 or board.table.has_ended[request.slot]:
        return
    table, slot = board.table, request.slot
    table.limit[slot] = min(request.frame_limit, request.text_frames)
    table.check_at[slot] = min(table.border[slot], table.limit[slot])
    if table.is_starved[slot] and table.frames[slot] < table.limit[slot]:
        table.is_starved[slot] = False
        change_state(board, request, RequestState.RUNNING, now_s)


def _take_back(board: Board, slots: IntArray) -> BoolArray:
    """Rows return from the device; [rows] bool, False for the ones to discard."""
    table = board.table
    table.launched[slots] -= 1
    is_live = table.discard[slots] == 0
    if not is_live.all():
        table.discard[slots[~is_live]] -= 1
    return is_live


def _start_running(board: Board, now_s: float, slots: IntArray) -> None:
    slot_list: list[int] = slots.tolist()
    for slot in slot_list:
        owner = board.table.owner[slot]
        assert owner is not None, f"slot {slot} was prefilled without an owner"
        change_state(board, owner, RequestState.RUNNING, now_s)


def _frames_made(board: Board, now_s: float, slots: IntArray) -> None:
    table = board.table
    frames = table.frames[slots] + 1
    table.frames[slots] = frames
    hit = slots[frames >= table.check_at[slots]]
    if len(hit) == 0:
        return
    chunks = hit[table.frames[hit] >= table.border[hit]]
    if len(chunks):
        chunks_ready(board, now_s, chunks)
    for slot in hit[table.frames[hit] >= table.limit[hit]].tolist():
        _limit_reached(board, now_s, slot)


def _limit_reached(board: Board, now_s: float, slot: int) -> None:
    owner = board.table.owner[slot]
    assert owner is not None, f"slot {slot} made a frame without an owner"
    if board.table.frames[slot] >= owner.frame_limit:
        _stream_ended(board, now_s, owner, FinishReason.LENGTH)
    else:
        board.table.is_starved[slot] = True
        change_state(board, owner, RequestState.STARVED, now_s)


def _sequence_ended(board: Board, now_s: float, slot: int, status: RowStatus) -> None:
    """The end token: the next piece is prefilled, or the stream of frames is complete."""
    table, owner = board.table, board.table.owner[slot]
    assert owner is not None, f"slot {slot} ended without an owner"
    if status is RowStatus.END and owner.piece + 1 < len(owner.spec.prompt_tokens):
        owner.piece += 1
        table.is_active[slot] = False
        table.is_pending[slot] = True
        table.discard[slot] = table.launched[slot]
        board.continuing.append(owner)
        return
    _stream_ended(board, now_s, owner, _REASONS[status])


def _stream_ended(board: Board, now_s: float, request: ActiveRequest, reason: FinishReason) -> None:
    table, slot = board.table, request.slot
    request.reason = reason
    stop_generating(board, request)
    complete_stream(board, now_s, request)
    if table.num_done[slot] == table.num_ready[slot]:
        end(board, now_s, request, RequestState.DONE)
        return
    change_state(board, request, RequestState.DRAINING, now_s)
    release(board, request)


def _fail(board: Board, now_s: float, slot: int, message: str) -> None:
    owner = board.table.owner[slot]
    assert owner is not None, f"slot {slot} failed without an owner"
    end(board, now_s, owner, RequestState.FAILED, message)
