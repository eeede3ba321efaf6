"""Measured runs on disk: one file per (rate, seed), so that a sweep resumes and pools."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

from voxserve.core.errors import InvalidInput
from voxserve.core.slo import Outcome, Summary, percentiles, summarise

FORMAT = "voxserve-run"
VERSION = 1
_COLUMNS = tuple(field.name for field in fields(Outcome))


@dataclass(frozen=True, slots=True)
class Run:
    """One measured load.

    Attributes:
        outcomes: Of every counted request.
        observed: What the server's trace said (see `bench.observed`); empty out of sight.
        sent_late_p99_ms: How late the client sent; large values mean the client was the limit.
        stopped: Why it was given up, or "".
        made: When and from what: date, versions, revision.
    """

    rate_rps: float
    seed: int
    seconds: float
    ttfa_target_s: float
    outcomes: tuple[Outcome, ...]
    observed: dict[str, float]
    sent_late_p99_ms: float
    stopped: str
    made: dict[str, Any]

    @property
    def attainment(self) -> float:
        """Share that met the SLO."""
        return pooled([self]).attainment


def completed_steady_rps(outcomes: Sequence[Outcome], seconds: float) -> float:
    """Requests that completed a second, from a quarter of the window to its end.

    `Summary.completed_rps` also counts the time in which the last long requests end alone.

    Args:
        outcomes: Of every counted request.
        seconds: Length of the arrival window.
    """
    first_s = seconds / 4
    ends_s = [item.end_s for item in outcomes if item.is_done and item.end_s is not None]
    return sum(first_s <= at_s <= seconds for at_s in ends_s) / (seconds - first_s)


def pooled(runs: Sequence[Run]) -> Summary:
    """Sums up runs of one rate as if they were one long run."""
    outcomes = [outcome for run in runs for outcome in run.outcomes]
    seconds = sum(run.seconds for run in runs)
    return summarise(outcomes, seconds, runs[0].ttfa_target_s)


def figures(runs: Sequence[Run]) -> dict[str, Any]:
    """Every reported figure of one rate, its seeds pooled; times in milliseconds.

    A figure that has no value (nobody heard anything, say) is None.
    """
    summary = pooled(runs)
    outcomes = [outcome for run in runs for outcome in run.outcomes]
    audible_s = [item.audible_ttfa_s for item in outcomes if item.audible_ttfa_s is not None]
    audible = percentiles(audible_s, (50, 90, 99))
    found: dict[str, Any] = {
        "rate_rps": runs[0].rate_rps,
        "seeds": len(runs),
        "offered": summary.num_offered,
        "done": summary.num_done,
        "rejected": summary.num_rejected,
        "failed": summary.num_failed,
        "attainment": summary.attainment,
        **{f"attainment_{t * 1e3:.0f}ms": at for t, at in summary.attainment_at.items()},
        "goodput_rps": summary.goodput_rps,
        "completed_rps": sum(pooled([run]).completed_rps for run in runs) / len(runs),
        "completed_steady_rps": sum(completed_steady_rps(r.outcomes, r.seconds) for r in runs)
        / len(runs),
        "ttfa_p50_ms": summary.ttfa_p50_s * 1e3,
        "ttfa_p90_ms": summary.ttfa_p90_s * 1e3,
        "ttfa_p99_ms": summary.ttfa_p99_s * 1e3,
        "audible_ttfa_p50_ms": audible[0] * 1e3,
        "audible_ttfa_p90_ms": audible[1] * 1e3,
        "audible_ttfa_p99_ms": audible[2] * 1e3,
        "stalled_share": summary.stalled_share,
        "no_late_share": summary.no_late_share,
        "chunk_viability": summary.chunk_viability,
        "sent_late_p99_ms": max(run.sent_late_p99_ms for run in runs),
        **_mean_observed(runs),
        "stopped": "; ".join(run.stopped for run in runs if run.stopped),
    }
    return {name: None if value != value else value for name, value in found.items()}


def run_row(run: Run) -> dict[str, Any]:
    """One run in one line: enough to see how seeds differ, and to pool attainment again."""
    summary = pooled([run])
    return {
        "rate_rps": run.rate_rps,
        "seed": run.seed,
        "offered": summary.num_offered,
        "met": round(summary.attainment * summary.num_offered),
        "done": summary.num_done,
        "date": run.made.get("date", ""),
    }


def _mean_observed(runs: Sequence[Run]) -> dict[str, float]:
    names = [name for name in runs[0].observed if all(name in run.observed for run in runs)]
    return {name: sum(run.observed[name] for run in runs) / len(runs) for name in names}


class RunFolder:
    """The runs of one configuration in one folder.

    Args:
        folder: Made when it isn't there.
        about: What all its runs have in common (see `Target.describe`), JSON-ready.

    Raises:
        InvalidInput: The folder holds runs of another configuration; names the differences.
    """

    def __init__(self, folder: Path, about: dict[str, Any]) -> None:
        self.folder = folder
        self.about = about
        folder.mkdir(parents=True, exist_ok=True)
        described = folder / "configuration.json"
        if described.exists():
            _must_equal(folder, json.loads(described.read_text(encoding="utf-8")), about)
        else:
            described.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")

    def path(self, rate_rps: float, seed: int) -> Path:
        """Where a run is kept."""
        return self.folder / f"{rate_rps:g}rps-seed{seed}.json.gz"

    def find(self, rate_rps: float, seed: int) -> Run | None:
        """A run measured before, or None.

        Raises:
            InvalidInput: Its file is damaged.
        """
        path = self.path(rate_rps, seed)
        return load_run(path) if path.exists() else None

    def add(self, run: Run) -> None:
        """Keeps a run."""
        save_run(run, self.path(run.rate_rps, run.seed))

    def all(self) -> list[Run]:
        """Every run kept, by rate and seed."""
        return load_runs(self.folder)

    @classmethod
    def fitting(cls, folder: Path, about: dict[str, Any]) -> RunFolder:
        """The folder, or the first of FOLDER.2, FOLDER.3, ... that holds no other configuration."""
        number, place = 1, folder
        while True:
            try:
                return cls(place, about)
            except InvalidInput:
                number += 1
                place = folder.with_name(f"{folder.name}.{number}")


def save_run(run: Run, path: Path) -> None:
    """Writes a run; the file appears only when it is complete."""
    content = {name: getattr(run, name) for name in _run_fields()}
    content["outcomes"] = {
        column: [_rounded(getattr(item, column)) for item in run.outcomes] for column in _COLUMNS
    }
    text = json.dumps({"format": FORMAT, "version": VERSION, **content})
    part = path.with_suffix(".part")
    part.write_bytes(gzip.compress(text.encode(), mtime=0))
    part.replace(path)


def load_run(path: Path) -> Run:
    """Reads a run written by `save_run`.

    Raises:
        InvalidInput: Not a run file.
    """
    try:
        content = json.loads(gzip.decompress(path.read_bytes()))
        if content["format"] != FORMAT or content["version"] != VERSION:
            raise ValueError(f'not "format": "{FORMAT}", "version": {VERSION}')
        columns = content["outcomes"]
        rows = zip(*(columns[name] for name in _COLUMNS), strict=True)
        content["outcomes"] = tuple(
            Outcome(**dict(zip(_COLUMNS, row, strict=True))) for row in rows
        )
        return Run(**{name: content[name] for name in _run_fields()})
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"run {path}: not a measured run ({error!r}); remove it") from None


def load_runs(folder: Path) -> list[Run]:
    """Every run of a folder, by rate and seed.

    Raises:
        InvalidInput: One is damaged.
    """
    runs = map(load_run, folder.glob("*rps-seed*.json.gz"))
    return sorted(runs, key=lambda run: (run.rate_rps, run.seed))


def _run_fields() -> tuple[str, ...]:
    return tuple(field.name for field in fields(Run))


def _rounded(value: Any) -> Any:
    """Microseconds are enough, and make the files a third as large."""
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return value


def _must_equal(folder: Path, found: dict[str, Any], about: dict[str, Any]) -> None:
    there, here = _flat(found), _flat(about)
    for name in sorted(there.keys() | here.keys()):
        if there.get(name) != here.get(name):
            raise InvalidInput(
                f"{folder} holds runs with {name} {there.get(name)!r}, not {here.get(name)!r}: "
                "choose another folder"
            )


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        inner = _flat(cast("dict[str, Any]", value)) if isinstance(value, dict) else None
        flat |= {name: value} if inner is None else inner
    return flat
