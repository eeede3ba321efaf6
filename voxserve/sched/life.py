"""A request's life: arrival, change of state, end, and when its slot and pages come back."""

from __future__ import annotations

from voxserve.core.events import RequestChange
from voxserve.core.jobs import RequestEnded, SlotReleased
from voxserve.core.request import FinishReason, RequestSpec, RequestState
from voxserve.sched.admission import pages_needed
from voxserve.sched.board import Board
from voxserve.sched.state import ActiveRequest


def arrive(board: Board, now_s: float, spec: RequestSpec, refusal: str = "") -> None:
    """Queues a request; refuses one that no pool could ever hold, or for the reason given."""
    assert spec.request_id not in board.requests, f"request id {spec.request_id} used twice"
    request = ActiveRequest(spec)
    if not spec.text_complete:
        request.text_frames = 1
    board.requests[spec.request_id] = request
    refusal = _refusal(board, request) or refusal
    if refusal:
        end(board, now_s, request, RequestState.REJECTED, refusal)
        return
    _record(board, now_s, request, "")
    board.waiting.append(request)


def change_state(board: Board, request: ActiveRequest, state: RequestState, now_s: float) -> None:
    """Moves a request to a state that is not an end."""
    if request.state is not state:
        request.state = state
        _record(board, now_s, request, "")


def end(
    board: Board, now_s: float, request: ActiveRequest, state: RequestState, error: str = ""
) -> None:
    """Ends a request for its user at once; what jobs still use comes back when they end."""
    del board.requests[request.request_id]
    request.state = state
    if state is not RequestState.DONE:
        request.reason = None
    slot, table = request.slot, board.table
    num_frames = int(table.frames[slot]) if slot >= 0 else 0
    if request.reason is not None and not table.is_playing[slot]:
        request.reason = FinishReason.NO_AUDIO
    _record(board, now_s, request, error, num_frames)
    board.notices.append(
        RequestEnded(request.request_id, state, request.reason, error or None, num_frames)
    )
    if slot < 0:
        if state is not RequestState.REJECTED:
            board.waiting.remove(request)
        return
    if table.is_pending[slot] and request in board.continuing:
        board.continuing.remove(request)
    stop_generating(board, request)
    table.is_head[slot] = False
    table.is_over[slot] = True
    release(board, now_s, request)


def stop_generating(board: Board, request: ActiveRequest) -> None:
    """No step is launched for it again; rows already launched are discarded."""
    table, slot = board.table, request.slot
    table.has_ended[slot] = True
    table.is_active[slot] = table.is_pending[slot] = table.is_starved[slot] = False
    table.discard_launched(slot)


def release(board: Board, now_s: float, request: ActiveRequest) -> None:
    """Returns what no job uses any more: pages after the last step, then the slot."""
    table, slot = board.table, request.slot
    if table.launched[slot] > 0 or not table.has_ended[slot]:
        return
    board.pages.give_back(request.kv_pages)
    request.kv_pages = ()
    if request.state.is_final and not table.is_busy[slot]:
        table.close(slot)
        board.notices.append(SlotReleased(slot, request.request_id))
        board.released_s.append(now_s)


def _refusal(board: Board, request: ActiveRequest) -> str:
    """Why a request can never be served, with the limit it hits; "" if it can."""
    prepared, spec = board.prepared, request.spec
    longest = max(spec.prompt_tokens)
    room = min(prepared.prefill_buckets[-1], prepared.max_context_tokens - 1)
    if longest > room:
        return f"a prompt of {longest} tokens is over the limit of {room}; shorten the text"
    if spec.max_frames > prepared.max_request_frames:
        return (
            f"{spec.max_frames} frames may be needed and a request may have "
            f"{prepared.max_request_frames}; shorten the text or lower max_frames"
        )
    pages = pages_needed(board, request)
    if pages > prepared.num_kv_pages:
        return (
            f"{pages} KV pages may be needed and there are {prepared.num_kv_pages}; "
            "shorten the text or lower max_frames"
        )
    return ""


def _record(
    board: Board, now_s: float, request: ActiveRequest, detail: str, num_frames: int = 0
) -> None:
    if board.record is not None:
        board.record(
            RequestChange(
                request.request_id, request.state, now_s, request.reason, detail, num_frames
            )
        )
