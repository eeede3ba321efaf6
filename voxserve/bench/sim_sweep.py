"""Sweeps of simulated loads in parallel processes: rates, splits, margins, batches, seeds.

Any argument of `voxserve.simulate` that is given as a list becomes an axis.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from tqdm import tqdm

from voxserve.bench.workers import Pool
from voxserve.core.errors import InvalidInput
from voxserve.core.profile import Profile
from voxserve.core.slo import Outcome, summarise
from voxserve.core.workload import Workload
from voxserve.sim.api import simulate
from voxserve.sim.simulator import SimulationResult


@dataclass(frozen=True, slots=True)
class Row:
    """One combination of a sweep, its seeds pooled.

    Attributes:
        axes: What was varied, by name (rate_rps included).
        figures: Attainment, TTFA, stalls, rates, lane use.
        notes: Where the profile was continued or a default was used.
    """

    axes: dict[str, Any]
    figures: dict[str, float]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SweepResult:
    """Rows of a sweep; shows as a table in a notebook."""

    rows: tuple[Row, ...]
    settings: dict[str, Any] = field(default_factory=dict[str, Any])

    def table(self) -> str:
        """Plain text, aligned."""
        lines = [self._titles(), *self._cells()]
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        return "\n".join(
            "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
            for line in lines
        )

    def to_json(self) -> dict[str, Any]:
        """Rows and settings, JSON-ready."""
        return {
            "settings": {name: str(value) for name, value in self.settings.items()},
            "rows": [
                {"axes": _plain(row.axes), "figures": row.figures, "notes": list(row.notes)}
                for row in self.rows
            ],
        }

    def _repr_html_(self) -> str:
        def row(tag: str, cells: Iterable[str]) -> str:
            return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>"

        body = "".join(row("td", cells) for cells in self._cells())
        return f"<table>{row('th', self._titles())}{body}</table>"

    def _titles(self) -> list[str]:
        return [*self.rows[0].axes, *self.rows[0].figures] if self.rows else ["nothing"]

    def _cells(self) -> list[list[str]]:
        return [
            [str(value) for value in row.axes.values()]
            + [f"{value:.4g}" for value in row.figures.values()]
            for row in self.rows
        ]


def sweep(
    profile: Profile | str | Path | list[Any] = "h200",
    workload: Workload | str | list[Any] = "libritts",
    *,
    rate_rps: float | list[float] = 40.0,
    seconds: float = 60.0,
    seeds: Sequence[int] = (0, 1, 2),
    workers: int | None = None,
    progress: bool = True,
    **settings: Any,
) -> SweepResult:
    """Simulates every combination of what is given as lists, seeds pooled.

    Args:
        profile: One, or a list.
        workload: One, or a list.
        rate_rps: One, or a list.
        seconds: Arrival window of each run.
        seeds: Pooled into one row.
        workers: Processes; all cores when None.
        progress: Show a bar.
        settings: By name; a list is an axis (`chunk_ramp=[(10,), (4, 10)]`).

    Raises:
        InvalidInput, InvalidSetting: As `voxserve.simulate`.
    """
    if not seeds:
        raise InvalidInput("no seeds: at least one run is needed")
    asked: dict[str, Any] = {"profile": profile, "workload": workload, "rate_rps": rate_rps}
    asked |= settings
    axes = {name: cast(list[Any], v) for name, v in asked.items() if isinstance(v, list)}
    fixed = {name: value for name, value in asked.items() if name not in axes}
    points: list[tuple[Any, ...]] = list(itertools.product(*axes.values()))
    combos: list[dict[str, Any]] = [dict(zip(axes, point, strict=True)) for point in points]
    calls: list[dict[str, Any]] = [
        {**fixed, **combo, "seconds": seconds, "seed": seed} for combo in combos for seed in seeds
    ]
    results = run_all(calls, workers, progress)
    rows: list[Row] = []
    for index, combo in enumerate(combos):
        pooled = results[index * len(seeds) : (index + 1) * len(seeds)]
        shown = {name: _shown(value) for name, value in combo.items()} or {"rate_rps": rate_rps}
        rows.append(Row(shown, figures_of(pooled), pooled[0].notes))
    described = {name: _shown(value) for name, value in fixed.items()}
    return SweepResult(tuple(rows), described | {"seconds": seconds, "seeds": list(seeds)})


def _plain(axes: dict[str, Any]) -> dict[str, Any]:
    return {k: v if isinstance(v, int | float | str) else str(v) for k, v in axes.items()}


def _shown(value: Any) -> Any:
    return getattr(value, "name", value)


def run_all(
    calls: Sequence[dict[str, Any]], workers: int | None = None, progress: bool = False
) -> list[SimulationResult]:
    """Runs `simulate(**call)` for each call in parallel processes, results in order."""
    if workers == 1 or len(calls) == 1:
        bar = tqdm(calls, desc="simulated runs", disable=not progress)
        return [simulate(**call) for call in bar]
    with Pool(workers) as pool:
        futures = [pool.submit(call) for call in calls]
        with tqdm(total=len(calls), desc="simulated runs", disable=not progress) as bar:
            for future in futures:
                future.add_done_callback(lambda _: bar.update())
            return [future.result() for future in futures]


def figures_of(results: Sequence[SimulationResult]) -> dict[str, float]:
    """The figures of pooled runs of one configuration; times in milliseconds."""
    outcomes: list[Outcome] = []
    for result in results:
        outcomes += result.outcomes
    first = results[0]
    total_s = sum(result.seconds for result in results)
    summary = summarise(outcomes, total_s, first.settings.ttfa_target_s)

    def mean(pick: Callable[[SimulationResult], float]) -> float:
        return sum(pick(result) for result in results) / len(results)

    return {
        "attainment": summary.attainment,
        "goodput_rps": summary.goodput_rps,
        "completed_rps": mean(lambda result: result.summary.completed_rps),
        "ttfa_p50_ms": summary.ttfa_p50_s * 1e3,
        "ttfa_p90_ms": summary.ttfa_p90_s * 1e3,
        "ttfa_p99_ms": summary.ttfa_p99_s * 1e3,
        "stalled_share": summary.stalled_share,
        "rejected": float(summary.num_rejected),
        "lm_busy": mean(lambda r: r.lanes["prefill"].busy_share + r.lanes["decode"].busy_share),
        "background_busy": mean(lambda result: result.lanes["background"].busy_share),
        "urgent_busy": mean(lambda result: result.lanes["urgent"].busy_share),
        "decode_batch": mean(lambda result: result.lanes["decode"].mean_batch),
        "background_batch": mean(lambda result: result.lanes["background"].mean_batch),
    }
