"""Stage times: interpolation, monotone tables, continuation that is told, contention."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sim_profiles import PREPARED, round_profile

from voxserve.core.jobs import Partition
from voxserve.core.profile import StageTime
from voxserve.core.settings import Split
from voxserve.sim.contention import Work, speeds
from voxserve.sim.cost import ProfileCost, grid_of

SPLIT = Split(100, 32)


def test_measured_points_come_back():
    cost = ProfileCost(round_profile())
    assert cost.work_s("decode", 16, 0) == pytest.approx(0.0116)
    assert cost.work_s("codec", 16, 32, 10) == pytest.approx(0.010 * (132 / 32) ** 0.5)
    assert cost.work_s("prefill", 8, 0, 256) == pytest.approx(0.005)
    assert cost.notes == ()


def test_a_batch_costs_its_bucket():
    cost = ProfileCost(round_profile())
    assert cost.work_s("decode", 17, 0) == cost.work_s("decode", 32, 0)
    assert cost.work_s("decode", 32, 0) == pytest.approx(0.0132)  # between 16 and 64 rows
    assert cost.work_s("prefill", 1, 0, 20) == pytest.approx(0.005)


def test_sms_are_interpolated_in_logarithms():
    cost = ProfileCost(round_profile())
    assert cost.work_s("decode", 16, 32) == pytest.approx(0.0116 * (132 / 32) ** 0.5)


def test_frames_profiled_on_few_sms_take_the_scaling_of_the_others():
    cost = ProfileCost(round_profile())
    ratio = 0.00125 / 0.0025
    assert cost.work_s("codec", 1, 32, 4) == pytest.approx(ratio * cost.work_s("codec", 1, 32, 10))


def test_frames_between_are_interpolated_without_a_note():
    cost = ProfileCost(round_profile())
    low, high = cost.work_s("codec", 1, 0, 4), cost.work_s("codec", 1, 0, 10)
    assert cost.work_s("codec", 1, 0, 7) == pytest.approx((low + high) / 2)
    assert cost.notes == ()


@pytest.mark.parametrize(
    ("stage", "rows", "sms", "size", "expected"),
    [
        ("decode", 16, 8, 0, 2 * 0.0116 * (132 / 16) ** 0.5),
        ("decode", 128, 0, 0, 2 * 0.0164),
        ("codec", 1, 0, 20, 2 * 0.0025),
        ("prefill", 64, 0, 2048, 2 * 0.020),
    ],
)
def test_outside_the_profile_is_cautious_and_told(stage, rows, sms, size, expected):
    cost = ProfileCost(round_profile())
    assert cost.work_s(stage, rows, sms, size) == pytest.approx(expected)
    assert any("outside the profile" in note and stage in note for note in cost.notes)


times = st.builds(
    StageTime,
    stage=st.just("decode"),
    rows=st.sampled_from([1, 4, 16, 64]),
    seconds=st.floats(1e-4, 1.0),
    sms=st.sampled_from([0, 16, 32, 64]),
)


@given(st.lists(times, min_size=1, max_size=16), st.integers(1, 200), st.integers(8, 132))
def test_more_work_never_takes_less_and_more_sms_never_more(points, rows, sms):
    grid = grid_of(points, 132)
    here = grid.at(rows, sms)
    assert here > 0
    assert grid.at(rows + 1, sms) >= here * (1 - 1e-9)
    assert grid.at(rows, min(sms + 8, 132)) <= here * (1 + 1e-9)


def test_estimates_include_contention_and_host():
    beside = StageTime(
        "decode",
        16,
        1.5 * 0.0116 * (132 / 100) ** 0.5,
        sms=100,
        beside=("background",),
        lane="lm",
        split="100/32",
    )
    cost = ProfileCost(round_profile(host_s=0.001, extra=[beside]))
    alone = cost.work_s("decode", 16, 100)
    assert cost.decode_s(16, SPLIT, Partition.LM) == pytest.approx(1.5 * alone + 0.001)
    quiet = ProfileCost(round_profile(), PREPARED, side_by_side=False)
    assert quiet.decode_s(16, SPLIT, Partition.LM) == pytest.approx(alone)


def test_partitions_map_to_sms():
    cost = ProfileCost(round_profile())
    assert cost.sms(SPLIT, Partition.LM) == 100
    assert cost.sms(SPLIT, Partition.CODEC) == 32
    assert cost.sms(SPLIT, Partition.WHOLE) == 0
    assert cost.sms(Split(), Partition.LM) == 0


def test_defaults_are_told_and_measured_pairs_are_not():
    urgent = StageTime(
        "codec",
        1,
        0.005,
        frames=10,
        beside=("decode", "background"),
        lane="urgent",
        split="100/32",
    )
    contention = ProfileCost(round_profile(extra=[urgent])).contention
    decode, background = Work("decode", True), Work("background", True)
    assert contention.slowdown(Work("urgent", False), (decode, background)) == pytest.approx(2.0)
    assert contention.notes == set()
    assert contention.slowdown(decode, (background,)) == pytest.approx(1.02)
    assert any("decode beside background" in note for note in contention.notes)


def test_speeds_never_exceed_one_and_add_up_over_neighbours():
    contention = ProfileCost(round_profile()).contention
    decode, background, urgent = (
        Work("decode", True),
        Work("background", True),
        Work("urgent", False),
    )
    assert speeds(contention, [decode]) == (1.0,)
    three = speeds(contention, [decode, background, urgent])
    two = speeds(contention, [decode, background])
    assert all(0 < speed <= 1 for speed in (*two, *three))
    assert three[0] < two[0]
    assert three[2] > three[0]  # the urgent lane has priority
