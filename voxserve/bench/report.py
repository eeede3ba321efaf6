"""A sweep's figures as JSON, CSV and one HTML page with plots.

`python -m voxserve.bench.report FOLDER` makes the page again from a folder's sweep.json, for
sweeps that ran on a machine without plotly.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# (plotly's types are incomplete)

from __future__ import annotations

import csv
import html
import json
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxserve.bench.load_sweep import Sweep
from voxserve.bench.runs import Run, figures, pooled, run_row
from voxserve.core.slo import capacity_rps

if TYPE_CHECKING:
    import plotly.graph_objects as go

_PANELS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("SLO attainment", "share", ("attainment", "attainment_500ms", "chunk_viability")),
    ("Time to first audio", "ms", ("ttfa_p50_ms", "ttfa_p90_ms", "ttfa_p99_ms")),
    ("Requests per second", "req/s", ("completed_rps", "goodput_rps")),
    (
        "Lane use",
        "share of time",
        ("decode_busy", "prefill_busy", "background_busy", "urgent_busy"),
    ),
    ("Rows per batch", "rows", ("decode_batch", "background_batch", "urgent_batch")),
    (
        "Stalls and urgency",
        "share",
        ("stalled_share", "urgent_later_share"),
    ),
)


def sweep_report(sweep: Sweep, command: str) -> dict[str, Any]:
    """Everything about a sweep, JSON-ready: configuration, capacities, figures by rate."""
    runs = [run for _, run in sorted(sweep.runs.items())]
    return configuration_report(sweep.folder.about, runs, command, sweep.plan.thresholds)


def configuration_report(
    about: dict[str, Any],
    runs: Sequence[Run],
    command: str,
    thresholds: Sequence[float] = (0.9, 0.99),
) -> dict[str, Any]:
    """The same of stored runs of one configuration.

    Args:
        about: The configuration.
        runs: By rate and seed.
        command: That measured them.
        thresholds: Attainment to keep.
    """
    by_rate: dict[float, list[Run]] = {}
    for run in runs:
        by_rate.setdefault(run.rate_rps, []).append(run)
    attainment = {rate: pooled(group).attainment for rate, group in by_rate.items()}
    return {
        "format": "voxserve-sweep",
        "version": 1,
        "command": command,
        "configuration": about,
        "capacity_rps": {f"{limit:g}": capacity_rps(attainment, limit) for limit in thresholds},
        "rates": [figures(group) for _, group in sorted(by_rate.items())],
        "runs": [run_row(run) for run in runs],
        "made": runs[-1].made if runs else {},
    }


def save_report(report: dict[str, Any], folder: Path) -> list[Path]:
    """Writes sweep.json, sweep.csv and, where plotly is installed, sweep.html.

    Returns:
        What was written.
    """
    paths = [folder / "sweep.json", folder / "sweep.csv"]
    paths[0].write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    with open(paths[1], "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, _names(report))
        writer.writeheader()
        writer.writerows(report["rates"])
    if find_spec("plotly") is not None:
        paths.append(save_page(report, folder))
    return paths


def save_page(report: dict[str, Any], folder: Path) -> Path:
    """Writes sweep.html."""
    path = folder / "sweep.html"
    path.write_text(_page(report, _names(report)), encoding="utf-8")
    return path


def _names(report: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(name for row in report["rates"] for name in row))


def capacity_line(report: dict[str, Any]) -> str:
    """The capacity in one line; "at least" where no higher rate was tested."""
    about = report["configuration"]
    target_ms = about["ttfa_target_s"] * 1e3
    highest_rps = max((row["rate_rps"] for row in report["rates"]), default=0.0)
    parts = [
        f"{'at least ' if 0.0 < rps == highest_rps else ''}{rps:g} req/s"
        f" at {float(limit):.0%} attainment"
        for limit, rps in report["capacity_rps"].items()
    ]
    return (
        f"capacity: {', '.join(parts)} ({about['workload']}, TTFA <= {target_ms:.0f} ms, "
        f"{about['model']} on {about['device']}, {about['via']})"
    )


def _page(report: dict[str, Any], names: Sequence[str]) -> str:
    plot = _plot(report["rates"]).to_html(full_html=False, include_plotlyjs=True)
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{_cell(row.get(name, ''))}</td>" for name in names) + "</tr>"
        for row in report["rates"]
    )
    about = html.escape(json.dumps(report["configuration"], indent=1))
    made = html.escape(json.dumps(report["made"], indent=1))
    line = html.escape(capacity_line(report))
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>voxserve bench</title>"
        "<style>body{font:14px sans-serif;margin:2em}table{border-collapse:collapse}"
        "td,th{border:1px solid #ccc;padding:2px 6px;text-align:right}"
        ".wide{overflow-x:auto}</style>"
        f"<h1>Load sweep</h1><p>{line}</p><p><code>{html.escape(report['command'])}</code></p>"
        f"{plot}<h2>Figures by rate</h2><div class='wide'><table><tr>{head}</tr>{body}</table>"
        f"</div><h2>Configuration</h2><pre>{about}</pre><h2>Made with</h2><pre>{made}</pre></html>"
    )


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else html.escape(str(value))


def _plot(rates: Sequence[dict[str, Any]]) -> go.Figure:
    from plotly.subplots import make_subplots

    figure = make_subplots(rows=3, cols=2, subplot_titles=[title for title, _, _ in _PANELS])
    offered = [row["rate_rps"] for row in rates]
    for index, (_, unit, names) in enumerate(_PANELS):
        row, column = index // 2 + 1, index % 2 + 1
        for name in names:
            values = [item.get(name) for item in rates]
            if any(value is not None for value in values):
                figure.add_scatter(
                    x=offered, y=values, name=name, mode="lines+markers", row=row, col=column
                )
        figure.update_yaxes(title_text=unit, row=row, col=column)
        figure.update_xaxes(title_text="offered req/s", row=row, col=column)
    figure.update_layout(height=1000, template="plotly_white")
    return figure


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    save_page(json.loads((folder / "sweep.json").read_text(encoding="utf-8")), folder)
