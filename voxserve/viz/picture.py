"""The window of a trace as a PNG, drawn in the kernel: lanes, deadlines, stalls, slack, figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from voxserve.core.chunk import Urgency
from voxserve.core.events import ChunkLife, LaneSpan, Record, SettingChange
from voxserve.core.jobs import JobKind, LaneName
from voxserve.sim.rerun import so_far
from voxserve.viz.explain import is_late
from voxserve.viz.figures import CODEC, DECODE, HANDOFF, LANE_NAMES, PREFILL, STALL, URGENT
from voxserve.viz.raster import Raster, text_width
from voxserve.viz.words import duration, percent

WIDTH, HEIGHT = 1000, 420
_LEFT, _RIGHT, _TOP = 130, 985, 78
_ROW, _GAP = 44, 6
_SLACK_Y, _SLACK_H = _TOP + 4 * (_ROW + _GAP) + 8, 90
_TOP_SLACK_S = 4.0
_FLOOR_S = -0.5
_TICKS_S = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600)
_KEYS = (
    ("prefill", PREFILL),
    ("decode", DECODE),
    ("codec", CODEC),
    ("urgent codec", URGENT),
    ("late or stalled", STALL),
)


@dataclass(frozen=True, slots=True)
class _View:
    """A window of time on the picture, and its colours."""

    from_s: float
    to_s: float
    text: str
    faint: str
    lane: str
    ground: str

    def x(self, time_s: float) -> float:
        """Pixel of a time."""
        return _LEFT + (time_s - self.from_s) / (self.to_s - self.from_s) * (_RIGHT - _LEFT)


def picture(
    records: Iterable[Record],
    *,
    end_s: float,
    window_s: float = 8.0,
    margin_s: float = 0.1,
    ttfa_target_s: float = 0.2,
    title: str = "",
    ghost: tuple[str, Sequence[Record]] | None = None,
    is_dark: bool = False,
) -> bytes:
    """Draws the last seconds of a trace.

    Args:
        records: A trace or its records.
        end_s: Engine time of the right edge.
        window_s: Seconds shown.
        margin_s: The urgency margin, drawn into the slack panel.
        ttfa_target_s: For the figures.
        title: Above everything.
        ghost: Name and records of what would have been, drawn under each lane.
        is_dark: For dark slides.

    Returns:
        A PNG file.
    """
    held = list(records)
    looks = ("#f0f0f0", "#aaaaaa", "#2e2e2e", "#161616") if is_dark else _LIGHT
    view = _View(end_s - window_s, end_s, *looks)
    canvas = Raster(WIDTH, HEIGHT, view.ground)
    _frame(canvas, view, title, held, ttfa_target_s)
    share = 1.0 if ghost is None else 0.62
    _spans(canvas, view, held, 0.0, share, 1.0)
    if ghost is not None:
        _spans(canvas, view, ghost[1], share, 1.0, 0.5)
        canvas.text(_RIGHT, 34, f"lower rows: what if {ghost[0]}", view.faint, "right")
    chunks = [r for r in held if isinstance(r, ChunkLife) and r.delivered_s is not None]
    _deadlines(canvas, view, chunks)
    _slack(canvas, view, chunks, margin_s)
    _changes(canvas, view, held)
    return canvas.png()


_LIGHT = ("#222222", "#666666", "#eeeeee", "#ffffff")


def _frame(
    canvas: Raster, view: _View, title: str, records: list[Record], ttfa_target_s: float
) -> None:
    canvas.text(14, 18, title, view.text)
    seen = so_far(records, view.from_s, view.to_s, ttfa_target_s)
    canvas.text(
        14,
        34,
        f"{seen.num_requests} requests · TTFA p50 {duration(seen.ttfa_p50_s)}, p90 "
        f"{duration(seen.ttfa_p90_s)} · stalled {seen.num_stalled} · attainment "
        f"{percent(seen.attainment)}",
        view.text,
    )
    x = 14.0
    for name, colour in _KEYS:
        canvas.rect(x, 43, 10, 10, colour)
        canvas.text(x + 14, 52, name, view.text)
        x += 26 + text_width(name)
    for place, name in enumerate([*LANE_NAMES.values(), "deadlines"]):
        y = _TOP + place * (_ROW + _GAP)
        canvas.rect(_LEFT, y, _RIGHT - _LEFT, _ROW, view.lane)
        canvas.text(_LEFT - 8, y + _ROW / 2 + 4, name, view.text, "right")
    step = next(s for s in _TICKS_S if (view.to_s - view.from_s) / s < 12)
    bottom = _SLACK_Y + _SLACK_H
    for i in range(int((view.to_s - view.from_s) / step + 1e-6) + 1):
        x = view.x(view.to_s - i * step)
        canvas.rect(x, _TOP, 0.5, bottom - _TOP, view.faint, 0.4)
        canvas.text(x, bottom + 16, f"−{i * step:g} s" if i else "0", view.faint, "center")


def _spans(
    canvas: Raster, view: _View, records: Iterable[Record], top: float, end: float, alpha: float
) -> None:
    """Spans of all lanes in a part of each lane's row, given as shares of its height."""
    shown = [
        r
        for r in records
        if isinstance(r, LaneSpan) and r.end_s >= view.from_s and r.start_s <= view.to_s
    ]
    for place, lane in enumerate(LANE_NAMES):
        spans = [span for span in shown if span.lane is lane]
        largest = max((s.batch for s in spans), default=1)
        y, height = _TOP + place * (_ROW + _GAP) + top * _ROW, (end - top) * _ROW - 1
        for s in spans:
            is_prefill = s.kind is JobKind.PREFILL
            share = 1.0 if is_prefill else 0.35 + 0.65 * s.batch / largest
            x, x1 = max(_LEFT, view.x(s.start_s)), min(_RIGHT, view.x(s.end_s))
            canvas.rect(x, y + height * (1 - share), x1 - x, height * share, _colour(s), alpha)


