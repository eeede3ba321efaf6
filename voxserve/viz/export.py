"""Writes what happened to files: trace, Perfetto JSON, CSV, HTML figure, PNG."""

# pyright: reportUnknownMemberType=false
# (plotly's types are incomplete)

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path

from voxserve.core import perfetto, trace_file
from voxserve.core.errors import InvalidInput
from voxserve.core.events import ChunkLife
from voxserve.core.outputs import naming
from voxserve.core.protocols import SpeechEngine
from voxserve.viz.figures import timeline_figure
from voxserve.viz.picture import picture
from voxserve.viz.wire import recent

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
            with naming(path):
                write(engine, path)
            return path
    raise InvalidInput(f"{path.name}: the name must end in {', '.join(_WRITERS)}")


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
    trace = saved_trace(engine)
    perfetto.save(trace.records, path, trace.about)


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
