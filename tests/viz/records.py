"""Trace records with everything but what a test is about filled in."""

from __future__ import annotations

from voxserve.core.chunk import Urgency, UrgencyReason
from voxserve.core.events import ChunkLife, LaneSpan, RequestChange, SettingChange
from voxserve.core.jobs import JobKind, LaneName
from voxserve.core.request import RequestState


def span(
    lane: LaneName,
    kind: JobKind,
    start_s: float,
    end_s: float,
    *,
    batch: int = 1,
    job_id: int = 0,
    rows: tuple[int, ...] = (),
) -> LaneSpan:
    """A lane span without queueing."""
    return LaneSpan(lane, kind, job_id, batch, batch, 1, start_s, start_s, end_s, rows)


def chunk(
    request_id: int,
    index: int,
    *,
    delivered_s: float | None,
    deadline_s: float | None,
    stall_s: float = 0.0,
    ready_s: float | None = None,
    launched_s: float | None = None,
    urgency: Urgency = Urgency.BACKGROUND,
    audio_s: float = 0.8,
    job_id: int = 0,
) -> ChunkLife:
    """A chunk's life; ready 30 ms and launched 20 ms before delivery unless told."""
    end_s = delivered_s or 0.0
    ready_s = end_s - 0.03 if ready_s is None else ready_s
    launched_s = end_s - 0.02 if launched_s is None else launched_s
    reason = UrgencyReason.FIRST if index == 0 else UrgencyReason.SLACK
    lane = LaneName.URGENT if urgency is Urgency.URGENT else LaneName.BACKGROUND
    slack_s = None if deadline_s is None else deadline_s - launched_s - 0.02
    return ChunkLife(
        request_id, index, 10 * index, 10, False, ready_s, ready_s, urgency, reason, None,
        slack_s, launched_s if delivered_s is not None else None, lane, job_id, delivered_s,
        deadline_s, audio_s, stall_s,
    )  # fmt: skip


def state(request_id: int, name: RequestState, time_s: float) -> RequestChange:
    """A request enters a state."""
    return RequestChange(request_id, name, time_s)


def change(time_s: float, name: str, old: str, new: str) -> SettingChange:
    """A setting took effect."""
    return SettingChange(time_s, name, old, new)
