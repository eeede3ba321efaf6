"""The budgeted load measurement, over a driver that computes on the CPU, and its table."""

from __future__ import annotations

import json
import os
import signal
import time
from functools import partial
from pathlib import Path

import pytest
from eager_driver import EagerDriver
from fake_model import FakeModel

from voxserve.bench import gpu_load, load_results, load_session
from voxserve.bench.load_cases import Budget, Case, gives_up_on, short_run_share
from voxserve.bench.run_store import unpack
from voxserve.bench.runs import Run, RunFolder, load_runs
from voxserve.bench.tables import load_results as load_table
from voxserve.core.clock import Clock
from voxserve.core.errors import InvalidInput
from voxserve.core.settings import Split
from voxserve.core.slo import Outcome
from voxserve.engine import engine as engine_module
from voxserve.engine.build import Built, fixed_length
from voxserve.runtime.cuda import Capacity, CudaExecutor
from voxserve.runtime.executables import Sizes

SIZES = Sizes((4, 8), prefill=(128,), codec=(4, 8), urgent=(4,), chunk_frames=(4, 10))
WORDS = [
    *("--model", "vox-tiny", "--device", "cpu", "--weights", "", "--split", "8/4"),
    *("--seconds", "1", "--short-seconds", "1", "--held-seconds", "0.5", "--seeds", "1"),
]


def build(_model: str, _device: str, *, clock: Clock, **_: object) -> Built:
    model = FakeModel()
    executor = CudaExecutor(
        model,
        EagerDriver(clock),
        clock,
        splits=(Split(8, 4), Split()),
        sizes=SIZES,
        capacity=Capacity(64, 0, 4096),
        cuts_silence=False,
    )
    return Built(executor, model, partial(fixed_length, model))


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "build_executor", build)


class Counted(Budget):
    """A budget of runs instead of seconds, so that a slow machine changes nothing."""

    runs = 0

    def fits(self, what: str, seconds: float) -> bool:
        """Whether runs are left."""
        self.runs -= 1
        if self.runs < 0:
            self.skipped.append(what)
        return self.runs >= 0


def run(output: Path, *words: str, runs: int = 1) -> dict:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Counted, "runs", runs)
        patch.setattr(gpu_load, "Budget", Counted)
        return measured(output, *words)


def measured(output: Path, *words: str) -> dict:
    assert gpu_load.main([*WORDS, "--output", str(output), *words]) == 0
    return json.loads((output / "summary.json").read_text())


def unpacked(output: Path) -> Path:
    unpack([output], output / "store", with_traces=True)
    return output / "store"


def test_every_part_is_kept_and_becomes_a_table(tmp_path: Path):
    words = ["--figures", "idle host libritts-10@4 overload@4"]
    summary = run(tmp_path / "out", *words, runs=2)
    lines = "\n".join(summary["lines"])
    assert "failed" not in lines
    assert "idle-4-10: p50_ms" in lines
    assert "host: requests 64" in lines
    assert "libritts-10, short: rate_rps 8" in lines
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "runs.tar",
        "traces.tar",
        "summary.json",
    }
    assert summary["skipped"]
    store = unpacked(tmp_path / "out")
    assert load_runs(store / "libritts-10-short")
    written = load_results.save_sweeps(store, tmp_path / "results")
    assert {"idle-10.json", "host.json"} <= {path.name for path in written}


def test_it_goes_on_from_earlier_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(load_session.LoadSession, "bracket", lambda *_: None)
    words = ["--figures", "libritts-10@4"]
    first = run(tmp_path / "first", *words)
    assert any("libritts-10, seed 0" in line for line in first["lines"])
    runs = load_runs(unpacked(tmp_path / "first") / "libritts-10")
    second = run(tmp_path / "second", *words, "--resume", str(tmp_path / "first" / "runs.tar"))
    more = load_runs(unpacked(tmp_path / "second") / "libritts-10")
    assert {(r.rate_rps, r.seed) for r in runs} < {(r.rate_rps, r.seed) for r in more}
    assert len(more) == len(runs) + sum("seed 0:" in line for line in second["lines"])


def test_a_run_found_again_says_nothing_about_time(tmp_path: Path, monkeypatch):
    words = ["--figures", "overload@4"]
    run(tmp_path / "first", *words)
    learnt: list[float] = []
    monkeypatch.setattr(Counted, "took", lambda _, seconds, _took: learnt.append(seconds))
    again = run(tmp_path / "second", *words, "--resume", str(tmp_path / "first"))
    assert any("overload of 4 req/s" in line for line in again["lines"])
    assert learnt == []


