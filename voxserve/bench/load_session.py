"""One engine's part of a GPU's load table: each part measured, told and kept as it ends."""

from __future__ import annotations

import argparse
import json
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from voxserve.bench import run_store
from voxserve.bench.client import LoadRun
from voxserve.bench.idle import held_full, idle_ttfa
from voxserve.bench.load_cases import THRESHOLDS, Budget, Case, gives_up_on, short_run_share
from voxserve.bench.load_sweep import Sweep, SweepPlan
from voxserve.bench.runs import Run, RunFolder, figures
from voxserve.bench.search import Bracket, next_point, on_grid, probes
from voxserve.bench.target import EngineTarget
from voxserve.bench.thin_trace import thinned
from voxserve.core import trace_file
from voxserve.core import workload as workloads
from voxserve.core.slo import capacity_rps
from voxserve.core.trace_file import SavedTrace
from voxserve.engine.engine import Engine

OVERLOAD = 1.1  # of the capacity at 90 %
IDLE_RAMPS = ((2, 10), (4, 10), (10,))
TRACE_S = 12.0
_DRAIN_S = 30.0
_STEP_RPS, _COARSE_RPS = 2.0, 8.0
_LINE = (
    *("rate_rps", "attainment", "goodput_rps", "ttfa_p50_ms", "ttfa_p90_ms", "stalled_share"),
    *("rejected", "lag_growth", "decode_busy", "background_busy", "turn_p50_ms", "turn_p99_ms"),
)


