"""Capacity inside a real notebook kernel: left alone, and while a cell computes in pure Python.

`python -m voxserve.bench.kernel_load --device cuda` starts an ipykernel, makes the engine in it,
looks for the capacity twice within a time budget and prints one JSON object, whatever happens.
Both times a display reads at 10 Hz. What each run found appears on standard error.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from voxserve.bench import machine
from voxserve.bench.quick_search import HOLDS, Display, compute_until, next_rate, quick_sweep
from voxserve.bench.runs import figures
from voxserve.bench.tables import Figure, Results
from voxserve.core.errors import EngineFailed
from voxserve.core.slo import capacity_rps
from voxserve.engine.engine import Engine

QUIET, BUSY = "quiet", "busy"
ALLOWED_LOSS = 0.1  # of the capacity, to a busy cell
_MARK = "kernel-load:"
_RUN_OVERHEAD_S = 8.0  # of a run beyond its arrivals, until one was measured
_CELL_GRACE_S = 120.0
_START_S = 300.0
_QUIET_SHARE = 0.55  # of the time for both searches: the second starts from what the first found
_SETUP = """
from voxserve.bench.kernel_load import KernelLoad
load = KernelLoad(**{options!r})
"""
_CELLS = {QUIET: "load.begin('quiet'); load.join()", BUSY: "load.begin('busy'); load.compute()"}
_STOP = "load.stop()"


class KernelLoad:
    """Runs in the kernel: an engine, and a search for its capacity on a thread.

    Args:
        model, device, weights: As for `Engine`.
        settings: Of the engine.
        workload: By name.
        start: First rate of the first search.
        seconds: Arrivals per run.
        most_runs: Of one search.
        budget_s: Seconds for both searches.
    """

    def __init__(
        self,
        model: str,
        device: str,
        weights: str | None,
        settings: dict[str, Any],
        workload: str,
        start: float,
        seconds: float,
        most_runs: int,
        budget_s: float,
    ) -> None:
        begun_s = time.monotonic()
        self._engine = Engine(model, device, weights=weights, name="kernel", **settings)
        self._weights, self._workload = weights, workload
        self._start, self._seconds, self._most_runs = start, seconds, most_runs
        self._until_s = time.monotonic() + budget_s
        self._run_s = seconds + _RUN_OVERHEAD_S
        self._attainment: dict[str, dict[float, float]] = {QUIET: {}, BUSY: {}}
        self._thread: threading.Thread | None = None
        started = {"seconds": time.monotonic() - begun_s, "settings": repr(self._engine.settings)}
        _say("start", started | {"report": self._engine.start_report})

    def begin(self, name: str) -> None:
        """Starts a search."""
        self._thread = threading.Thread(target=self._search, args=(name,), daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Waits for it, as an idle cell."""
        assert self._thread is not None, "begin comes first"
        self._thread.join()

    def compute(self) -> None:
        """Waits for it computing in the cell."""
        thread = self._thread
        assert thread is not None, "begin comes first"
        compute_until(lambda: not thread.is_alive())

    def stop(self) -> None:
        """Ends the engine."""
        self._engine.stop()

    def _search(self, name: str) -> None:
        try:
            self._measure(name)
        except Exception:  # border: what other runs found must be told
            _say("error", {"where": name, "told": traceback.format_exc()[-3000:]})

    def _measure(self, name: str) -> None:
        now_s = time.monotonic()
        share = _QUIET_SHARE if name == QUIET else 1.0
        until_s = now_s + share * (self._until_s - now_s)
        found = self._attainment[name]
        with tempfile.TemporaryDirectory() as folder, Display(self._engine):
            sweep = quick_sweep(
                self._engine, self._weights, self._workload, self._seconds, Path(folder)
            )
            for _ in range(self._most_runs):
                begun_s = time.monotonic()
                rate = self._next(name)
                if not rate or (found and begun_s + self._run_s > until_s):
                    break
                row = figures([sweep.measure(rate, seed=0)])
                found[rate] = row["attainment"]
                self._run_s = time.monotonic() - begun_s
                _say(name, row)

    def _next(self, name: str) -> float:
        """The next rate; 0 when enough is known."""
        found = self._attainment[name]
        capacity = capacity_rps(self._attainment[QUIET], HOLDS)
        if name == QUIET or not capacity:
            return next_rate(found, self._start)
        return next_busy_rate(found, capacity)


