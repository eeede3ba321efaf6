"""The real scheduler in virtual time: determinism, conservation, giving up, live changes."""

from __future__ import annotations

import pytest
from sim_profiles import round_profile

from voxserve.core import trace_file, workload
from voxserve.core.errors import InvalidInput, InvalidSetting
from voxserve.core.events import ChunkLife, LaneSpan, RequestChange, SettingChange
from voxserve.core.request import RequestState
from voxserve.core.workload import LIBRITTS
from voxserve.sim.api import simulate
from voxserve.sim.device import default_settings, prepared_of, profiled_splits
from voxserve.sim.simulator import simulate_load


def run(rate_rps: float = 10.0, seconds: float = 5.0, **kwargs):
    return simulate(round_profile(), rate_rps=rate_rps, seconds=seconds, **kwargs)


def test_same_arguments_same_trace_bytes():
    first, second = (trace_file.to_bytes(run(trace=True, jitter=True).trace()) for _ in range(2))
    assert first == second
    assert first != trace_file.to_bytes(run(trace=True, seed=1).trace())


def test_every_request_is_served_whole():
    result = run(trace=True)
    load = workload.offered(LIBRITTS, 10.0, 5.0, 0)
    assert len(result.outcomes) == len(load)
    for outcome, offered in zip(result.outcomes, load, strict=True):
        frames = offered.utterance.num_frames(0.08)
        assert outcome.is_done
        assert outcome.audio_s == pytest.approx(frames * 0.08)
        assert outcome.num_chunks == -(-frames // 10)
        assert outcome.end_s > outcome.arrival_s + outcome.ttfa_s - 1e-9
    assert result.summary.attainment == 1.0


def test_the_trace_agrees_with_the_outcomes():
    result = run(30.0, trace=True)
    chunks = [record for record in result.records if isinstance(record, ChunkLife)]
    assert len(chunks) == sum(outcome.num_chunks for outcome in result.outcomes)
    stalls = sum(chunk.stall_s for chunk in chunks)
    assert stalls == pytest.approx(sum(outcome.stall_s for outcome in result.outcomes))
    ended = [
        record
        for record in result.records
        if isinstance(record, RequestChange) and record.state is RequestState.DONE
    ]
    assert len(ended) == result.summary.num_done
    spans = [record for record in result.records if isinstance(record, LaneSpan)]
    assert len(spans) == sum(lane.num_jobs for lane in result.lanes.values())


def test_lanes_never_overlap_themselves():
    result = run(30.0, trace=True)
    last_end = {}
    spans = [record for record in result.records if isinstance(record, LaneSpan)]
    for span in sorted(spans, key=lambda span: span.start_s):
        assert span.start_s >= last_end.get(span.lane, 0.0) - 1e-9
        last_end[span.lane] = span.end_s


def test_overload_is_given_up_early_and_never_looks_better():
    full = run(100.0, 10.0)
    assert full.summary.attainment < 0.9
    given_up = run(100.0, 10.0, give_up_below=0.9)
    assert given_up.was_given_up
    assert given_up.end_s < full.end_s
    assert not run(5.0, give_up_below=0.9).was_given_up


def test_host_delay_costs_time():
    fast = simulate(round_profile(), rate_rps=5.0, seconds=5.0)
    slow = simulate(round_profile(host_s=0.005), rate_rps=5.0, seconds=5.0)
    assert slow.summary.ttfa_p50_s > fast.summary.ttfa_p50_s + 0.03


def test_a_policy_by_name_is_the_setting():
    assert run(policy="throughput").settings.policy == "throughput"


def test_settings_change_while_running():
    profile = round_profile()
    prepared = prepared_of(profile)
    settings = default_settings(profile, prepared)
    changed = settings.changed(prepared, background_batch=1, chunk_ramp=(4, 10))
    result = simulate_load(
        profile,
        prepared,
        settings,
        workload.offered(LIBRITTS, 10.0, 4.0, 0),
        rate_rps=10.0,
        seconds=4.0,
        seed=0,
        with_trace=True,
        changes=[(2.0, changed)],
    )
    changes = [record for record in result.records if isinstance(record, SettingChange)]
    assert {(change.name, change.new) for change in changes} >= {("background_batch", "1")}
    first = {
        record.request_id: record.num_frames
        for record in result.records
        if isinstance(record, ChunkLife) and record.index == 0
    }
    arrivals = [outcome.arrival_s for outcome in result.outcomes]
    before = {first[i] for i, at_s in enumerate(arrivals) if at_s < 2.0}
    after = {first[i] for i, at_s in enumerate(arrivals) if at_s > 2.0}
    assert before == {10}
    assert after == {4}


def test_a_simulated_gpu_offers_every_split_but_starts_with_a_profiled_one():
    profile = round_profile()
    prepared = prepared_of(profile)
    assert len(prepared.splits) == 1 + 15
    assert default_settings(profile, prepared).sm_split in profiled_splits(profile, prepared)


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"rate_rps": -1.0}, InvalidInput, "positive"),
        ({"seconds": 0.0}, InvalidInput, "positive"),
        ({"rate_rps": 1e6, "seconds": 60.0}, InvalidInput, "at most"),
        ({"rate_rps": 0.001}, InvalidInput, "nothing"),
        ({"workload": "songs"}, InvalidInput, "libritts"),
        ({"sm_split": "99/33"}, InvalidSetting, "100/32"),
        ({"colour": "red"}, InvalidSetting, "colour"),
    ],
)
def test_bad_arguments_are_told(kwargs, error, message):
    with pytest.raises(error, match=message):
        run(**kwargs)
