"""Plotly figures of simulated sweeps: attainment over rate, capacity against TTFA, splits."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (plotly's types are incomplete)

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

Rows = Sequence[tuple[dict[str, Any], dict[str, float]]]
# Okabe and Ito's palette, told apart with colour-blind eyes; markers differ as well.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "star", "cross")
_LAYOUT = {"template": "plotly_white", "margin": {"l": 60, "r": 20, "t": 50, "b": 50}}


def sweep_figure(rows: Rows, title: str = "SLO attainment") -> go.Figure:
    """Attainment over the offered rate, one line per combination of the other axes.

    Args:
        rows: (axes, figures) of each row; axes hold `rate_rps`, figures `attainment`.
        title: Shown above.
    """
    lines: dict[str, list[tuple[float, float]]] = {}
    for axes, figures in rows:
        label = ", ".join(f"{k} {v}" for k, v in axes.items() if k != "rate_rps") or "attainment"
        point = (float(axes["rate_rps"]), 100.0 * figures["attainment"])
        lines.setdefault(label, []).append(point)
    figure = go.Figure(layout=_LAYOUT)
    for index, (label, points) in enumerate(lines.items()):
        _add_line(figure, label, sorted(points), index)
    for threshold in (90.0, 99.0):
        figure.add_hline(y=threshold, line={"dash": "dot", "color": "#888888", "width": 1})
    return figure.update_layout(
        title=title, xaxis_title="offered rate (requests/s)", yaxis_title="attainment (%)"
    )


def pareto_figure(points: Sequence[tuple[str, float, float]]) -> go.Figure:
    """Capacity against TTFA.

    Args:
        points: (label, capacity in requests/s, TTFA p90 at that rate in ms).
    """
    best: list[tuple[float, float]] = []
    for _, rps, ttfa_ms in sorted(points, key=lambda item: (item[2], -item[1])):
        if not best or rps > best[-1][1]:
            best.append((ttfa_ms, rps))
    figure = go.Figure(layout=_LAYOUT)
    figure.add_scatter(
        x=[ttfa_ms for _, _, ttfa_ms in points],
        y=[rps for _, rps, _ in points],
        text=[label for label, _, _ in points],
        mode="markers+text",
        textposition="top center",
        marker={"color": COLOURS[0], "size": 9},
        name="configurations",
    )
    figure.add_scatter(
        x=[x for x, _ in best],
        y=[y for _, y in best],
        mode="lines",
        line={"shape": "hv", "color": COLOURS[1]},
        name="not beaten in both",
    )
    return figure.update_layout(
        title="Capacity against time to first audio",
        xaxis_title="TTFA p90 at capacity (ms)",
        yaxis_title="SLO capacity (requests/s)",
    )


def bars_figure(
    groups: Sequence[tuple[str, dict[str, float]]], title: str, unit: str = "requests/s"
) -> go.Figure:
    """Grouped bars: each label with one value per named series (such as predicted and stated).

    Args:
        groups: (label, value by series).
        title: Shown above.
        unit: Of the values.
    """
    names = list(dict.fromkeys(name for _, values in groups for name in values))
    figure = go.Figure(layout=_LAYOUT)
    for index, name in enumerate(names):
        figure.add_bar(
            x=[label for label, _ in groups],
            y=[values.get(name) for _, values in groups],
            name=name,
            marker={"color": COLOURS[index % len(COLOURS)]},
        )
    return figure.update_layout(title=title, yaxis_title=unit, barmode="group")


def _add_line(
    figure: go.Figure, label: str, points: Sequence[tuple[float, float]], index: int
) -> None:
    figure.add_scatter(
        x=[x for x, _ in points],
        y=[y for _, y in points],
        name=label,
        mode="lines+markers",
        line={"color": COLOURS[index % len(COLOURS)]},
        marker={"symbol": SYMBOLS[index % len(SYMBOLS)]},
    )