def next_busy_rate(attainment: Mapping[float, float], quiet_rps: float) -> float:
    """The next rate beside a busy cell: the capacity without it, what it may fall to, between.

    Args:
        attainment: By rate, of what was measured beside it.
        quiet_rps: Capacity without it.

    Returns:
        0 when it is known by how much the capacity falls, or that it doesn't.
    """
    if attainment.get(quiet_rps, 0.0) >= HOLDS:
        return 0.0
    for rate in (quiet_rps, round((1.0 - ALLOWED_LOSS) * quiet_rps, 2)):
        if rate not in attainment:
            return rate
    return next_rate(attainment, quiet_rps)


@dataclass(slots=True)
class Heard:
    """What the kernel told so far.

    Attributes:
        parts: (name, content), in order.
        on_part: Called with each.
    """

    on_part: Callable[[str, Mapping[str, Any]], object]
    parts: list[tuple[str, dict[str, Any]]] = field(default_factory=list[Any])
    _rest: str = ""

    def listen(self, message: Mapping[str, Any]) -> None:
        """Takes a message of the kernel's output channel."""
        content = message["content"]
        if message["msg_type"] != "stream" or content["name"] != "stdout":
            return
        *lines, self._rest = (self._rest + content["text"]).split("\n")
        for line in lines:
            if line.startswith(_MARK):
                name, told = json.loads(line.removeprefix(_MARK))
                self.parts.append((name, told))
                self.on_part(name, told)

    def found(self) -> dict[str, Any]:
        """JSON-ready: rows and capacity of both searches, and what is kept beside a busy cell."""
        result: dict[str, Any] = {"start": {}, QUIET: {"rates": []}, BUSY: {"rates": []}}
        errors: list[Any] = []
        for name, told in self.parts:
            if name == "start":
                result["start"] = told
            elif name in _CELLS:
                result[name]["rates"].append(told)
            else:
                errors.append(told)
        for name in _CELLS:
            rows = result[name]["rates"]
            attainment = {row["rate_rps"]: row["attainment"] for row in rows}
            result[name]["attainment"] = {f"{rate:g}": at for rate, at in attainment.items()}
            result[name]["capacity_rps"] = capacity_rps(attainment, HOLDS) if rows else None
        quiet, busy = (result[name]["capacity_rps"] for name in (QUIET, BUSY))
        result["kept_share"] = busy / quiet if quiet and busy is not None else None
        return result | ({"errors": errors} if errors else {})


def measure(options: dict[str, Any], on_part: Callable[..., object] = print) -> dict[str, Any]:
    """Both searches, each in its own cell of a fresh kernel; what fails is told in `errors`.

    Args:
        options: Of `KernelLoad`.
        on_part: Called with what each run found.
    """
    heard = Heard(on_part)
    try:
        _in_kernel(options, heard)
    except Exception:  # border: what is known must be told
        heard.parts.append(("error", {"where": "kernel", "told": traceback.format_exc()[-3000:]}))
    return heard.found()


