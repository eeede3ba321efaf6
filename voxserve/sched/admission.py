"""Prefill admission: which waiting prompts may start now, and which wait for others' slack."""

from __future__ import annotations

from itertools import islice

from voxserve.core.events import AdmissionNote
from voxserve.sched.board import Board
from voxserve.sched.pages import pages_for
from voxserve.sched.policy import TIMER_TOLERANCE_S
from voxserve.sched.slack import smallest_slack_s
from voxserve.sched.state import ActiveRequest


def admit(board: Board, now_s: float) -> list[ActiveRequest]:
    """Prompts to prefill now, oldest first; [] when none fits or all are deferred.

    `prefill_first` admits every prompt that fits. `deadline_aware` admits those whose prefill
    takes no longer than the smallest slack of the running requests; once the oldest has been
    deferred for `max_prefill_defer_s`, every prompt that fits.
    """
    fitting = _fitting(board)
    if not fitting or board.admission == "prefill_first":
        return fitting
    slack_s = smallest_slack_s(board, now_s)
    in_time = _in_time(board, fitting, slack_s)
    if in_time:
        return in_time
    oldest = fitting[0]
    if oldest.deferred_since_s is None:
        oldest.deferred_since_s = now_s
        _note(board, now_s, oldest, False, f"smallest slack {slack_s * 1e3:.1f} ms")
    limit_s = oldest.deferred_since_s + board.settings.max_prefill_defer_s
    if now_s >= limit_s - TIMER_TOLERANCE_S:
        _note(board, now_s, oldest, True, "deferral limit")
        return fitting
    board.wake_at(limit_s)
    return []


def pages_needed(board: Board, request: ActiveRequest) -> int:
    """KV pages for the longest piece in the worst case (0: slots carry their own KV)."""
    if board.prepared.num_kv_pages == 0:
        return 0
    spec = request.spec
    tokens = min(max(spec.prompt_tokens) + spec.max_frames, board.prepared.max_context_tokens)
    return pages_for(tokens, board.prepared.kv_page_tokens)


def _fitting(board: Board) -> list[ActiveRequest]:
    """The oldest prompts that fit slots, pages and the largest prefill bucket together."""
    table = board.table
    slots = min(len(table.free), board.settings.max_running - table.num_held)
    starting = board.policy.max_starting()
    if starting is not None:
        slots = min(slots, starting - int(((table.request_id >= 0) & ~table.is_playing).sum()))
    pages = board.pages.num_free
    tokens = board.prepared.prefill_buckets[-1]
    fitting: list[ActiveRequest] = []
    for request in islice(board.waiting, max(slots, 0)):
        pages -= pages_needed(board, request)
        tokens -= request.prompt_tokens
        if pages < 0 or tokens < 0:
            break
        fitting.append(request)
    return fitting


def _in_time(board: Board, fitting: list[ActiveRequest], slack_s: float) -> list[ActiveRequest]:
    """The longest run of oldest prompts whose prefill the running requests can bear."""
    tokens = 0
    for count, request in enumerate(fitting):
        tokens += request.prompt_tokens
        if board.estimates.prefill_s(tokens, count + 1, board.lm_split) > slack_s:
            return fitting[:count]
    return fitting


def _note(board: Board, now_s: float, request: ActiveRequest, is_admitted: bool, why: str) -> None:
    if board.record is not None:
        board.record(AdmissionNote(now_s, request.request_id, is_admitted, why))