def test_told_to_end_it_keeps_what_is_finished(tmp_path: Path, monkeypatch):
    def told(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60.0)

    monkeypatch.setattr(load_session.LoadSession, "bracket", told)
    before = signal.getsignal(signal.SIGTERM)
    summary = run(tmp_path / "out", "--figures", "idle libritts-10@4")
    assert any("ended: told to end" in line for line in summary["lines"])
    assert (unpacked(tmp_path / "out") / "idle-10.json").exists()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_part_that_fails_does_not_end_the_others(tmp_path: Path, monkeypatch):
    def broken(*_: object) -> None:
        raise ValueError("no such luck")

    monkeypatch.setattr(load_session, "idle_ttfa", broken)
    summary = run(tmp_path / "out", "--figures", "idle host")
    lines = "\n".join(summary["lines"])
    assert "no such luck" in lines
    assert "host: requests" in lines


def test_the_best_split_is_kept(tmp_path: Path):
    words = ["--split", "8/4,none", "--figures", "libritts-10@4"]
    summary = run(tmp_path / "out", *words, runs=2)
    lines = "\n".join(summary["lines"])
    assert "split 8/4: rate_rps 4" in lines
    assert "split none: rate_rps 4" in lines
    assert "from here on" in lines


def test_a_plan_is_told_without_a_device(tmp_path: Path, capsys):
    words = ["--output", str(tmp_path), "--dry-run", "--figures", "idle libritts-4-10@180 overload"]
    assert gpu_load.main(words) == 0
    told = capsys.readouterr().out
    assert "libritts-4-10, one seed" in told
    assert "of 540" in told


def test_cases_are_read_from_their_names():
    case = Case.parse("libritts-4-10@180", 8.0)
    assert case == Case("libritts-4-10", "libritts", {"chunk_ramp": (4, 10)}, 180.0)
    loop = Case.parse("seedtts-10-two_streams", 8.0)
    assert loop.settings == {
        "chunk_ramp": (10,),
        "lane_mode": "two_streams",
        "sm_split": "none",
    }
    assert loop.start_rps == 8.0
    for text in ("music-10", "libritts", "libritts-ten", "libritts-10@fast", "libritts-10@-1"):
        with pytest.raises(InvalidInput, match="one is like libritts-4-10@180"):
            Case.parse(text, 8.0)


def outcome(arrival_s: float, ttfa_s: float = 0.1) -> Outcome:
    return Outcome(arrival_s, True, ttfa_s, 0.0, 0, 10, 1.0, arrival_s + 2.0, "done", ttfa_s)


def stored(rate: float, seed: int, share: float, **about: object) -> Run:
    outcomes = [outcome(i * 0.1, 0.1 if i < 100 * share else 0.5) for i in range(100)]
    values = {"observed": {}, "stopped": "", "seconds": 60.0, **about}
    made = {"date": "2026-11-29T17:00:00+00:00", "gpu": "NVIDIA H200", "versions": {"torch": "2"}}
    return Run(rate, seed, outcomes=tuple(outcomes), ttfa_target_s=0.2, made=made,
               sent_late_p99_ms=0.1, **values)  # fmt: skip


def test_a_short_run_that_falls_behind_promises_nothing():
    assert short_run_share(stored(8.0, 0, 0.95)) == pytest.approx(0.95)
    assert short_run_share(stored(8.0, 0, 1.0, observed={"lag_growth": 0.1})) == 0.0
    assert short_run_share(stored(8.0, 0, 1.0, observed={"lag_growth": 0.1}, seconds=5.0)) == 1.0
    assert short_run_share(stored(8.0, 0, 1.0, stopped="hopeless")) == 0.0


def test_a_short_run_is_given_up_when_too_many_have_missed():
    class Heard:
        def __init__(self, is_late: bool) -> None:
            self.is_late = is_late

        def has_missed(self, _now_s: float, _target_s: float) -> bool:
            return self.is_late

    hopeless = gives_up_on(0.2, 0.9, lambda: 0.0)
    assert hopeless([Heard(False)] * 90 + [Heard(True)] * 10, 100) == ""
    assert "13 of 100" in hopeless([Heard(True)] * 13, 100)


def test_a_budget_learns_what_runs_take():
    budget = Budget(100.0, overhead_s=10.0)
    assert budget.fits("one", 80.0)
    assert not budget.fits("two", 95.0)
    assert not budget.fits("two", 95.0)
    assert budget.skipped == ["two"]
    budget.took(60.0, 64.0)
    assert budget.overhead_s < 10.0