def _colour(span: LaneSpan) -> str:
    if span.kind is JobKind.CODEC:
        return URGENT if span.lane is LaneName.URGENT else CODEC
    return {JobKind.PREFILL: PREFILL, JobKind.DECODE: DECODE}.get(span.kind, HANDOFF)


def _deadlines(canvas: Raster, view: _View, chunks: list[ChunkLife]) -> None:
    y = _TOP + 3 * (_ROW + _GAP)
    due = [c for c in chunks if c.deadline_s is not None]
    due = [c for c in due if _LEFT <= view.x(c.deadline_s or 0.0) <= _RIGHT]
    faint = min(0.7, 120 / max(1, len(due)))  # many met deadlines become a density
    for c in due:
        if not is_late(c):
            x = view.x(c.deadline_s or 0.0)
            canvas.rect(x, y + 8, 1, _ROW - 20, view.text, faint)
            if c.index == 0:
                canvas.disc(x, y + _ROW / 2 - 2, 3, view.text, faint)
    for c in filter(is_late, due):
        x, end_x = view.x(c.deadline_s or 0.0), view.x(c.delivered_s or 0.0)
        canvas.rect(x, y + _ROW - 8, end_x - x, 6, STALL, 0.35)
        canvas.cross(x, y + _ROW / 2 - 2, 5, STALL)
        if c.stall_s > 0.0 and end_x <= _RIGHT:
            canvas.triangle(end_x, y + _ROW / 2 - 2, 6, STALL)


def _slack(canvas: Raster, view: _View, chunks: list[ChunkLife], margin_s: float) -> None:
    zero = _slack_y(0.0)
    canvas.rect(_LEFT, zero, _RIGHT - _LEFT, _SLACK_Y + _SLACK_H - zero, STALL, 0.12)
    canvas.rect(_LEFT, zero, _RIGHT - _LEFT, 0.5, view.text)
    canvas.dashed(_LEFT, _RIGHT, _slack_y(margin_s), URGENT)
    top = f"slack {_TOP_SLACK_S:g} s"
    canvas.text(_LEFT - 8, _slack_y(_TOP_SLACK_S) + 8, top, view.faint, "right")
    canvas.text(_LEFT - 8, zero + 4, "0", view.faint, "right")
    label = f"margin {1000 * margin_s:.0f} ms"
    canvas.text(_LEFT - 8, _slack_y(margin_s) - 3, label, view.faint, "right")
    for is_urgent, is_past, x, y in dict.fromkeys(_slack_marks(view, chunks)):  # each place once
        if is_urgent:
            canvas.diamond(x, y, 4, STALL if is_past else URGENT)
        else:
            canvas.disc(x, y, 2.5, STALL if is_past else CODEC)


def _slack_marks(view: _View, chunks: list[ChunkLife]) -> Iterator[tuple[bool, bool, int, int]]:
    for c in chunks:
        if c.slack_s is None or c.launched_s is None:
            continue
        x = view.x(c.launched_s)
        if _LEFT <= x <= _RIGHT:
            is_urgent = c.urgency is Urgency.URGENT
            yield is_urgent, c.slack_s < 0.0, round(x), round(_slack_y(c.slack_s))


def _slack_y(slack_s: float) -> float:
    """Square-root axis: what is near the margin matters most."""
    low, high = _root(_FLOOR_S), _root(_TOP_SLACK_S)
    at = _root(min(_TOP_SLACK_S, max(_FLOOR_S, slack_s)))
    return _SLACK_Y + (1 - (at - low) / (high - low)) * _SLACK_H


def _root(value: float) -> float:
    return math.copysign(math.sqrt(abs(value)), value)


def _changes(canvas: Raster, view: _View, records: list[Record]) -> None:
    free = _RIGHT
    changes = [r for r in records if isinstance(r, SettingChange)]
    for change in reversed([c for c in changes if view.from_s <= c.time_s <= view.to_s]):
        x = view.x(change.time_s)
        text = f"{change.name} {change.old} → {change.new}"
        canvas.rect(x, _TOP - 6, 0.5, _SLACK_Y + _SLACK_H - _TOP + 6, view.text)
        at = min(x - 3, free - text_width(text))
        if at >= _LEFT and at + text_width(text) <= free:
            canvas.text(at, _TOP - 9, text, view.text)
            free = at - 8
