"""Measures what the workbench costs, in a real browser, and puts it into its results file.

    python tests/browser/measure_costs.py growth   # 11 minutes: memory of browser and kernel
    python tests/browser/measure_costs.py steps    # 3 minutes: the engine's steps, with and without
Both need a machine that does nothing else; for the steps a root user's other processes do no harm.
"""

from __future__ import annotations

import datetime
import os
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from browser import lab

from voxserve.bench import machine
from voxserve.bench.tables import RESULTS_DIR, Figure, Results, load_results

MINUTES, FROM_MINUTE = 10, 3
MEGABYTE = 1e6
# Fills the trace, which keeps the last 200,000 records, before the first minute that counts.
RATE_RPS = 70.0
START = """
import json, os, time
import numpy as np, psutil, voxserve
engine = voxserve.Engine("vox-tiny", "sim:h200")
"""
SHOW = "workbench = voxserve.Workbench(engine)\nworkbench"
RSS = "__import__('psutil').Process().memory_info().rss"

STEPS_RPS, PAIRS = 40.0, 3
SETTLE_S, SEGMENT_S = 2.0, 18.0
# The same requests at the same times in every segment.
BEGIN = f"""
engine.load(rate_rps=0.0)
engine.wait(10.0)
engine.load("libritts@regular", rate_rps={STEPS_RPS})
time.sleep({SETTLE_S})
num_turns, num_records = engine.num_turns, engine.trace.total
"""
# A step goes from one launch of the backbone to the next; a gap in which nothing ran is none.
END = """
turns_s = engine.turns(engine.num_turns - num_turns)[:, 0]
records = engine.trace.since(num_records)[0]
spans = [r for r in records if getattr(r, "lane", None) == "lm" and hasattr(r, "queued_s")]
pairs = [(a, b) for a, b in zip(spans, spans[1:]) if b.queued_s - a.end_s < 0.05]
steps_s = [b.queued_s - a.queued_s for a, b in pairs]
"""
P99_MS = "[float(np.percentile(times, 99)) * 1e3 for times in (turns_s, steps_s)]"
COUNTS = "[len(turns_s), len(steps_s)]"


@contextmanager
def shown() -> Iterator[lab.Page]:
    """A page of JupyterLab with an engine and its workbench in two cells that have run."""
    with lab.workbench_page("costs", (START, SHOW)) as page:
        yield page
        lab.evaluate(page, "0", "workbench.close(); engine.stop()")


def growth() -> list[Figure]:
    """Minutes of load, listening, sliders and paused figures; what memory grew by meanwhile."""
    sizes: list[dict[str, float]] = []
    with shown() as page:
        lab.evaluate(page, "0", f"engine.load('libritts', rate_rps={RATE_RPS})")
        begin_s = time.monotonic()
        for minute in range(1, MINUTES + 1):
            _use(page, begin_s + 60 * minute)
            sizes.append(_sizes(page))
            told = ", ".join(f"{name} {value:.2f}" for name, value in sizes[-1].items())
            sys.stdout.write(f"minute {minute}: {told}\n")
            sys.stdout.flush()
        is_full = lab.evaluate(page, "engine.trace.total > engine.trace.capacity")
        assert is_full, "the trace still grew"
        assert not page.problems, page.problems  # type: ignore[attr-defined]
    grown = {name: sizes[-1][name] - sizes[FROM_MINUTE - 1][name] for name in sizes[0]}
    span = f"from minute {FROM_MINUTE} to {MINUTES}"
    return [
        Figure(f"JS heap growth {span}, after collection", round(grown["heap_mb"], 2), "MB", 5),
        Figure(f"growth of the page's DOM nodes {span}", grown["nodes"], "", 100),
        Figure(f"kernel RSS growth {span}", round(grown["rss_mb"], 2), "MB", 5),
    ]


def _use(page: lab.Page, until_s: float) -> None:
    """A minute of a user's: speaks, moves a slider there and back, pauses and goes on."""
    while time.monotonic() < until_s - 22:
        page.locator(".vs-buttons .mod-primary").click()
        lab.slider(page, "Margin").focus()
        for key in ("ArrowRight", "ArrowLeft"):
            page.keyboard.press(key)
            page.wait_for_timeout(4000)
        page.hover(".vs-timeline canvas")
        page.wait_for_timeout(9000)
    page.locator(".vs-freeze").click()
    page.wait_for_selector(".vs-plot .main-svg")
    page.wait_for_timeout(2000)
    page.locator(".vs-freeze").click()
    page.wait_for_timeout(1000 * max(0.0, until_s - time.monotonic()))


