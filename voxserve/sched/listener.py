"""Corrects a request's deadlines by what its real player reports, gently.

The modelled player starts when the engine delivers; a real one starts later and may drift. Its
reports move the deadlines that scheduling uses, never those of SLO accounting: smoothed, by at
most 10 ms per second, never earlier than the urgency margin and never later than half a second.
A chunk that has been dispatched keeps the deadline it was dispatched with.
"""

from __future__ import annotations

import math

from voxserve.core.jobs import ListenerReport
from voxserve.sched.board import Board

SLEW_S_PER_S = 0.010
LATEST_S = 0.5
_SMOOTHING = 0.25  # weight of a new report


def listener_report(board: Board, now_s: float, report: ListenerReport) -> None:
    """Takes a player's report; ignored before the first audio and for unknown requests."""
    request = board.requests.get(report.request_id)
    if request is None or request.slot < 0 or not math.isfinite(report.buffered_s):
        return
    table, slot = board.table, request.slot
    if not table.is_playing[slot] or not table.has_listener[slot]:
        return
    deadline_s = float(table.deadline_s[slot])
    buffered_s = max(0.0, report.buffered_s)
    if buffered_s == 0.0 and now_s >= deadline_s:
        return  # both have run out: an empty player does not say since when
    error_s = now_s + buffered_s - deadline_s
    if request.reported_s is None:
        request.reported_s, request.report_error_s = now_s, error_s
        return
    request.report_error_s += _SMOOTHING * (error_s - request.report_error_s)
    wanted_s = min(max(request.report_error_s, -board.settings.urgency_margin_s), LATEST_S)
    most_s = SLEW_S_PER_S * (now_s - request.reported_s)
    correction_s = float(table.due_s[slot]) - deadline_s
    correction_s += min(max(wanted_s - correction_s, -most_s), most_s)
    table.due_s[slot] = deadline_s + correction_s
    table.has_reports = True
    request.reported_s = now_s
