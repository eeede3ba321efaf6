"""Packs trace records into the binary deltas that the timeline in the browser decodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from voxserve.core.chunk import Urgency, UrgencyReason
from voxserve.core.events import (
    ChunkLife,
    HostDelay,
    LaneSpan,
    OverloadChange,
    Record,
    SettingChange,
    Trace,
)
from voxserve.core.jobs import JobKind, LaneName
from voxserve.core.live import LiveChunks, Stage
from voxserve.viz.hosts import WORTH_S

PIECE_ROWS = 200  # 0.2 ms
LANES = (LaneName.LM, LaneName.BACKGROUND, LaneName.URGENT)
KINDS = tuple(JobKind)
URGENCIES = (Urgency.URGENT, Urgency.BACKGROUND)
REASONS = tuple(UrgencyReason)

SPAN_COLUMNS = ("lane", "kind", "batch", "bucket", "sms", "queued_s", "start_s", "end_s")
CHUNK_COLUMNS = (
    "request_id",
    "index",
    "urgency",
    "reason",
    "is_last",
    "num_frames",
    "ready_s",
    "head_s",
    "promoted_s",
    "launched_s",
    "delivered_s",
    "deadline_s",
    "slack_s",
    "audio_s",
    "stall_s",
)
LIVE_COLUMNS = ("request_id", "index", "stage", "is_urgent", "slack_s")
SCHEMA: dict[str, list[str]] = {
    "spans": list(SPAN_COLUMNS),
    "chunks": list(CHUNK_COLUMNS),
    "live": list(LIVE_COLUMNS),
    "lanes": [str(lane) for lane in LANES],
    "kinds": [str(kind) for kind in KINDS],
    "urgencies": [str(urgency) for urgency in URGENCIES],
    "reasons": [str(reason) for reason in REASONS],
}


@dataclass(frozen=True, slots=True)
class ListenerStall:
    """The browser ran dry at `time_s` (engine clock) for `gap_s` while it played `stream`."""

    time_s: float
    gap_s: float
    stream: int = -1


def delta(
    records: Iterable[Record],
    now_s: float,
    heard: Iterable[ListenerStall] = (),
    live: LiveChunks | None = None,
) -> tuple[dict[str, Any], list[bytes]]:
    """Returns a message and its three buffers: float32 [spans | chunks | live, columns].

    Times are sent relative to `t0` near `now_s`: float32 alone would lose milliseconds after
    hours of uptime.
    """
    t0 = float(int(now_s))
    spans: list[tuple[float, ...]] = []
    chunks: list[tuple[float, ...]] = []
    marks: list[dict[str, Any]] = []
    delays: list[tuple[float, float]] = []
    for record in records:
        if isinstance(record, LaneSpan):
            spans.append(_span_row(record, t0))
        elif isinstance(record, ChunkLife):
            chunks.append(_chunk_row(record, t0))
        elif isinstance(record, HostDelay):
            if record.delay_s >= WORTH_S:
                delays.append((record.time_s, record.delay_s))
        elif isinstance(record, SettingChange):
            text = f"{record.name} {record.old} → {record.new}"
            marks.append({"time_s": record.time_s, "text": text})
        elif isinstance(record, OverloadChange):
            text = "overload" if record.active else "overload over"
            marks.append({"time_s": record.time_s, "text": text})
    message: dict[str, Any] = {
        "type": "delta",
        "now": now_s,
        "t0": t0,
        "marks": marks,
        "delays": delays,
        "heard": [asdict(stall) for stall in heard],
    }
    buffers = [_packed(spans, len(SPAN_COLUMNS)), _packed(chunks, len(CHUNK_COLUMNS))]
    return message, [*buffers, b"" if live is None else _packed_live(live, now_s)]


def time_of(record: Record) -> float:
    """When a record was complete: the end of a span, a chunk's delivery, the time of a change."""
    if isinstance(record, LaneSpan):
        return record.end_s
    if isinstance(record, ChunkLife):
        return record.delivered_s or record.launched_s or record.ready_s
    return record.time_s


def recent(trace: Trace, from_s: float) -> list[Record]:
    """The records from a time on, without reading the whole trace for them."""
    count = 4096
    while True:
        records, _ = trace.since(trace.total - count)
        is_all = count >= min(trace.total, trace.capacity)
        if is_all or not records or time_of(records[0]) < from_s:
            return [record for record in records if time_of(record) >= from_s]
        count *= 4


def _packed(rows: list[tuple[float, ...]], width: int) -> bytes:
    """In pieces: one call for a whole window would keep the interpreter from the engine."""
    pieces = [rows[at : at + PIECE_ROWS] for at in range(0, len(rows), PIECE_ROWS)]
    return b"".join(np.asarray(piece, dtype="<f4").reshape(-1, width).tobytes() for piece in pieces)


def _packed_live(live: LiveChunks, now_s: float) -> bytes:
    """A waiting chunk's slack goes on falling after the snapshot; the others' need falls too."""
    age_s = np.where(live.stage == Stage.READY, max(0.0, now_s - live.time_s), 0.0)
    columns = (live.request_id, live.index, live.stage, live.is_urgent, live.slack_s - age_s)
    return np.stack([np.asarray(c, "<f4") for c in columns], axis=1).tobytes()


def _span_row(span: LaneSpan, t0: float) -> tuple[float, ...]:
    return (
        LANES.index(span.lane),
        KINDS.index(span.kind),
        span.batch,
        span.bucket,
        span.sms,
        span.queued_s - t0,
        span.start_s - t0,
        span.end_s - t0,
    )


def _chunk_row(chunk: ChunkLife, t0: float) -> tuple[float, ...]:
    return (
        chunk.request_id,
        chunk.index,
        URGENCIES.index(chunk.urgency),
        REASONS.index(chunk.reason),
        chunk.is_last,
        chunk.num_frames,
        chunk.ready_s - t0,
        chunk.head_s - t0,
        _relative(chunk.promoted_s, t0),
        _relative(chunk.launched_s, t0),
        _relative(chunk.delivered_s, t0),
        _relative(chunk.deadline_s, t0),
        _relative(chunk.slack_s, 0.0),
        chunk.audio_s,
        chunk.stall_s,
    )


def _relative(time_s: float | None, t0: float) -> float:
    return float("nan") if time_s is None else time_s - t0
