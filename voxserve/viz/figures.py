"""Static Plotly figures of a trace, for paused views and saved notebooks."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (plotly's types are incomplete)

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import plotly.graph_objects as go

from voxserve.core.chunk import Urgency
from voxserve.core.events import ChunkLife, HostDelay, LaneSpan, Record, SettingChange
from voxserve.core.jobs import JobKind, LaneName
from voxserve.viz.hosts import is_host_stall

# Okabe-Ito; outcomes also differ by shape.
PREFILL, DECODE, CODEC, URGENT, STALL = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00"
HANDOFF = "#56B4E9"
LANE_NAMES = {
    LaneName.LM: "LM",
    LaneName.BACKGROUND: "codec (background)",
    LaneName.URGENT: "codec (urgent)",
}
SLICES = 200  # of the SM occupancy
_DEADLINES = "deadlines"
_GHOST = "↳ "  # before the name of a lane as it would have been


def timeline_figure(
    records: Iterable[Record],
    *,
    window_s: float | None = 8.0,
    end_s: float | None = None,
    margin_s: float | None = None,
    ghost: tuple[str, Iterable[Record]] | None = None,
) -> Any:
    """Lanes, deadlines, stalls, slack and SM occupancy as one figure with hover texts.

    Args:
        records: A trace or its records.
        window_s: Seconds before `end_s` that are shown; None shows all.
        end_s: Engine time of the right edge; the last record's unless given.
        margin_s: Draws the urgency margin into the slack panel.
        ghost: Name and records of what would have been, drawn translucent under each lane.

    Returns:
        A `plotly.graph_objects.Figure`; times are seconds since the left edge.
    """
    held = list(records)
    spans = [record for record in held if isinstance(record, LaneSpan)]
    chunks = [r for r in held if isinstance(r, ChunkLife) and r.delivered_s is not None]
    changes = [record for record in held if isinstance(record, SettingChange)]
    ends = [span.end_s for span in spans] or [0.0]
    end_s = max(ends) if end_s is None else end_s
    starts = [span.start_s for span in spans] or [0.0]
    from_s = min(starts) if window_s is None else end_s - window_s
    spans = [span for span in spans if span.end_s >= from_s and span.start_s <= end_s]
    chunks = [c for c in chunks if c.delivered_s is not None and from_s <= c.delivered_s <= end_s]
    figure = go.Figure()
    if ghost is not None:
        for trace in _ghost_bars(*ghost, from_s, end_s):
            figure.add_trace(trace)
    delays = [record for record in held if isinstance(record, HostDelay)]
    marks = _deadlines(chunks, delays, from_s)
    for trace in [*_bars(spans, from_s), *marks, *_slack(chunks, from_s)]:
        figure.add_trace(trace)
    if spans:
        figure.add_trace(_occupancy(spans, from_s, end_s))
    _decorate(figure, end_s - from_s, margin_s, has_ghost=ghost is not None)
    shown = [change for change in changes if from_s <= change.time_s <= end_s]
    for time_s, text in _grouped(shown).items():
        figure.add_vline(time_s - from_s, line_dash="dot", line_width=1)
        place = {"x": time_s - from_s, "y": 1.0, "yref": "paper", "yanchor": "bottom"}
        figure.add_annotation(**place, text=text, showarrow=False, xanchor="left", font_size=10)
    return figure


def _grouped(changes: list[SettingChange]) -> dict[float, str]:
    """Texts of changes by time; what was changed together shares one text."""
    texts: dict[float, str] = {}
    for change in changes:
        text = f"{change.name} {change.old} → {change.new}"
        near = next((time_s for time_s in texts if change.time_s - time_s < 0.2), None)
        if near is None:
            texts[change.time_s] = text
        else:
            texts[near] += f"<br>{text}"
    return texts


def _bars(spans: list[LaneSpan], from_s: float) -> list[Any]:
    groups: dict[tuple[str, str, str], list[LaneSpan]] = {}
    largest: dict[LaneName, int] = {}
    for span in spans:
        groups.setdefault(_look(span), []).append(span)
        largest[span.lane] = max(span.batch, largest.get(span.lane, 1))
    return [
        go.Bar(
            name=name,
            orientation="h",
            base=[span.start_s - from_s for span in rows],
            x=[span.end_s - span.start_s for span in rows],
            y=[LANE_NAMES[span.lane] for span in rows],
            width=[_height(span, largest[span.lane]) for span in rows],
            text=[_span_text(span) for span in rows],
            textposition="none",
            hovertemplate="%{text}<extra></extra>",
            marker={"color": colour, "line": {"width": 0}, "pattern": {"shape": shape}},
        )
        for (name, colour, shape), rows in groups.items()
    ]


def _ghost_bars(name: str, records: Iterable[Record], from_s: float, end_s: float) -> list[Any]:
    spans = [r for r in records if isinstance(r, LaneSpan)]
    bars = _bars([s for s in spans if s.end_s >= from_s and s.start_s <= end_s], from_s)
    for bar in bars:
        bar.y = [_GHOST + row for row in bar.y]
        bar.opacity = 0.5
        bar.name = f"{bar.name}, what if {name}"
        bar.showlegend = False
    return bars


def _height(span: LaneSpan, largest: int) -> float:
    """Share of the row: the larger the batch, the higher; prefills always fill it."""
    return 0.85 * (1.0 if span.kind is JobKind.PREFILL else 0.35 + 0.65 * span.batch / largest)


def _occupancy(spans: list[LaneSpan], from_s: float, end_s: float) -> Any:
    """Share of the device's SMs (on a CPU: threads) that ran something, in 200 slices of time."""
    split = {s.lane: s.sms for s in spans if s.sms}
    total = sum(split.values()) or 1
    edges_s = np.linspace(from_s, end_s, SLICES + 1)
    busy = np.zeros(SLICES)
    for span in spans:
        shared_s = np.minimum(edges_s[1:], span.end_s) - np.maximum(edges_s[:-1], span.start_s)
        busy += np.maximum(shared_s, 0.0) * (span.sms or total)
    share = np.minimum(1.0, busy / (total * (end_s - from_s) / SLICES))
    return go.Scatter(
        name="SMs busy",
        x=(edges_s[:-1] - from_s).tolist(),
        y=(100 * share).tolist(),
        yaxis="y3",
        mode="lines",
        line={"color": PREFILL, "width": 1, "shape": "hv"},
        fill="tozeroy",
        fillcolor="rgba(0, 114, 178, 0.2)",
        hovertemplate="%{y:.0f} % of the SMs busy<extra></extra>",
    )


