"""What a server's trace says about a run: lanes, urgent chunks, the codec's backlog, the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from voxserve.core.chunk import Urgency
from voxserve.core.events import ChunkLife, HostDelay, LaneSpan, Record, RequestChange
from voxserve.core.jobs import JobKind
from voxserve.core.request import RequestState

LANES = ("prefill", "decode", "background", "urgent")
_GRID_S = 0.25
# Turns with about as many active requests as the host's promise is about.
HOST_REQUESTS, _NEAR = 256, 0.15
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
        second half), `lag_mean_s` and `lag_growth` (audio asked for and not yet delivered, and its
        growth over the window's second half as a share of what is asked for),
        `host_delay_max_ms`, `turn_p50_ms`, `turn_p99_ms`, `busiest_turn_p50_ms` and
        `busiest_turn_p99_ms` (turns with at least half of the most active requests),
        `turns_at_256`, `turn_at_256_p50_ms` and `turn_at_256_p99_ms` (with 256 +- 15 %).
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
        **_lag(records, chunks, start_s, seconds),
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
    return {
        "backlog_mean": float(waiting.mean()),
        "backlog_slope": _late_slope(waiting, start_s, grid_s),
    }


def _lag(
    records: Sequence[Record], chunks: Sequence[ChunkLife], start_s: float, seconds: float
) -> dict[str, float]:
    """Audio that was asked for and not delivered yet, over time.

    It grows for as long as the server is too slow, long before buffered audio has run out and the
    first listener hears it.
    """
    audio_s: dict[int, float] = {}
    delivered: list[tuple[float, float]] = []
    for chunk in chunks:
        if chunk.delivered_s is not None:
            delivered.append((chunk.delivered_s, chunk.audio_s))
            audio_s[chunk.request_id] = audio_s.get(chunk.request_id, 0.0) + chunk.audio_s
    asked = [
        (record.time_s, audio_s[record.request_id])
        for record in records
        if isinstance(record, RequestChange)
        and record.state is RequestState.WAITING
        and record.request_id in audio_s
    ]
    grid_s = start_s + np.arange(0.0, seconds, _GRID_S)
    asked_s = _summed(asked, grid_s)
    lag_s = asked_s - _summed(delivered, grid_s)
    rate = asked_s[-1] / seconds if len(asked_s) else 0.0
    growth = _late_slope(lag_s, start_s, grid_s) / rate if rate else 0.0
    return {"lag_mean_s": float(lag_s.mean()), "lag_growth": growth}


def _summed(pairs: Sequence[tuple[float, float]], grid_s: FloatArray) -> FloatArray:
    """Sum of the (time, amount) pairs up to each grid time."""
    ordered = np.array(sorted(pairs)).reshape(-1, 2)
    total = np.concatenate([[0.0], np.cumsum(ordered[:, 1])])
    return total[np.searchsorted(ordered[:, 0], grid_s, side="right")]


def _late_slope(values: NDArray[np.generic], start_s: float, grid_s: FloatArray) -> float:
    """Growth per second over the second half of the grid."""
    half = len(grid_s) // 2
    if len(grid_s) - half < 2:
        return 0.0
    return float(np.polyfit(grid_s[half:] - start_s, values[half:].astype(np.float64), 1)[0])


def _turns(turns: FloatArray) -> dict[str, float]:
    if not len(turns):
        return {}
    times_ms, active = turns[:, 0] * 1e3, turns[:, 1]
    busiest = times_ms[active >= active.max() / 2]
    near = times_ms[np.abs(active - HOST_REQUESTS) <= _NEAR * HOST_REQUESTS]
    return {
        "turn_p50_ms": float(np.percentile(times_ms, 50)),
        "turn_p99_ms": float(np.percentile(times_ms, 99)),
        "busiest_turn_p50_ms": float(np.percentile(busiest, 50)),
        "busiest_turn_p99_ms": float(np.percentile(busiest, 99)),
        "most_active": float(active.max()),
        f"turns_at_{HOST_REQUESTS}": float(len(near)),
        **_at_host_requests(near),
    }


def _at_host_requests(times_ms: FloatArray) -> dict[str, float]:
    if not len(times_ms):
        return {}
    p50, p99 = np.percentile(times_ms, (50, 99))
    name = f"turn_at_{HOST_REQUESTS}"
    return {f"{name}_p50_ms": float(p50), f"{name}_p99_ms": float(p99)}
