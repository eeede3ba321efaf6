"""The real scheduler under load in virtual time: each mechanism is worth something, none hurts."""

from __future__ import annotations

from typing import Any

import pytest

from voxserve.bench.orderings import rungs
from voxserve.core.events import ChunkLife
from voxserve.core.settings import Settings, Split
from voxserve.sim.api import simulate
from voxserve.sim.fake import FakeWorld, TableCost
from voxserve.sim.simulator import SimulationResult

PAPER = "h100-qwen3-tts-1.7b-paper"


def _run(rate_rps: float, seconds: float, settings: dict[str, Any]) -> SimulationResult:
    return simulate(PAPER, rate_rps=rate_rps, seconds=seconds, **settings)


@pytest.mark.slow
def test_the_mechanisms_are_worth_what_the_paper_says_in_its_order() -> None:
    shares = [_run(44.0, 30.0, s).summary.attainment for s in rungs("100/32").values()]
    sharing, streams, lanes, _, urgent, _, aware = shares
    assert sharing < streams < lanes < urgent < aware
    assert aware > 0.99


def test_the_ends_of_the_ladder_are_far_apart() -> None:
    first, *_, last = rungs("100/32").values()
    assert _run(46.0, 8.0, first).summary.attainment < 0.6
    assert _run(46.0, 8.0, last).summary.attainment > 0.99


def test_past_capacity_deadline_aware_admission_collapses_unless_load_is_shed() -> None:
    goodput_rps = {
        overload: _run(90.0, 20.0, {"sm_split": "100/32", "overload": overload}).summary.goodput_rps
        for overload in ("off", "shed")
    }
    assert goodput_rps["off"] < 25.0
    assert goodput_rps["shed"] > 1.5 * goodput_rps["off"]


def _first_audio_s(num_lost: int) -> dict[int, float]:
    """First audio after arrival of thirty requests beside some that were lost long ago."""
    told = FakeWorld(
        Settings(sm_split=Split(100, 32), overload="off"),
        cost=TableCost(decode=(0.008, 0.0001), prefill=(0.010, 0.0), codec=(0.002, 0.0005)),
    )
    for lost in range(num_lost):
        told.arrive(0.0, 1000 + lost, 400, ttfa_target_s=-10.0)
    for request_id in range(30):
        told.arrive(0.5 + 0.03 * request_id, request_id, 60)
    told.run()
    return {
        c.request_id: c.delivered_s - 0.5 - 0.03 * c.request_id
        for c in told.records(ChunkLife)
        if c.index == 0 and c.request_id < 1000
    }


def test_attainment_does_not_depend_on_lost_requests() -> None:
    alone, beside = _first_audio_s(0), _first_audio_s(5)
    assert max(alone.values()) < 0.2
    assert max(beside.values()) < 0.2
