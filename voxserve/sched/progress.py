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
    assert entry.is_row is not None, f"job {event.job_id} is not a step"
    is_row = board.table.widened(entry.is_row)
    board.table.launched -= is_row
    is_plain = board.table.num_discard == 0 and not event.failed and not np.count_nonzero(status)
    if is_plain and entry.job.kind is JobKind.DECODE:  # nearly every step
        _frames_made(board, now_s, is_row)
        return
    is_live = _live_rows(board, slots)
    for row, message in event.failed.items():
        if is_live[row]:
            is_live[row] = False
            _fail(board, now_s, int(slots[row]), message)
    if entry.job.kind is JobKind.PREFILL:
        _start_running(board, now_s, slots[is_live])
    made = np.zeros_like(board.table.launched)
    made[slots[is_live & (status == RowStatus.CONTINUE)]] = 1
    _frames_made(board, now_s, made)
    for row in np.flatnonzero(is_live & (status != RowStatus.CONTINUE)).tolist():
        _sequence_ended(board, now_s, int(slots[row]), RowStatus(int(status[row])))
    _let_go(board, now_s, slots[~is_live])


def step_failed(board: Board, now_s: float, entry: InFlight, message: str) -> None:
    """A whole prefill or decode job failed: so do its requests, and only they."""
    assert entry.is_row is not None, f"job {entry.job.job_id} is not a step"
    board.table.launched -= board.table.widened(entry.is_row)
    is_live = _live_rows(board, entry.slots)
    live: list[int] = entry.slots[is_live].tolist()
    for slot in live:
        _fail(board, now_s, slot, message)
    _let_go(board, now_s, entry.slots[~is_live])


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


def _live_rows(board: Board, slots: IntArray) -> BoolArray:
    """[rows] bool: False for rows of sequences that have ended, which are now discarded."""
    table = board.table
    is_live = table.discard[slots] == 0
    dead = slots[~is_live]
    table.discard[dead] -= 1
    table.num_discard -= len(dead)
    return is_live


def _let_go(board: Board, now_s: float, slots: IntArray) -> None:
    slot_list: list[int] = slots.tolist()
    for slot in slot_list:
        owner = board.table.owner[slot]
        if owner is not None:
            release(board, now_s, owner)


def _start_running(board: Board, now_s: float, slots: IntArray) -> None:
    slot_list: list[int] = slots.tolist()
    for slot in slot_list:
        owner = board.table.owner[slot]
        assert owner is not None, f"slot {slot} was prefilled without an owner"
        change_state(board, owner, RequestState.RUNNING, now_s)


def _frames_made(board: Board, now_s: float, made: IntArray) -> None:
    """`made` is 1 for each slot that made a frame, else 0."""
    table = board.table
    table.frames += made
    hit = np.logical_and(table.frames >= table.check_at, made).nonzero()[0]
    if len(hit) == 0:
        return
    frames = table.frames[hit]
    is_chunk, is_limit = frames >= table.border[hit], frames >= table.limit[hit]
    chunks_ready(board, now_s, hit[is_chunk])
    if np.count_nonzero(is_limit):
        slot_list: list[int] = hit[is_limit].tolist()
        for slot in slot_list:
            _limit_reached(board, now_s, slot)


def _limit_reached(board: Board, now_s: float, slot: int) -> None:
    owner = board.table.owner[slot]
    assert owner is not None, f"slot {slot} made a frame without an owner"
    if board.table.frames[slot] >= owner.frame_limit:
        stream_ended(board, now_s, owner, FinishReason.LENGTH)
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
        table.discard_launched(slot)
        board.continuing.append(owner)
        return
    stream_ended(board, now_s, owner, _REASONS[status])


def stream_ended(board: Board, now_s: float, request: ActiveRequest, reason: FinishReason) -> None:
    """All frames exist: the rest becomes ready, and the request drains or is done."""
    table, slot = board.table, request.slot
    request.reason = reason
    stop_generating(board, request)
    complete_stream(board, now_s, request)
    if table.num_done[slot] == table.num_ready[slot]:
        end(board, now_s, request, RequestState.DONE)
        return
    change_state(board, request, RequestState.DRAINING, now_s)
    release(board, now_s, request)


def _fail(board: Board, now_s: float, slot: int, message: str) -> None:
    owner = board.table.owner[slot]
    assert owner is not None, f"slot {slot} failed without an owner"
    end(board, now_s, owner, RequestState.FAILED, message)
