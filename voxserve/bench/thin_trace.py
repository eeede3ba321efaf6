"""Makes a trace small enough to keep in the repository: a window from the start of the load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from voxserve.core import trace_file
from voxserve.core.events import ChunkLife, LaneSpan, Record, RequestChange
from voxserve.core.jobs import JobKind
from voxserve.core.request import RequestState
from voxserve.core.trace_file import SavedTrace

_DIGITS = 4  # a tenth of a millisecond
_LENGTHS = frozenset({"slack_s", "audio_s", "stall_s", "correction_s", "delay_s"})
_SHRINK = 0.9


def thinned(records: Sequence[Record], start_s: float, seconds: float) -> tuple[Record, ...]:
    """What happened to the requests of the first seconds of a load, from its idle start.

    Requests that arrive in the window are kept to their end, so that long ones are not missing
    among them; lane spans and the rest are kept inside the window. Times count from the start.
    Rows of decode steps, most of a trace's size, are left out.

    Args:
        records: The trace.
        start_s: When the load started, the trace's clock.
        seconds: Length of the window.
    """
    end_s = start_s + seconds
    kept_ids = {
        record.request_id
        for record in records
        if isinstance(record, RequestChange)
        and record.state in (RequestState.WAITING, RequestState.REJECTED)
        and start_s <= record.time_s < end_s
    }
    kept: list[Record] = []
    for record in records:
        if isinstance(record, ChunkLife | RequestChange):
            is_kept = record.request_id in kept_ids
        elif isinstance(record, LaneSpan):
            is_kept = start_s <= record.start_s < end_s
        else:
            is_kept = start_s <= record.time_s < end_s
        if is_kept:
            kept.append(_shifted(_without_rows(record), start_s))
    return tuple(kept)


def save_below(trace: SavedTrace, path: Path, most_bytes: int) -> float:
    """Writes a thinned trace, its window shortened until the file is small enough.

    Returns:
        Seconds of the window.
    """
    seconds = float(trace.about["window_s"])
    while True:
        records = thinned(trace.records, 0.0, seconds)
        about = trace.about | {"window_s": round(seconds, 2)}
        trace_file.save(replace(trace, records=records, about=about), path)
        if path.stat().st_size <= most_bytes:
            return seconds
        seconds *= _SHRINK


def _without_rows(record: Record) -> Record:
    is_step = isinstance(record, LaneSpan) and record.kind is JobKind.DECODE
    return replace(record, rows=()) if is_step else record


def _shifted(record: Record, start_s: float) -> Record:
    changes: dict[str, Any] = {}
    for name, is_time in _float_fields(type(record)):
        value = getattr(record, name)
        if value is not None:
            changes[name] = round(value - start_s if is_time else value, _DIGITS)
    return replace(record, **changes)


@cache
def _float_fields(kind: type[Record]) -> tuple[tuple[str, bool], ...]:
    """Names of fields in seconds, and whether each is a time rather than a length."""
    names = [item.name for item in fields(kind) if item.name.endswith("_s")]
    return tuple((name, name not in _LENGTHS) for name in names)
