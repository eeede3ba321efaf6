"""Writes what happened to files: trace, Perfetto JSON, CSV, HTML figure, PNG."""

# pyright: reportUnknownMemberType=false
# (plotly's types are incomplete)

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from voxserve.core import trace_file
from voxserve.core.errors import InvalidInput
from voxserve.core.events import ChunkLife, LaneSpan, Record, SettingChange
from voxserve.core.jobs import LaneName
from voxserve.core.protocols import SpeechEngine
from voxserve.viz.figures import timeline_figure
from voxserve.viz.picture import picture
from voxserve.viz.wire import recent

MICROSECONDS = 1e6
_TRACKS = {LaneName.LM: 1, LaneName.BACKGROUND: 2, LaneName.URGENT: 3}
_CHUNK_TRACK = 4
BEFORE_S = 10.0  # of the trace before a picture, for requests that began earlier


def save(engine: SpeechEngine, path: str | Path) -> Path:
    """Writes the engine's trace; the name's ending chooses the format.

    Args:
        engine: Whose trace.
        path: `.trace.gz` (can be replayed), `.json` (for ui.perfetto.dev), `.csv` (one row per
            chunk), `.html` (the figure, zoomable without a kernel) or `.png` (a picture of it).

    Raises:
        InvalidInput: Another ending.
    """
    path = Path(path)
    for ending, write in _WRITERS.items():
        if path.name.endswith(ending):
            write(engine, path)
            return path
    raise InvalidInput(f"{path.name}: the name must end in {', '.join(_WRITERS)}")


def perfetto(records: Iterable[Record]) -> dict[str, Any]:
    """Trace Event JSON: one track per lane, one for chunks, instants for setting changes."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "tid": tid, "name": "thread_name", "args": {"name": f"{lane} lane"}}
        for lane, tid in _TRACKS.items()
    ]
    chunks = {"name": "chunks: ready to delivered"}
    events.append({"ph": "M", "pid": 1, "tid": _CHUNK_TRACK, "name": "thread_name", "args": chunks})
    for record in records:
        if isinstance(record, LaneSpan):
            events.append(_span_event(record))
        elif isinstance(record, ChunkLife) and record.delivered_s is not None:
            events += _chunk_events(record, record.delivered_s)
        elif isinstance(record, SettingChange):
            text = f"{record.name}: {record.old} to {record.new}"
            at_us = record.time_s * MICROSECONDS
            events.append({"ph": "i", "s": "g", "pid": 1, "tid": 1, "ts": at_us, "name": text})
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _span_event(span: LaneSpan) -> dict[str, Any]:
    return {
        "ph": "X",
        "pid": 1,
        "tid": _TRACKS[span.lane],
        "name": f"{span.kind} x{span.batch}",
        "ts": span.start_s * MICROSECONDS,
        "dur": (span.end_s - span.start_s) * MICROSECONDS,
        "args": {"bucket": span.bucket, "sms": span.sms, "queued_s": span.queued_s},
    }


def _chunk_events(chunk: ChunkLife, delivered_s: float) -> list[dict[str, Any]]:
    """Chunks overlap, so they are asynchronous slices, one row per request."""
    name = f"request {chunk.request_id}, chunk {chunk.index}"
    both = {"cat": "chunk", "id": chunk.request_id, "pid": 1, "tid": _CHUNK_TRACK, "name": name}
    about = {"urgency": chunk.urgency, "reason": chunk.reason, "stall_s": chunk.stall_s}
    about |= {"deadline_s": chunk.deadline_s, "slack_s": chunk.slack_s}
    begin = {"ph": "b", "ts": chunk.ready_s * MICROSECONDS, "args": about}
    return [both | begin, both | {"ph": "e", "ts": delivered_s * MICROSECONDS}]


def png(engine: SpeechEngine, window_s: float = 8.0, *, is_dark: bool = False) -> bytes:
    """The last seconds as a PNG, drawn without a browser."""
    now_s, settings = engine.now_s(), engine.settings
    return picture(
        recent(engine.trace, now_s - window_s - BEFORE_S),
        end_s=now_s,
        window_s=window_s,
        margin_s=settings.urgency_margin_s,
        ttfa_target_s=settings.ttfa_target_s,
        title=f"voxserve · {engine.model_name} on {engine.device_name}",
        is_dark=is_dark,
    )


def saved_trace(engine: SpeechEngine) -> trace_file.SavedTrace:
    """The engine's records with what a reader needs to know."""
    settings = asdict(engine.settings) | {"sm_split": str(engine.settings.sm_split)}
    about = {"model": engine.model_name, "device": engine.device_name, "settings": settings}
    records = tuple(engine.trace.records())
    return trace_file.SavedTrace(records, engine.frame_s, engine.sample_rate_hz, about)


def _write_trace(engine: SpeechEngine, path: Path) -> None:
    trace_file.save(saved_trace(engine), path)


def _write_perfetto(engine: SpeechEngine, path: Path) -> None:
    path.write_text(json.dumps(perfetto(engine.trace.records())), encoding="utf-8")


def _write_csv(engine: SpeechEngine, path: Path) -> None:
    names = [field.name for field in fields(ChunkLife)]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        for record in engine.trace.records():
            if isinstance(record, ChunkLife):
                writer.writerow(asdict(record))


def _write_html(engine: SpeechEngine, path: Path) -> None:
    margin_s = engine.settings.urgency_margin_s
    figure = timeline_figure(engine.trace, window_s=30.0, margin_s=margin_s)
    figure.write_html(path, include_plotlyjs=True)


def _write_png(engine: SpeechEngine, path: Path) -> None:
    path.write_bytes(png(engine))


_WRITERS: dict[str, Callable[[SpeechEngine, Path], None]] = {
    ".trace.gz": _write_trace,
    ".json": _write_perfetto,
    ".csv": _write_csv,
    ".html": _write_html,
    ".png": _write_png,
}