def _in_kernel(options: dict[str, Any], heard: Heard) -> None:
    from jupyter_client.manager import start_new_kernel

    manager, client = cast("tuple[Any, Any]", start_new_kernel(kernel_name="python3"))
    longest_s = options["budget_s"] + _CELL_GRACE_S
    cells = [(_SETUP.format(options=options), _START_S)]
    cells += [(code, longest_s) for code in (*_CELLS.values(), _STOP)]
    try:
        for code, timeout_s in cells:
            reply = client.execute_interactive(
                code, timeout=timeout_s, output_hook=heard.listen, allow_stdin=False
            )
            content = reply["content"]
            if content["status"] != "ok":
                raise EngineFailed(f"in the kernel: {content['ename']}: {content['evalue']}")
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def results_of(found: Mapping[str, Any], about: Mapping[str, Any], command: str) -> Results:
    """A results file's content from what `measure` found.

    Args:
        found: From `measure`.
        about: device, date, versions and settings of the results.
        command: That measured it.
    """
    rows: list[Figure] = []
    for name, cell in ((QUIET, "idle cell"), (BUSY, "cell computing in pure Python")):
        rps = found[name]["capacity_rps"]
        tried: list[dict[str, Any]] = found[name]["rates"]
        at = next((row for row in tried if row["rate_rps"] == rps), dict[str, Any]())
        label = f"capacity at {HOLDS:.0%} in a notebook kernel, display at 10 Hz, {cell} (1 seed)"
        rows += [
            Figure(label, rps or None, "req/s", better="higher"),
            Figure(f"longest host delay there, {cell}", at.get("host_delay_max_ms"), "ms"),
            Figure(f"turn of the serving thread there, {cell}, p99", at.get("turn_p99_ms"), "ms"),
        ]
    kept = Figure(
        "capacity kept beside the computing cell",
        *(found["kept_share"], "share", 1.0 - ALLOWED_LOSS),
        better="higher",
    )
    return Results(**about, command=command, rows=(*rows, kept))


def _say(name: str, content: Mapping[str, Any]) -> None:
    """A line of the kernel's output that the other side understands."""
    sys.stdout.write(f"{_MARK}{json.dumps([name, content], default=str)}\n")
    sys.stdout.flush()


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints one JSON object."""
    begun_s = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="qwen3-tts-1.7b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--weights", default="random")
    parser.add_argument("--ramp", default="10", help="chunk_ramp")
    parser.add_argument("--workload", default="libritts")
    parser.add_argument("--start", type=float, default=96.0, help="first rate")
    parser.add_argument("--seconds", type=float, default=15.0, help="arrivals per run")
    parser.add_argument("--most-runs", type=int, default=6, help="of each search")
    parser.add_argument("--budget", type=float, default=170.0, help="seconds for both searches")
    parser.add_argument("--output", help="also write the JSON there")
    parser.add_argument("--results", type=Path, help="also write it as a results file")
    args = vars(parser.parse_args(argv))
    output, results, budget_s = args.pop("output"), args.pop("results"), args.pop("budget")
    settings = {"chunk_ramp": args.pop("ramp")}
    weights = args.pop("weights") or None
    options = {**args, "weights": weights, "settings": settings, "budget_s": budget_s}

    def progress(name: str, told: Mapping[str, Any]) -> None:
        words = ", ".join(f"{key} {told[key]}" for key in _SHOWN if key in told) or str(told)
        print(f"[{time.monotonic() - begun_s:6.1f} s] {name}: {words}", file=sys.stderr, flush=True)  # noqa: T201

    found = measure(options, progress)
    text = json.dumps(found | {"seconds_in_all": round(time.monotonic() - begun_s, 1)})
    sys.stdout.write(text + "\n")
    if output:
        Path(output).write_text(text + "\n", encoding="utf-8")
    if results:
        about = {
            "device": machine.device_name(args["device"]),
            "date": datetime.now(UTC).date().isoformat(),
            "versions": machine.versions("torch", "triton"),
            "settings": machine.revision() | options,
        }
        results_of(found, about, "python -m voxserve.bench.kernel_load").save(results)
    return 1 if "errors" in found else 0


_SHOWN = (
    *("rate_rps", "attainment", "ttfa_p50_ms", "ttfa_p99_ms", "sent_late_p99_ms"),
    *("host_delay_max_ms", "turn_p50_ms", "turn_p99_ms", "most_active", "stopped"),
)


if __name__ == "__main__":
    sys.exit(main())
