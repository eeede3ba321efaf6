"""What a server's trace says about a run: lanes, urgent chunks, the codec's backlog, the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from voxserve.core.chunk import Urgency
from voxserve.core.events import ChunkLife, HostDelay, LaneSpan, Record
from voxserve.core.jobs import JobKind

LANES = ("prefill", "decode", "background", "urgent")
_GRID_S = 0.25
FloatArray = NDArray[np.float64]


def observed_figures(
    records: Sequence[Record], turns: FloatArray, start_s: float, seconds: float
) -> dict[str, float]:
    """Figures of one run's arrival window; empty without a trace.

    Args:
        records: The server's trace of the run.
        turns: [turns, 2], seconds the serving thread acted and requests active.
        start_s: Start of the window, the trace's clock.
        seconds: Its length.

    Returns:
        By name: `NAME_busy` (share of the window), `NAME_batch` (mean rows) for each lane,
        `urgent_later_share` (continuation chunks that were urgent), `backlog_mean` and
        `backlog_slope` (ready chunks that wait, and their growth per second over the window's
        second half), `host_delay_max_ms`, `turn_p50_ms`, `turn_p99_ms`, `busiest_turn_p50_ms`
        and `busiest_turn_p99_ms` (turns with at least half of the most active requests).
    """
    if not records:
        return {}
    spans = [record for record in records if isinstance(record, LaneSpan)]
    chunks = [record for record in records if isinstance(record, ChunkLife)]
    delays = [record.delay_s for record in records if isinstance(record, HostDelay)]
    return {
        **_lanes(spans, start_s, start_s + seconds),
        "urgent_later_share": _urgent_later_share(chunks),
        **_backlog(chunks, start_s, seconds),
        "host_delay_max_ms": max(delays, default=0.0) * 1e3,
        **_turns(turns),
    }


def window(records: Sequence[Record], start_s: float, end_s: float) -> tuple[Record, ...]:
    """Records of what ended, was delivered or happened inside a window; for small trace files."""
    return tuple(record for record in records if start_s <= _time_s(record) <= end_s)


def _time_s(record: Record) -> float:
    if isinstance(record, LaneSpan):
        return record.end_s
    if isinstance(record, ChunkLife):
        return record.ready_s if record.delivered_s is None else record.delivered_s
    return record.time_s


def _lanes(spans: Sequence[LaneSpan], start_s: float, end_s: float) -> dict[str, float]:
    figures: dict[str, float] = {}
    for name in LANES:
        own = [span for span in spans if _name(span) == name]
        busy_s = sum(max(0.0, min(span.end_s, end_s) - max(span.start_s, start_s)) for span in own)
        figures[f"{name}_busy"] = busy_s / (end_s - start_s)
        figures[f"{name}_batch"] = sum(span.batch for span in own) / max(1, len(own))
    return figures


def _name(span: LaneSpan) -> str:
    return span.lane.value if span.kind is JobKind.CODEC else span.kind.value


def _urgent_later_share(chunks: Sequence[ChunkLife]) -> float:
    later = [chunk for chunk in chunks if chunk.index > 0 and chunk.delivered_s is not None]
    urgent = sum(chunk.urgency is Urgency.URGENT for chunk in later)
    return urgent / max(1, len(later))


def _backlog(chunks: Sequence[ChunkLife], start_s: float, seconds: float) -> dict[str, float]:
    """Ready chunks not yet delivered, over time: how many, and whether they grow in number."""
    delivered = [chunk for chunk in chunks if chunk.delivered_s is not None]
    ready_s = np.sort([chunk.ready_s for chunk in delivered])
    gone_s = np.sort([cast(float, chunk.delivered_s) for chunk in delivered])
    grid_s = start_s + np.arange(0.0, seconds, _GRID_S)
    waiting = np.searchsorted(ready_s, grid_s) - np.searchsorted(gone_s, grid_s)
    later = grid_s >= start_s + seconds / 2
    slope = 0.0
    if np.count_nonzero(later) >= 2:
        slope = float(np.polyfit(grid_s[later] - start_s, waiting[later], 1)[0])
    return {"backlog_mean": float(waiting.mean()), "backlog_slope": slope}


def _turns(turns: FloatArray) -> dict[str, float]:
    if not len(turns):
        return {}
    times_ms, active = turns[:, 0] * 1e3, turns[:, 1]
    busiest = times_ms[active >= active.max() / 2]
    return {
        "turn_p50_ms": float(np.percentile(times_ms, 50)),
        "turn_p99_ms": float(np.percentile(times_ms, 99)),
        "busiest_turn_p50_ms": float(np.percentile(busiest, 50)),
        "busiest_turn_p99_ms": float(np.percentile(busiest, 99)),
        "most_active": float(active.max()),
    }
