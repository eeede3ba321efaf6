"""Draws what each split of a profiled GPU sustains: the Pareto front of backbone and codec."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from voxserve.sim.placing import SplitChoice


def split_table(choice: SplitChoice) -> str:
    """Plain text: requests per second of both sides by split, the choice marked."""
    lines = [f"{'split':>8}{'LM':>9}{'codec':>9}{'common':>9}  requests/s"]
    for item in choice.estimates:
        mark = "  <" if item.split == choice.split else ""
        rates = f"{item.lm_rps:9.1f}{item.codec_rps:9.1f}{item.rate_rps:9.1f}"
        lines.append(f"{item.split!s:>8}{rates}{mark}")
    return "\n".join(lines)


def save_split_chart(choice: SplitChoice, title: str, path: Path) -> None:
    """Writes the table as a chart, one HTML file that needs nothing else.

    Args:
        choice: Estimates and choice.
        title: Of the chart.
        path: Of the file.
    """
    go: Any = import_module("plotly.graph_objects")  # heavy: only where a chart is drawn
    splits = [item for item in choice.estimates if not item.split.is_none]
    unsplit = [item for item in choice.estimates if item.split.is_none]
    figure: Any = go.Figure()
    for name, symbol, items in (("split", "circle", splits), ("no split", "diamond", unsplit)):
        figure.add_scatter(
            x=[item.lm_rps for item in items],
            y=[item.codec_rps for item in items],
            text=[str(item.split) for item in items],
            mode="lines+markers+text" if name == "split" else "markers+text",
            textposition="top center",
            marker={"symbol": symbol, "size": 9},
            name=name,
        )
    chosen = next(item for item in choice.estimates if item.split == choice.split)
    figure.add_scatter(
        x=[chosen.lm_rps],
        y=[chosen.codec_rps],
        mode="markers",
        marker={"symbol": "circle-open", "size": 18, "line": {"width": 3}},
        name=f"chosen: {chosen.split}",
    )
    figure.update_layout(
        title=f"{title}<br><sub>{choice.why}</sub>",
        xaxis_title="backbone, requests/s",
        yaxis_title="codec, requests/s",
    )
    figure.write_html(path, include_plotlyjs=True)
