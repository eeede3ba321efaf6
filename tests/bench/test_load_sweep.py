"""The sweep protocol on a fake server with a known capacity."""

from pathlib import Path

import pytest
from fake_target import FakeTarget, Script

from voxserve.bench.load_sweep import Sweep, SweepPlan
from voxserve.bench.report import capacity_line, save_report, sweep_report
from voxserve.bench.runs import RunFolder, load_run
from voxserve.core.errors import InvalidInput
from voxserve.core.workload import LIBRITTS, SWEEP_BURST, WARMUP_REQUESTS

ABOUT = {
    "model": "fake",
    "device": "fake",
    "via": "in process",
    "workload": "libritts",
    "ttfa_target_s": 0.2,
}
SLOW = Script(chunks=((0.5, (1000,) * 100),), end_s=0.6)


class Limited(FakeTarget):
    """Serves in time while fewer than `limit` requests a second arrived for five seconds."""

    def __init__(self, limit: float) -> None:
        super().__init__(self._choose)
        self.limit = limit

    def _choose(self, arrival_s: float) -> Script:
        recent = 0
        for _, at_s in reversed(self.sent):
            if arrival_s - at_s >= 5.0:
                break
            recent += 1
        return SLOW if recent > 5.0 * self.limit else Script()


def make_sweep(folder: Path, limit: float, **plan: object) -> Sweep:
    target = Limited(limit)
    settings = SweepPlan(**{"seconds": 10.0, "seeds": (0, 1), **plan})
    return Sweep(
        target=target,
        workload=LIBRITTS,
        folder=RunFolder(folder, ABOUT),
        plan=settings,
        watch=lambda _label, _seconds: lambda _at, _sent: None,
        sleep=target.sleep,
    )


def test_capacity_is_bracketed_and_confirmed_with_all_seeds(tmp_path: Path):
    sweep = make_sweep(tmp_path, limit=30.0, thresholds=(0.9,))
    sweep.find_capacity(8.0)
    capacity = sweep.capacities()[0.9]
    assert 18.0 <= capacity <= 34.0
    attainment = sweep.attainment()
    assert attainment[capacity] >= 0.9
    above = min(rate for rate in attainment if rate > capacity)
    assert attainment[above] < 0.9
    assert len(sweep.by_rate()[capacity]) == 2


def test_the_stricter_threshold_is_never_higher(tmp_path: Path):
    sweep = make_sweep(tmp_path, limit=30.0)
    sweep.find_capacity(20.0)
    capacity = sweep.capacities()
    assert capacity[0.99] <= capacity[0.9]


def test_a_server_that_never_keeps_up_has_no_capacity(tmp_path: Path):
    sweep = make_sweep(tmp_path, limit=0.0, thresholds=(0.9,))
    sweep.find_capacity(8.0)
    assert sweep.capacities() == {0.9: 0.0}


def test_warm_ups_are_not_counted(tmp_path: Path):
    sweep = make_sweep(tmp_path, limit=1000.0)
    run = sweep.measure(5.0, seed=0)
    assert isinstance(sweep.target, FakeTarget)
    assert len(sweep.target.sent) == SWEEP_BURST + WARMUP_REQUESTS + len(run.outcomes)


def test_a_sweep_resumes_from_its_files(tmp_path: Path):
    first = make_sweep(tmp_path, limit=30.0)
    run = first.measure(5.0, seed=0)
    second = make_sweep(tmp_path, limit=30.0)
    again = second.measure(5.0, seed=0)
    assert isinstance(second.target, FakeTarget)
    assert not second.target.sent
    assert again.attainment == run.attainment
    assert len(again.outcomes) == len(run.outcomes)


def test_higher_rates_are_not_tried_after_a_hopeless_one(tmp_path: Path):
    sweep = make_sweep(tmp_path, limit=1000.0, seeds=(0,), timeout_s=1.0)
    assert isinstance(sweep.target, FakeTarget)
    sweep.target._script = lambda _: Script(chunks=(), end_s=None)
    sweep.measure_all([4.0, 8.0])
    assert list(sweep.by_rate()) == [4.0]


def test_a_folder_of_another_configuration_is_refused(tmp_path: Path):
    RunFolder(tmp_path, ABOUT)
    with pytest.raises(InvalidInput, match="workload 'libritts', not 'seedtts'"):
        RunFolder(tmp_path, ABOUT | {"workload": "seedtts"})


def test_a_damaged_run_is_named(tmp_path: Path):
    path = tmp_path / "5rps-seed0.json.gz"
    path.write_bytes(b"nothing")
    with pytest.raises(InvalidInput, match="5rps-seed0"):
        load_run(path)


def test_the_report_has_all_figures(tmp_path: Path):
    sweep = make_sweep(tmp_path, limit=30.0)
    sweep.measure_all([5.0, 10.0])
    report = sweep_report(sweep, "voxserve bench")
    row = report["rates"][0]
    assert row["seeds"] == 2
    assert row["ttfa_p90_ms"] == pytest.approx(100.0)
    assert row["audible_ttfa_p50_ms"] == pytest.approx(100.0)
    assert row["attainment"] == 1.0
    for path in save_report(report, tmp_path):
        assert path.stat().st_size > 100
    assert "at least 10 req/s at 90% attainment" in capacity_line(report)
    report["rates"][-1]["rate_rps"] = 12.0
    assert "capacity: 10 req/s at 90% attainment" in capacity_line(report)
