"""Draws what each split of a profiled GPU sustains: the Pareto front of backbone and codec.

`python -m voxserve.bench.split_chart` makes the chart of the shipped H200 profile again.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from voxserve.bench.tables import RESULTS_DIR
from voxserve.core import profile as profiles
from voxserve.sim.placing import SplitChoice, expected_load, split_of


def split_table(choice: SplitChoice) -> str:
    """Plain text: requests per second of both sides by split, the choice marked."""
    lines = [f"{'split':>8}{'LM':>9}{'codec':>9}{'common':>9}  requests/s"]
    for item in choice.estimates:
        mark = "  <" if item.split == choice.split else ""
        rates = f"{item.lm_rps:9.1f}{item.codec_rps:9.1f}{item.rate_rps:9.1f}"
        lines.append(f"{item.split!s:>8}{rates}{mark}")
    return "\n".join(lines)


def save_split_chart(choice: SplitChoice, title: str, path: Path, is_whole: bool = True) -> None:
    """Writes the table as a chart, one HTML file.

    Args:
        choice: Estimates and choice.
        title: Of the chart.
        path: Of the file.
        is_whole: With Plotly inside (5 MB), to be opened without a network.
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
            textposition="middle right",  # beside the line, which falls
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
    figure.write_html(path, include_plotlyjs=is_whole or "cdn")


def main() -> None:
    """Writes the chart that the README links to; small, so Plotly comes from its network."""
    profile = profiles.load("h200")
    choice = split_of(profile, expected_load(profile, "libritts"))
    title = f"{profile.model} on {profile.device}"
    save_split_chart(choice, title, RESULTS_DIR / "h200-splits.html", is_whole=False)


if __name__ == "__main__":
    main()
