"""A real listener's reports correct deadlines gently, and never the SLO's clock."""

from __future__ import annotations

import math

import pytest

from tests.sched.stories import FIRST_S, URGENT_S, chunk, world
from voxserve.core.jobs import ListenerReport
from voxserve.sim.fake import FakeWorld

DELIVERED_S = FIRST_S + URGENT_S
RUNS_OUT_S = DELIVERED_S + 0.8  # of the first chunk


def _told(*reports: tuple[float, float]) -> FakeWorld:
    told = world(background_batch=8)
    told.executor.duration_s = lambda job, estimate_s: 2.0 if job.job_id > 30 else estimate_s
    told.arrive(0.0, 0, 60)
    for at_s, buffered_s in reports:
        told.send(at_s, ListenerReport(0, buffered_s))
    return told


def _correction_s(told: FakeWorld, until_s: float) -> float:
    told.run(until_s=until_s)
    table = told.scheduler.board.table
    return float(table.due_s[0] - table.deadline_s[0])


def test_the_first_report_only_starts_the_clock() -> None:
    assert _correction_s(_told((0.1, 5.0)), 0.15) == 0.0


def test_a_correction_moves_by_at_most_ten_milliseconds_per_second() -> None:
    late = _told((0.1, 5.0), (0.15, 5.0))
    assert _correction_s(late, 0.16) == pytest.approx(0.010 * 0.05)
    early = _told((0.1, 0.0), (0.15, 0.0))
    assert _correction_s(early, 0.16) == pytest.approx(-0.010 * 0.05)


def test_a_small_steady_difference_is_reached_and_kept() -> None:
    reports = [(0.1 + 0.01 * i, RUNS_OUT_S + 0.0005 - 0.1 - 0.01 * i) for i in range(9)]
    assert _correction_s(_told(*reports), 0.189) == pytest.approx(0.0005, abs=1e-6)


def test_corrections_stay_between_the_margin_and_half_a_second() -> None:
    for buffered_s, bound_s in ((1e6, 0.5), (0.0, -0.1)):
        told = world()
        told.frame_samples = 240_000  # a chunk of 100 s, so that corrections have the time
        told.__post_init__()
        told.arrive(0.0, 0, 60)
        for i in range(3):
            told.send(0.15 + 40.0 * i, ListenerReport(0, buffered_s))
        told.run(until_s=0.151)
        told.executor.duration_s = lambda job, estimate_s: 1000.0
        told.run(until_s=81.0)
        table = told.scheduler.board.table
        assert float(table.due_s[0] - table.deadline_s[0]) == pytest.approx(bound_s)


def test_an_empty_player_tells_nothing_once_the_modelled_one_has_run_out_too() -> None:
    told = _told((0.1, 0.5), (2.0, 0.0))
    told.executor.duration_s = lambda job, estimate_s: 9.0 if job.job_id > 14 else estimate_s
    assert _correction_s(told, 2.5) == 0.0


def test_reports_before_the_first_audio_or_nonsense_are_ignored() -> None:
    told = _told((0.01, 3.0), (0.02, 3.0), (0.12, math.nan), (0.13, -math.inf))
    told.send(0.14, ListenerReport(99, 1.0))
    assert _correction_s(told, 0.15) == 0.0


def test_accounting_uses_the_uncorrected_clock() -> None:
    reports = [(0.1 + 0.01 * i, 5.0) for i in range(9)]
    told = _told(*reports)
    told.run(until_s=3.0)
    assert chunk(told, 0, 1).deadline_s == pytest.approx(RUNS_OUT_S)
