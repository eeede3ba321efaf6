"""Sweeps, capacity and plans over worker processes."""

from __future__ import annotations

import io
import os
import pickle

import pytest
from sim_profiles import round_profile

from voxserve.bench import workers
from voxserve.bench.plan import plan
from voxserve.bench.sim_capacity import find_capacity
from voxserve.bench.sim_sweep import sweep
from voxserve.core.errors import InvalidInput, InvalidSetting
from voxserve.sim.api import simulate

SHORT = {"seconds": 3.0, "seeds": (0, 1)}


def test_lists_become_axes_and_seeds_are_pooled():
    result = sweep(
        round_profile(),
        rate_rps=[5.0, 60.0],
        background_batch=[4, 8],
        workers=1,
        progress=False,
        **SHORT,
    )
    assert [row.axes for row in result.rows] == [
        {"rate_rps": rate, "background_batch": batch} for rate in (5.0, 60.0) for batch in (4, 8)
    ]
    assert result.rows[0].figures["attainment"] > result.rows[-1].figures["attainment"]
    assert "background_batch" in result.table().splitlines()[0]
    assert "<table>" in result._repr_html_()


def test_workers_give_what_one_process_gives():
    call = {"profile": round_profile(), "rate_rps": 10.0, "seconds": 3.0, "seed": 2}
    with workers.Pool(1) as pool:
        there = pool.submit(call).result()
        with pytest.raises(InvalidSetting, match="colour"):
            pool.submit({**call, "colour": "red"}).result()
        assert pool.submit(call).result().outcomes == there.outcomes  # it goes on after an error
    assert there.outcomes == simulate(**call).outcomes


def test_ctrl_c_is_not_for_a_worker():
    with workers.Pool(1) as pool:
        pool.submit({"profile": round_profile(), "rate_rps": 5.0, "seconds": 1.0}).result()
        (worker,) = pool._started
        assert os.getpgid(worker.pid) != os.getpgrp()


def test_a_worker_answers_until_its_input_ends():
    calls, answers = io.BytesIO(), io.BytesIO()
    packed = pickle.dumps({"profile": round_profile(), "rate_rps": 5.0, "seconds": 2.0})
    calls.write(len(packed).to_bytes(8, "little") + packed)
    calls.seek(0)
    workers.serve(calls, answers)
    is_done, result = pickle.loads(answers.getvalue()[8:])
    assert is_done
    assert result.summary.num_offered == len(result.outcomes)


def test_what_cannot_travel_is_told():
    with workers.Pool(1) as pool, pytest.raises(InvalidInput, match="workers=1"):
        pool.submit({"policy": lambda: None})


def test_capacity_is_the_edge_of_what_holds():
    profile = round_profile()
    capacity = find_capacity(profile, thresholds=(0.9,), workers=1, **SHORT)
    rps = capacity.rps[0.9]
    assert rps > 0
    assert capacity.attainment[rps] >= 0.9
    above = [rate for rate in capacity.attainment if rate > rps]
    assert above
    assert capacity.attainment[min(above)] < 0.9


def test_plan_ranks_and_checks():
    told: list[str] = []
    result = plan(round_profile(), 2, check=1, seconds=3.0, workers=1, tell=told.append)
    assert told[0] == f"simulating placement 1 of 1: {result.ranked[0].placement}"
    assert len(told) > 2
    assert all(line.startswith("  per backbone: ") for line in told[1:])
    rates = [item.placement.rate_rps for item in result.ranked]
    assert rates == sorted(rates, reverse=True)
    assert result.ranked[0].simulated_rps is not None
    assert all(item.simulated_rps is None for item in result.ranked[1:])
    assert "both" in result.table()
    assert any("under 90% in time whatever comes" in line for line in told)
    with pytest.raises(InvalidInput, match="1 to 64"):
        plan(round_profile(), 0)


def test_a_plan_shows_how_long_it_will_take(capsys):
    plan(round_profile(), 2, check=2, seconds=2.0, workers=1)
    shown = capsys.readouterr().err
    assert "left" in shown
    assert "both" in shown
    plan(round_profile(), 2, check=0)
    assert capsys.readouterr().err == ""


def test_one_seed_is_bracketed_to_the_step_asked_for():
    capacity = find_capacity(
        round_profile(), seconds=3.0, seeds=(0,), workers=1, start_rps=8.0, step_rps=8.0
    )
    rps = capacity.rps[0.9]
    assert rps > 0
    assert all(rate % 8.0 == 0.0 for rate in capacity.bracket)
    assert capacity.attainment == capacity.bracket
    assert capacity.attainment[rps] >= 0.9 > capacity.attainment[rps + 8.0]


def test_what_cannot_be_run_is_refused():
    with pytest.raises(InvalidInput, match="no seeds"):
        sweep(round_profile(), seeds=())
    with pytest.raises(InvalidInput, match="threshold"):
        find_capacity(round_profile(), thresholds=())
    with pytest.raises(InvalidInput, match="negative"):
        sweep(round_profile(), seeds=(-1,), seconds=1.0, workers=1, progress=False)
    with pytest.raises(InvalidSetting, match="policy 5"):
        simulate(round_profile(), policy=5)
