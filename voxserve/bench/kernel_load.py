"""Capacity inside a real notebook kernel: left alone, and while a cell computes in pure Python.

`python -m voxserve.bench.kernel_load --device cuda` starts an ipykernel, makes the engine in it,
looks for the capacity twice and prints one JSON object. Both times a display reads at 10 Hz.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from voxserve.bench.quick_search import HOLDS, Display, compute_until, next_rate, quick_sweep
from voxserve.core.errors import EngineFailed
from voxserve.core.slo import capacity_rps
from voxserve.engine.engine import Engine

_MARK = "kernel-load:"
_START_S = 300.0
_SETUP = """
from voxserve.bench.kernel_load import KernelLoad
load = KernelLoad(**{options!r})
"""
_QUIET = "load.begin(); load.join()"
_BUSY = "load.begin(); load.compute()"
_TELL = "load.tell()"


class KernelLoad:
    """Runs in the kernel: an engine, and a search for its capacity on a thread.

    Args:
        model, device, weights: As for `Engine`.
        settings: Of the engine.
        workload: By name.
        start: First rate of a search.
        seconds: Arrivals per run.
        most_runs: Of one search.
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
    ) -> None:
        self._engine = Engine(model, device, weights=weights, name="kernel", **settings)
        self._weights, self._workload = weights, workload
        self._start, self._seconds, self._most_runs = start, seconds, most_runs
        self._thread: threading.Thread | None = None
        self.found: list[dict[str, Any]] = []

    def begin(self) -> None:
        """Starts a search."""
        self._thread = threading.Thread(target=self._search, name="kernel-load", daemon=True)
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

    def tell(self) -> None:
        """Prints what was found, and ends the engine."""
        self._engine.stop()
        sys.stdout.write(f"{_MARK}{json.dumps(self.found)}\n")

    def _search(self) -> None:
        with tempfile.TemporaryDirectory() as folder, Display(self._engine):
            sweep = quick_sweep(
                self._engine, self._weights, self._workload, self._seconds, Path(folder)
            )
            for _ in range(self._most_runs):
                rate = next_rate(sweep.attainment(), self._start)
                if not rate:
                    break
                sweep.measure(rate, seed=0)
        attainment = sweep.attainment()
        capacity = capacity_rps(attainment, HOLDS)
        self.found.append({"attainment": attainment, "capacity_rps": capacity})
        self._start = capacity or self._start


def measure(options: dict[str, Any], timeout_s: float = _START_S) -> dict[str, Any]:
    """Both searches, each in its own cell of a fresh kernel.

    Args:
        options: Of `KernelLoad`.
        timeout_s: For each cell.

    Raises:
        EngineFailed: A cell failed; says how.
    """
    from jupyter_client.manager import start_new_kernel

    manager, client = cast("tuple[Any, Any]", start_new_kernel(kernel_name="python3"))
    printed: list[str] = []

    def listen(message: dict[str, Any]) -> None:
        content = message["content"]
        if message["msg_type"] == "stream" and content["name"] == "stdout":
            printed.append(content["text"])

    try:
        for code in (_SETUP.format(options=options), _QUIET, _BUSY, _TELL):
            reply = client.execute_interactive(code, timeout=timeout_s, output_hook=listen)
            content = reply["content"]
            if content["status"] != "ok":
                raise EngineFailed(f"in the kernel: {content['ename']}: {content['evalue']}")
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    told = next(line for line in "".join(printed).splitlines() if line.startswith(_MARK))
    quiet, busy = json.loads(told.removeprefix(_MARK))
    kept = busy["capacity_rps"] / quiet["capacity_rps"] if quiet["capacity_rps"] else 0.0
    return {"quiet": quiet, "busy": busy, "kept_share": kept}


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="qwen3-tts-1.7b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--weights", default="random")
    parser.add_argument("--ramp", default="10", help="chunk_ramp")
    parser.add_argument("--workload", default="libritts")
    parser.add_argument("--start", type=float, default=96.0, help="first rate")
    parser.add_argument("--seconds", type=float, default=20.0, help="arrivals per run")
    parser.add_argument("--most-runs", type=int, default=5, help="of each search")
    args = vars(parser.parse_args(argv))
    settings = {"chunk_ramp": args.pop("ramp")}
    options = {**args, "weights": args["weights"] or None, "settings": settings}
    sys.stdout.write(json.dumps(measure(options)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