def _sizes(page: lab.Page) -> dict[str, float]:
    session = page.context.new_cdp_session(page)
    for _ in range(2):  # what the first collection finalizes, the second one frees
        session.send("HeapProfiler.collectGarbage")
    used = session.send("Runtime.getHeapUsage")
    nodes = session.send("Memory.getDOMCounters")["nodes"]
    session.detach()
    return {
        "heap_mb": (used["usedSize"] + used.get("backingStorageSize", 0)) / MEGABYTE,
        "nodes": nodes,
        "rss_mb": lab.evaluate(page, RSS) / MEGABYTE,
    }


def steps() -> list[Figure]:
    """The engine's steps without and with a workbench in turn, under the same load."""
    with shown() as page:
        where, how = _keep_apart(page), _keep_unpreempted(page)
        lab.evaluate(page, "0", "workbench.close()")
        pairs = [(_segment(page), _shown_segment(page)) for _ in range(PAIRS)]
    rows: list[Figure] = []
    for place, name in enumerate(("serving thread's turn", "engine step, launch to launch")):
        without, beside = ([side[place] for side in sides] for sides in zip(*pairs, strict=True))
        ratio = statistics.median(b / a for a, b in zip(without, beside, strict=True))
        told = (
            f"{name}, p99 with the workbench{where}, simulated H200 at {STEPS_RPS:g} requests/s, "
            f"median of {PAIRS} pairs, against {statistics.median(without):.2f} ms without{how}"
        )
        rows.append(Figure(told, round(100 * (ratio - 1), 1), "% longer", 5))
    return rows


def _keep_apart(page: lab.Page) -> str:
    """Gives the kernel a core of its own, as if the browser ran elsewhere; says so."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        return ""
    kernel = lab.evaluate(page, "os.getpid()")
    for process in _tree(os.getpid()):
        for thread in Path(f"/proc/{process}/task").iterdir():
            own = cores[:1] if process == kernel else cores[1:]
            os.sched_setaffinity(int(thread.name), own)
    return " in a browser on another core"


def _keep_unpreempted(page: lab.Page) -> str:
    """Gives the kernel's threads their core in turn and before all else, where that is permitted.

    Nothing else on the machine counts then, and the serving thread has to wait until the others
    rest: the usual scheduling, which interrupts them for it, is kinder.
    """
    kernel = lab.evaluate(page, "os.getpid()")
    try:
        for thread in Path(f"/proc/{kernel}/task").iterdir():
            os.sched_setscheduler(int(thread.name), os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        return ""
    return ", threads unpreempted"


def _tree(root: int) -> list[int]:
    """A process and its descendants."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it ended meanwhile
        children.setdefault(parent, []).append(int(stat.parent.name))
    found = [root]
    for process in found:
        found += children.get(process, [])
    return found


def _segment(page: lab.Page) -> list[float]:
    """99th percentiles in ms: the serving thread's turns, the engine's steps."""
    _keep_unpreempted(page)  # its new threads, too
    lab.evaluate(page, "0", BEGIN)
    page.wait_for_timeout(1000 * SEGMENT_S)
    turn_ms, step_ms = lab.evaluate(page, P99_MS, END)
    counts = lab.evaluate(page, COUNTS)
    sys.stdout.write(f"p99: turn {turn_ms:.3f} ms, step {step_ms:.3f} ms, of {counts}\n")
    sys.stdout.flush()
    return [turn_ms, step_ms]


def _shown_segment(page: lab.Page) -> list[float]:
    page.evaluate("() => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = 1; }")
    lab.command(page, "notebook:run-cell")
    lab.show_workbench(page)
    measured = _segment(page)
    lab.evaluate(page, "0", "workbench.close()")
    return measured


def record(device: str, rows: list[Figure], command: str) -> None:
    """Puts rows into the results file, in place of the same command's earlier ones."""
    path = RESULTS_DIR / "workbench.json"
    before = load_results(path)
    commands = [c for c in before.command.split("; ") if c != command]
    kept = [row for row in before.rows if _topic(row) not in map(_topic, rows)]
    Results(
        device=device,
        date=datetime.date.today().isoformat(),
        versions=machine.versions("ipywidgets", "anywidget", "jupyterlab"),
        settings=machine.revision(),
        command="; ".join([*commands, command]),
        rows=(*kept, *rows),
    ).save(path)


def _topic(row: Figure) -> str:
    """What was measured, without what it was measured against."""
    return row.figure.partition(", against")[0]


def main(what: list[str]) -> int:
    """Measures what is asked for."""
    measures = {"growth": growth, "steps": steps}
    if len(what) != 1 or what[0] not in measures:
        sys.stderr.write(__doc__ or "")
        return 2
    device = machine.cpu_name()  # before this process keeps to some of the cores
    record(device, measures[what[0]](), f"python tests/browser/measure_costs.py {what[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
