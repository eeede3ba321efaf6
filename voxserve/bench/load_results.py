"""Makes the load table from stored runs: sweeps, figures, traces and pages, without a GPU.

`python -m voxserve.bench.load_results RUNS...` reads archives or folders of `bench.gpu_load` and
writes a sweep for each configuration into the package's results, beside those that are there
(call it once for each split), and makes `h200-load.json` of all of them.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from voxserve.bench import machine, run_store
from voxserve.bench.load_table import SHORT, figures_of
from voxserve.bench.report import configuration_report, save_page
from voxserve.bench.runs import load_runs
from voxserve.bench.tables import RESULTS_DIR, Results
from voxserve.bench.thin_trace import save_below
from voxserve.core import trace_file

NAME = "h200-load"
COMMAND = "python -m voxserve.bench.gpu_load"
TRACES_DIR = RESULTS_DIR.parent / "traces"
MOST_TRACE_BYTES = 300_000
_OTHER = ("idle", "host")  # measured without a load of arrivals


def sweeps_of(store: Path) -> dict[str, dict[str, Any]]:
    """A report for each configuration that was measured with full runs, by folder name.

    Args:
        store: As `run_store.unpack` makes it.
    """
    found: dict[str, dict[str, Any]] = {}
    for described in sorted(store.glob("*/configuration.json")):
        runs = load_runs(described.parent)
        if runs:
            about = json.loads(described.read_text(encoding="utf-8"))
            found[described.parent.name] = configuration_report(about, runs, COMMAND)
    return found


def save_sweeps(store: Path, folder: Path) -> list[Path]:
    """Writes every sweep, and what was measured without arrivals, one file each.

    Returns:
        What was written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for name, report in sweeps_of(store).items():
        if not name.startswith("split-"):
            split = report["configuration"]["settings"]["sm_split"].replace("/", "-")
            written.append(folder / f"{name}.{split}.sweep.json")
            written[-1].write_text(_readable(report), encoding="utf-8")
    for path in sorted(store.glob("*.json")):
        if path.name.startswith(_OTHER):
            written.append(folder / path.name)
            written[-1].write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    return written


def table_of(folder: Path, gpu: str = "NVIDIA H200") -> Results:
    """The load table from saved sweeps.

    Args:
        folder: As `save_sweeps` wrote it.
        gpu: Where nothing in the folder names it.
    """
    sweeps = {
        path.name.removesuffix(".sweep.json"): json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("*.sweep.json"))
    }
    others = {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("*.json"))
        if path.name.startswith(_OTHER)
    }
    made = [report["made"] for report in sweeps.values()] + [o["made"] for o in others.values()]
    dates = sorted({item["date"][:10] for item in made if "date" in item})
    splits = {report["configuration"]["settings"]["sm_split"] for report in sweeps.values()}
    nothing: dict[str, Any] = {"configuration": {}, "made": {}}
    long = (report for name, report in sweeps.items() if SHORT not in name)
    first: dict[str, Any] = next(long, nothing)
    settings = {
        "model": first["configuration"].get("model"),
        "weights": first["configuration"].get("weights"),
        "seconds": first["configuration"].get("seconds"),
        "ttfa_target_s": first["configuration"].get("ttfa_target_s"),
        "splits": sorted(splits),
        "revisions": sorted({_revision(item) for item in made} - {""}),
        "built_by": machine.revision(),
    }
    return Results(
        device=next((item["gpu"] for item in made if item.get("gpu")), gpu),
        date=dates[-1] if dates else date.today().isoformat(),
        versions=first["made"].get("versions", {}),
        settings=settings,
        command=COMMAND,
        rows=tuple(figures_of(sweeps, others)),
    )


def save_traces(store: Path, picked: Sequence[str], folder: Path) -> list[Path]:
    """Writes traces small enough for the repository.

    Args:
        store: With `traces/`.
        picked: "FIGURE@RATE=NAME": which run, and what to call it.
        folder: For them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for item in picked:
        which, _, name = item.partition("=")
        figure, _, rate = which.partition("@")
        trace = trace_file.load(store / run_store.TRACES / f"{figure}-{rate}rps.trace.jsonl.gz")
        written.append(folder / f"{name}.trace.jsonl.gz")
        save_below(trace, written[-1], MOST_TRACE_BYTES)
    return written


def _revision(made: dict[str, Any]) -> str:
    return str(made.get("revision") or made.get("git_revision") or "")  # as told, or as found


def _readable(report: dict[str, Any]) -> str:
    """JSON with one line per rate and run, so that diffs read well and files stay small."""
    lists = {name: report[name] for name in ("rates", "runs")}
    head = json.dumps({k: v for k, v in report.items() if k not in lists}, indent=1)[:-2]
    parts = [
        f' "{name}": [\n' + ",\n".join("  " + json.dumps(_rounded(row)) for row in rows) + "\n ]"
        for name, rows in lists.items()
    ]
    return f"{head},\n" + ",\n".join(parts) + "\n}\n"


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    """Six digits: more is noise."""
    return {k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in row.items()}


def _save_pages(store: Path, folder: Path) -> None:
    for name, report in sweeps_of(store).items():
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        save_page(report, place)


def main(argv: Sequence[str] | None = None) -> int:
    """Writes what was asked for and tells what."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="*", help="archives or folders of runs")
    parser.add_argument("--results", type=Path, default=RESULTS_DIR, help="folder of results")
    parser.add_argument("--html", type=Path, help="also a page for each sweep, short ones included")
    parser.add_argument(
        "--trace", action="append", default=[], metavar="FIGURE@RATE=NAME", help="keep this trace"
    )
    parser.add_argument("--traces", type=Path, default=TRACES_DIR, help="folder for traces")
    args = parser.parse_args(argv)
    written: list[Path] = []
    if args.runs:
        with tempfile.TemporaryDirectory() as place:
            store = Path(place)
            run_store.unpack(map(Path, args.runs), store, with_traces=True)
            written += save_sweeps(store, args.results / NAME)
            written += save_traces(store, args.trace, args.traces)
            if args.html and find_spec("plotly") is not None:
                _save_pages(store, args.html)
                written.append(args.html)
    written.append(args.results / f"{NAME}.json")
    table_of(args.results / NAME).save(written[-1])
    print("\n".join(map(str, written)))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