def test_stored_runs_become_the_table(tmp_path: Path):
    shares = {
        "libritts-10": {100.0: 1.0, 102.0: 0.95, 104.0: 0.5},
        "libritts-4-10": {98.0: 1.0, 100.0: 0.8},
        "libritts-10-two_streams": {50.0: 1.0, 52.0: 0.4},
        "overload": {112.0: 0.9},
        "libritts-10-short": {100.0: 1.0},
    }
    store = tmp_path / "store"
    for name, by_rate in shares.items():
        about = {
            "figure": "libritts-10" if name == "overload" else name,
            "workload": "libritts",
            "seconds": 60.0,
            "settings": {"chunk_ramp": [10], "sm_split": "100/32"},
        }
        folder = RunFolder(store / name, about)
        for rate, share in by_rate.items():
            for seed in (0, 1, 2):
                folder.add(stored(rate, seed, share))
    (store / "idle-10.json").write_text(json.dumps({"p50_ms": 42.0, "made": {}}))
    host = {"turn_at_256_p50_ms": 0.5, "turn_at_256_p99_ms": 2.0, "made": {}}
    (store / "host.json").write_text(json.dumps(host))
    assert load_results.main([str(store), "--results", str(tmp_path / "results")]) == 0
    table = load_table(tmp_path / "results" / "h200-load.json")
    rows = {row.figure: row for row in table.rows}
    capacity = rows[
        "capacity at 90%, libritts, chunk_ramp 10, split 100/32 (3 seeds of 60 s, 104 fails)"
    ]
    assert (capacity.value, capacity.must, capacity.aim) == (102.0, 80.0, 150.0)
    assert capacity.verdict() == "must"
    assert rows["capacity at 99% over that of two_streams, runs of 60 s"].value == 2.0
    assert rows["idle TTFA, first chunk of 10 frames, median"].verdict() == "aim"
    assert any("256 requests held running, no arrivals, p99" in name for name in rows)
    assert any(name.startswith("completed at 112 req/s offered") for name in rows)
    assert table.device == "NVIDIA H200"
    again = load_results.main(["--results", str(tmp_path / "results")])
    assert again == 0
    assert load_table(tmp_path / "results" / "h200-load.json") == table


def test_where_no_long_run_holds_a_shorter_one_at_a_lower_rate_is_told(tmp_path: Path):
    about = {"figure": "libritts-10", "workload": "libritts", "seconds": 60.0,
             "settings": {"chunk_ramp": [10], "sm_split": "92/40"}}  # fmt: skip
    RunFolder(tmp_path / "store" / "libritts-10", about).add(stored(100.0, 0, 0.95))
    short = RunFolder(tmp_path / "store" / "libritts-10-short", about | {"seconds": 16.0})
    for rate, share in ((80.0, 1.0), (90.0, 1.0), (100.0, 1.0), (110.0, 0.4)):
        short.add(stored(rate, 0, share))
    load_results.save_sweeps(tmp_path / "store", tmp_path / "sweeps")
    at_90, at_99 = load_results.table_of(tmp_path / "sweeps").rows[:2]
    assert at_90.value == 100.0
    assert "1 seed of 60 s" in at_90.figure
    assert at_99.value == 90.0, "the short run at 100 is refuted by the long one"
    assert "1 seed of 16 s, no longer run holds it, 100 fails" in at_99.figure


def test_a_rate_that_never_held_is_no_capacity(tmp_path: Path):
    about = {"figure": "libritts-10", "workload": "libritts", "seconds": 60.0,
             "settings": {"chunk_ramp": [10], "sm_split": "none"}}  # fmt: skip
    RunFolder(tmp_path / "store" / "libritts-10", about).add(stored(100.0, 0, 0.5))
    load_results.save_sweeps(tmp_path / "store", tmp_path / "sweeps")
    rows = load_results.table_of(tmp_path / "sweeps").rows
    assert rows[0].value is None
    assert rows[0].verdict() == "not measured"


def test_points_chosen_by_hand_are_measured_first(tmp_path: Path):
    words = ["--figures", "", "--points", "libritts-4-10@8:1 overload@4:2 libritts-10@8:x"]
    summary = run(tmp_path / "out", *words, runs=2)
    store = unpacked(tmp_path / "out")
    assert [(r.rate_rps, r.seed) for r in load_runs(store / "libritts-4-10")] == [(8.0, 1)]
    assert [(r.rate_rps, r.seed) for r in load_runs(store / "overload")] == [(4.0, 2)]
    assert any("one is like libritts-4-10@180:1" in line for line in summary["lines"])