def _look(span: LaneSpan) -> tuple[str, str, str]:
    """Name, colour and hatch."""
    if span.kind is JobKind.PREFILL:
        return "prefill", PREFILL, "/"
    if span.kind is JobKind.DECODE:
        return "decode", DECODE, ""
    if span.kind is JobKind.HANDOFF:
        return "handoff", HANDOFF, ""
    return ("urgent codec", URGENT, "") if span.lane is LaneName.URGENT else ("codec", CODEC, "")


def _span_text(span: LaneSpan) -> str:
    places = "SM (thread)" if span.sms == 1 else "SMs (threads)"
    where = f"{span.sms} {places}" if span.sms else "whole device"
    return (
        f"<b>{span.kind}</b> of {span.batch} (bucket {span.bucket}), {where}<br>"
        f"ran {1000 * (span.end_s - span.start_s):.1f} ms, "
        f"queued {1000 * (span.start_s - span.queued_s):.1f} ms before"
    )


def _chunk_text(chunk: ChunkLife) -> str:
    spare_s = (chunk.deadline_s or 0.0) - (chunk.delivered_s or 0.0)
    when = f"in time by {spare_s:.3f} s" if spare_s >= 0 else f"late by {-spare_s:.3f} s"
    return (
        f"<b>request {chunk.request_id}, chunk {chunk.index}</b><br>"
        f"{chunk.urgency}: {chunk.reason}<br>{when}"
    )


def _deadlines(chunks: list[ChunkLife], delays: list[HostDelay], from_s: float) -> list[Any]:
    due = [c for c in chunks if c.deadline_s is not None and c.delivered_s is not None]
    met = [c for c in due if (c.delivered_s or 0.0) <= (c.deadline_s or 0.0)]
    missed = [c for c in due if (c.delivered_s or 0.0) > (c.deadline_s or 0.0)]
    hosts = [c for c in missed if is_host_stall(c, delays)]
    stalls = [c for c in missed if c.stall_s > 0 and c not in hosts]
    return [
        _points("deadline met", met, [c.deadline_s for c in met], from_s, "line-ns", "#888"),
        _points("missed", missed, [c.deadline_s for c in missed], from_s, "x-thin", STALL),
        _points("server stall", stalls, _ends(stalls), from_s, "triangle-down", STALL),
        _points("host stall", hosts, _ends(hosts), from_s, "hourglass", "#222"),
    ]


def _ends(chunks: list[ChunkLife]) -> list[float | None]:
    return [chunk.delivered_s for chunk in chunks]


def _points(
    name: str,
    rows: list[ChunkLife],
    times: list[float | None],
    from_s: float,
    symbol: str,
    colour: str,
) -> Any:
    return go.Scatter(
        name=name,
        mode="markers",
        x=[(time_s or 0.0) - from_s for time_s in times],
        y=[_DEADLINES] * len(rows),
        text=[_chunk_text(chunk) for chunk in rows],
        hovertemplate="%{text}<extra></extra>",
        marker={
            "symbol": symbol,
            "size": 10,
            "color": colour,
            "line": {"width": 2, "color": colour},
        },
    )


def _slack(chunks: list[ChunkLife], from_s: float) -> list[Any]:
    known = [c for c in chunks if c.slack_s is not None and c.launched_s is not None]
    return [
        go.Scatter(
            name=f"slack, {urgency}",
            mode="markers",
            x=[(c.launched_s or 0.0) - from_s for c in known if c.urgency is urgency],
            y=[c.slack_s for c in known if c.urgency is urgency],
            yaxis="y2",
            marker={"symbol": symbol, "color": colour, "size": 7},
        )
        for urgency, symbol, colour in (
            (Urgency.URGENT, "diamond", URGENT),
            (Urgency.BACKGROUND, "circle", CODEC),
        )
    ]


def _decorate(figure: Any, width_s: float, margin_s: float | None, has_ghost: bool) -> None:
    lanes = [row for lane in LANE_NAMES.values() for row in (lane, _GHOST + lane)[: 1 + has_ghost]]
    rows = [_DEADLINES, *reversed(lanes)]
    figure.update_layout(
        template="plotly_white",
        barmode="overlay",
        bargap=0.15,
        height=520 + 90 * has_ghost,
        margin={"l": 130, "r": 20, "t": 40, "b": 84},
        legend={"orientation": "h", "y": -0.14, "yanchor": "top"},
        xaxis={"title": "seconds", "range": [0, width_s], "anchor": "y3"},
        yaxis={"domain": [0.44, 1], "categoryorder": "array", "categoryarray": rows},
        yaxis2={"domain": [0.17, 0.38], "title": "slack, s"},
        yaxis3={"domain": [0, 0.12], "title": "SMs, %", "range": [0, 100]},
    )
    if margin_s is not None:
        figure.add_hline(
            margin_s, yref="y2", line_dash="dash", line_color=URGENT, annotation_text="margin"
        )