class LoadSession:
    """One engine's part of the load table.

    Args:
        engine: Its settings are the defaults that cases change.
        weights: What it was started with.
        store: Folder of all runs.
        output: Where they are packed after each.
        budget: Of time.
        args: The command's.
    """

    def __init__(
        self,
        engine: Engine,
        weights: str | None,
        store: Path,
        output: Path,
        budget: Budget,
        args: argparse.Namespace,
    ) -> None:
        self.engine, self.store, self.output = engine, store, output
        self.budget, self.args = budget, args
        # What a simulated device prepares is spoken once.
        keeps = not engine.device_name.startswith("sim:")
        self.target = EngineTarget(engine, weights, keeps_requests=keeps)
        settings = engine.settings
        self.usual: dict[str, Any] = {
            "chunk_ramp": settings.chunk_ramp,
            "lane_mode": settings.lane_mode,
            "sm_split": settings.sm_split,
        }
        self.summary: dict[str, Any] = {"lines": [], "capacity_rps": {}}
        self._is_warm = False

    def say(self, text: str) -> None:
        """Prints a line and keeps it."""
        line = f"[{self.budget.spent_s:6.1f} s, {self.budget.left_s:5.0f} left] {text}"
        print(line, flush=True)  # noqa: T201
        self.summary["lines"].append(line)

    def pack(self) -> None:
        """Brings what there is into the output folder."""
        run_store.pack(self.store, self.output)
        self.summary["skipped"] = self.budget.skipped
        text = json.dumps(self.summary, indent=1, default=str)
        (self.output / "summary.json").write_text(text + "\n", encoding="utf-8")

    def part(self, name: str, act: Callable[[], object]) -> None:
        """One part of the session; an error is told, and the next part goes on."""
        try:
            act()
        except Exception:  # border: the other figures must survive
            self.say(f"{name} failed: {traceback.format_exc()[-2000:]}")
        self.pack()

    # --- parts -------------------------------------------------------------------------------

    def idle(self) -> None:
        """First audio of a lonely request, by first chunk."""
        self._apply({})
        for ramp in IDLE_RAMPS:
            if set(ramp) <= set(self.engine.prepared.chunk_frames):
                found = idle_ttfa(self.engine, ramp)
                self._keep(f"idle-{'-'.join(map(str, ramp))}", found)
        self._apply({})

    def host(self) -> None:
        """Host time between steps with 256 requests running."""
        self._apply({})
        if self.budget.fits("host", 0.0):
            self._keep("host", held_full(self.engine, self.target, self.args.held_seconds))

    def choose_split(self, case: Case) -> None:
        """Keeps the split that serves a short run best, at the rate a search would start with."""
        best: tuple[float, float] | None = None
        for split in self.args.split:
            if not self.budget.fits(f"split {split}", self.args.short_seconds):
                break
            begun_s = time.monotonic()
            if split not in map(str, self.engine.prepared.splits):
                self.engine.prepare_split(split)
            self.say(f"split {split} prepared in {time.monotonic() - begun_s:.1f} s")
            self._apply({**case.settings, "sm_split": split})
            run = self._short_sweep(case, f"split-{split.replace('/', '_')}").measure(
                on_grid(case.start_rps, _STEP_RPS), 0
            )
            self._tell(f"split {split}", run)
            score = (run.attainment, -run.observed.get("lag_growth", 0.0))
            if best is None or score > best:
                best = score
                self.usual["sm_split"] = self.engine.settings.sm_split
        self.say(f"split {self.usual['sm_split']} from here on")

    def bracket(self, case: Case) -> None:
        """Short runs until the capacity lies within a coarse step."""
        self._apply(case.settings)
        if self._full_sweep(case).runs:
            return  # long runs say more
        sweep = self._short_sweep(case, f"{case.name}-short")
        for threshold in THRESHOLDS:
            while True:
                shares = _short_shares(sweep)
                known = Bracket.of(shares, threshold)
                rates = probes(known, case.start_rps, _COARSE_RPS, growth=1.15)
                if not rates or not self.budget.fits(
                    f"{case.name}, bracket", self.args.short_seconds
                ):
                    break
                self._tell(f"{case.name}, short", self._timed(sweep, rates[0], 0))
                self.pack()

    def settle(self, case: Case, level: int) -> None:
        """Full runs up to a level of certainty (see `bench.search.next_point`)."""
        self._apply(case.settings)
        sweep = self._full_sweep(case)
        guesses = self._guesses(case)
        while True:
            seeds_of = {rate: {run.seed for run in runs} for rate, runs in sweep.by_rate().items()}
            point = next_point(
                sweep.attainment(), seeds_of, guesses, sweep.plan.seeds, _STEP_RPS, level
            )
            if point is None or not self.budget.fits(f"{case.name}, level {level}", self._long_s):
                break
            self._tell(f"{case.name}, seed {point[1]}", self._timed(sweep, *point))
            self._note_capacity(case, sweep)
            self.pack()

    def point(self, case: Case, seed: int, folder: str) -> None:
        """One full run chosen by hand, unless it is there.

        Args:
            case: Its start is the rate.
            seed: Of the arrivals.
            folder: Of its runs.
        """
        self._apply(case.settings)
        sweep = self._sweep(case, folder, self._long_s, is_short=False)
        if self.budget.fits(f"{folder} at {case.start_rps:g} req/s", self._long_s):
            self._tell(f"{folder}, seed {seed}", self._timed(sweep, case.start_rps, seed))

    def overload(self, case: Case) -> None:
        """The usual settings at 10 % over their capacity.

        Args:
            case: The usual settings' own; its start is the capacity where none was measured.
        """
        self._apply({})
        measured = capacity_rps(self._full_sweep(case).attainment(), THRESHOLDS[0])
        capacity = measured or self._guesses(case)[THRESHOLDS[0]]
        if self.budget.fits("overload", self._long_s):
            sweep = self._sweep(case, "overload", self._long_s, is_short=False)
            rate = on_grid(OVERLOAD * capacity, 1.0)
            self._tell(f"overload of {capacity:g} req/s", self._timed(sweep, rate, 0))

    # --- helpers -----------------------------------------------------------------------------

    @property
    def _long_s(self) -> float:
        return self.args.seconds

    def _apply(self, settings: dict[str, Any]) -> None:
        self.engine.wait(_DRAIN_S)
        self.engine.set(**{**self.usual, **settings})

    def _keep(self, name: str, found: dict[str, float]) -> None:
        split = str(self.engine.settings.sm_split)
        told = {**found, "sm_split": split, "made": self._made()}
        path = self.store / f"{name}.json"
        path.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        self.say(f"{name}: {_short(found)}")

    def _made(self) -> dict[str, Any]:
        return {"gpu": self.summary.get("gpu", ""), "revision": self.args.revision}

    def _guesses(self, case: Case) -> dict[float, float]:
        """Expected capacities: by short runs, or where the search would start."""
        shares = _short_shares(self._short_sweep(case, f"{case.name}-short"))
        guesses: dict[float, float] = {}
        for threshold in THRESHOLDS:
            known = Bracket.of(shares, threshold)
            guesses[threshold] = known.low or min(known.high * 0.8, case.start_rps)
        return guesses

    def _short_sweep(self, case: Case, folder: str) -> Sweep:
        return self._sweep(case, folder, self.args.short_seconds, is_short=True)

    def _full_sweep(self, case: Case) -> Sweep:
        return self._sweep(case, case.name, self._long_s, is_short=False)

    def _sweep(self, case: Case, folder: str, seconds: float, is_short: bool) -> Sweep:
        target_s = self.engine.settings.ttfa_target_s
        plan = SweepPlan(
            seconds=seconds,
            seeds=tuple(range(self.args.seeds)),
            step_rps=_STEP_RPS,
            ttfa_target_s=target_s,
            timeout_s=_DRAIN_S,
            hopeless=gives_up_on(target_s, THRESHOLDS[0], self.target.now_s) if is_short else None,
            made=self._made(),
        )
        about = {
            **self.target.describe(),
            "figure": case.name,
            "workload": case.workload,
            "seconds": seconds,
            "ttfa_target_s": target_s,
            "timeout_s": _DRAIN_S,
        }
        sweep = Sweep(
            target=self.target,
            workload=workloads.find(case.workload),
            folder=RunFolder.fitting(self.store / folder, about),
            plan=plan,
            watch=lambda _label, _seconds: lambda _at, _sent: None,
            keep_trace=None if is_short else self._trace_keeper(folder),
            is_warm=self._is_warm,
        )
        sweep.load_found()
        return sweep

    def _timed(self, sweep: Sweep, rate_rps: float, seed: int) -> Run:
        is_found = sweep.folder.path(rate_rps, seed).exists()
        begun_s = time.monotonic()
        run = sweep.measure(rate_rps, seed)
        self._is_warm = sweep.is_warm
        if not (is_found or run.stopped):
            self.budget.took(sweep.plan.seconds, time.monotonic() - begun_s)
        return run

    def _trace_keeper(self, name: str) -> Callable[[float, int, LoadRun], object]:
        def keep(rate_rps: float, seed: int, result: LoadRun) -> None:
            if seed != 0:
                return
            engine = self.engine
            about = {
                "model": engine.model_name,
                "device": engine.device_name,
                "gpu": self.summary.get("gpu", ""),
                "settings": {key: str(value) for key, value in asdict(engine.settings).items()},
                "figure": name,
                "rate_rps": rate_rps,
                "seed": seed,
                "start_s": 0.0,
                "window_s": TRACE_S,
            }
            records = thinned(result.records, result.start_s, TRACE_S)
            saved = SavedTrace(records, engine.frame_s, engine.sample_rate_hz, about)
            folder = self.store / run_store.TRACES
            folder.mkdir(exist_ok=True)
            trace_file.save(saved, folder / f"{name}-{rate_rps:g}rps.trace.jsonl.gz")

        return keep

    def _note_capacity(self, case: Case, sweep: Sweep) -> None:
        found = sweep.capacities()
        self.summary["capacity_rps"][case.name] = {f"{t:g}": rps for t, rps in found.items()}

    def _tell(self, label: str, run: Run) -> None:
        row = figures([run])
        told = {name: row.get(name) for name in _LINE}
        told["attainment"] = run.attainment
        self.say(f"{label}: {_short(told)} {run.stopped}")


def _short_shares(sweep: Sweep) -> dict[float, float]:
    return {rate: short_run_share(run) for (rate, _), run in sweep.runs.items()}


def _short(values: dict[str, Any]) -> str:
    parts = (
        f"{name} {value:.4g}" for name, value in values.items() if isinstance(value, int | float)
    )
    return ", ".join(parts)
