"""Lane modes, changes of settings under load, and the split switch."""

from __future__ import annotations

import pytest

from tests.sched.stories import SPLIT, STEP_S, chunk, spans, world
from voxserve.core.events import SettingChange
from voxserve.core.jobs import (
    CodecJob,
    DecodeJob,
    Job,
    JobKind,
    LaneName,
    Partition,
    SettingsChanged,
)
from voxserve.core.settings import Split
from voxserve.sim.fake import FakeWorld, TableCost

WIDE = Split(76, 56)


def _two(told: FakeWorld) -> FakeWorld:
    told.arrive(0.0, 0, 40)
    told.arrive(0.030, 1, 40)
    told.run()
    return told


def test_time_sharing_runs_one_job_at_a_time_on_the_whole_device() -> None:
    told = _two(world(lane_mode="time_sharing"))
    lanes = sorted(
        spans(told, LaneName.LM) + spans(told, LaneName.BACKGROUND), key=lambda s: s.start_s
    )
    assert all(a.end_s <= b.start_s for a, b in zip(lanes, lanes[1:], strict=False))
    assert {job.partition for job in told.jobs} == {Partition.WHOLE}
    assert spans(told, LaneName.URGENT) == []


def test_time_sharing_takes_turns_and_decodes_what_is_ready() -> None:
    told = world(lane_mode="time_sharing")
    told.arrive(0.0, 0, 12)
    told.arrive(0.0, 1, 12)
    told.run()
    kinds = [job.kind for job in told.jobs]
    assert kinds[10:12] == [JobKind.CODEC, JobKind.DECODE]
    assert chunk(told, 0, 0).job_id == chunk(told, 1, 0).job_id
    assert chunk(told, 0, 0).launched_s == chunk(told, 0, 0).ready_s


def test_two_streams_issue_a_round_and_wait_for_both() -> None:
    told = world(lane_mode="two_streams")
    told.executor.duration_s = lambda job, estimate_s: (
        0.055 if isinstance(job, CodecJob) else estimate_s
    )
    _two(told)
    for batch in spans(told, LaneName.BACKGROUND):
        beside = [s for s in spans(told, LaneName.LM) if s.queued_s == batch.queued_s]
        assert len(beside) <= 1
        inside = [s for s in spans(told, LaneName.LM) if batch.start_s < s.queued_s < batch.end_s]
        assert inside == []
    assert {job.partition for job in told.jobs} == {Partition.WHOLE}


def test_partitioned_lanes_go_on_beside_a_long_batch() -> None:
    told = world(lane_mode="partitioned")
    told.executor.duration_s = lambda job, estimate_s: (
        0.055 if isinstance(job, CodecJob) else estimate_s
    )
    _two(told)
    batch = spans(told, LaneName.BACKGROUND)[0]
    inside = [s for s in spans(told, LaneName.LM) if batch.start_s < s.queued_s < batch.end_s]
    assert len(inside) == 5
    assert spans(told, LaneName.URGENT) == []


def test_partitioned_without_an_urgent_lane_takes_along_what_waits() -> None:
    told = world(lane_mode="partitioned", background_batch=8)
    told.arrive(0.0, 0, 40)
    told.arrive(0.105, 1, 40)
    told.run()
    first, taken = chunk(told, 1, 0), chunk(told, 0, 1)
    assert first.launched_s == first.ready_s
    assert first.lane is LaneName.BACKGROUND
    assert taken.ready_s < first.ready_s
    assert taken.job_id == first.job_id


def test_what_is_taken_along_must_let_the_urgent_chunk_be_in_time() -> None:
    told = world(lane_mode="partitioned", background_batch=8, sm_split=Split())
    told.cost = TableCost(codec=(0.002, 0.050))  # alone 52 ms, a second row does not fit
    told.__post_init__()
    told.arrive(0.0, 0, 40)
    told.arrive(0.105, 1, 40)
    told.run()
    first, waiting = chunk(told, 1, 0), chunk(told, 0, 1)
    assert first.launched_s == first.ready_s
    assert waiting.ready_s < first.ready_s
    assert waiting.job_id != first.job_id
    assert first.delivered_s is not None
    assert first.delivered_s < 0.305


def test_a_mode_change_waits_for_the_lanes_to_be_free() -> None:
    told = world(background_batch=1)
    told.executor.duration_s = lambda job, estimate_s: (
        0.055 if job.lane is LaneName.BACKGROUND else estimate_s
    )
    told.arrive(0.0, 0, 40)
    shared = told.settings.changed(told.prepared, lane_mode="time_sharing")
    told.send(0.210, SettingsChanged(shared))  # a background batch is under way
    told.run()
    batch = spans(told, LaneName.BACKGROUND)[0]
    assert batch.start_s < 0.210 < batch.end_s
    later = [s for s in spans(told, LaneName.LM) if s.queued_s > 0.210]
    assert later[0].queued_s == batch.end_s


def _switch(to: Split, start: Split, background_s: float = 0.055) -> FakeWorld:
    """The split changes at 0.200, while the batch launched at 0.195 is under way."""
    told = world(background_batch=1, sm_split=start)
    told.executor.duration_s = lambda job, estimate_s: (
        background_s if job.lane is LaneName.BACKGROUND else estimate_s
    )
    told.arrive(0.0, 0, 60)
    new = told.settings.changed(told.prepared, sm_split=to)
    told.send(0.200, SettingsChanged(new))
    told.run()
    return told


def _first_on(told: FakeWorld, split: Split, kind: type[Job]) -> Job:
    return next(
        job
        for job in told.jobs
        if isinstance(job, kind) and job.split == split and job.lane is not LaneName.URGENT
    )


def test_the_lane_that_loses_switches_at_its_next_launch_and_the_other_waits_for_it() -> None:
    told = _switch(to=WIDE, start=SPLIT)  # the LM lane loses, the codec gains
    assert _first_on(told, WIDE, DecodeJob).queued_s == pytest.approx(0.205)
    background = [job for job in told.jobs if job.lane is LaneName.BACKGROUND]
    assert [job.split for job in background][:2] == [SPLIT, WIDE]


def test_the_lane_that_gains_waits_until_the_others_old_job_has_ended() -> None:
    told = _switch(to=SPLIT, start=WIDE)  # the LM lane gains, the codec loses
    batch_end_s = spans(told, LaneName.BACKGROUND)[0].end_s
    assert batch_end_s == pytest.approx(0.250)
    assert _first_on(told, SPLIT, DecodeJob).queued_s == pytest.approx(0.255)
    old = [job for job in told.jobs if isinstance(job, DecodeJob) and 0.2 < job.queued_s < 0.2549]
    assert {job.split for job in old} == {WIDE}
    assert len(old) == 5


def test_urgent_work_and_prefills_do_not_wait_for_a_switch() -> None:
    told = world(background_batch=1, sm_split=WIDE)
    told.executor.duration_s = lambda job, estimate_s: (
        0.3 if job.lane is LaneName.BACKGROUND else estimate_s
    )
    told.arrive(0.0, 0, 60)
    told.send(0.200, SettingsChanged(told.settings.changed(told.prepared, sm_split=SPLIT)))
    told.arrive(0.210, 1, 12)
    told.run()
    first = chunk(told, 1, 0)
    assert first.launched_s == first.ready_s
    assert first.ready_s is not None
    assert first.ready_s < spans(told, LaneName.BACKGROUND)[0].end_s


def test_two_gaining_lanes_do_not_wait_for_each_other_for_ever() -> None:
    small, large = Split(64, 24), Split(100, 32)
    told = world(background_batch=1, sm_split=small, prepared={"splits": (Split(), small, large)})
    for request_id in range(4):
        told.arrive(0.020 * request_id, request_id, 80)
    told.executor.duration_s = lambda job, estimate_s: (
        0.033 if job.lane is LaneName.BACKGROUND else estimate_s
    )
    told.send(0.300, SettingsChanged(told.settings.changed(told.prepared, sm_split=large)))
    told.run()
    assert _first_on(told, large, DecodeJob).queued_s < 0.300 + 0.033 + 2 * STEP_S
    assert _first_on(told, large, CodecJob).queued_s < 0.300 + 0.033 + 4 * STEP_S


def test_no_split_puts_each_lane_on_the_whole_device() -> None:
    told = _two(world(sm_split=Split()))
    assert {job.partition for job in told.jobs} == {Partition.WHOLE}


def test_every_change_is_in_the_trace_with_its_time() -> None:
    told = world()
    told.arrive(0.0, 0, 30)
    new = told.settings.changed(told.prepared, background_batch=4, sm_split="none")
    told.send(0.100, SettingsChanged(new))
    told.run()
    assert told.records(SettingChange) == [
        SettingChange(0.100, "sm_split", "100/32", "none"),
        SettingChange(0.100, "background_batch", "8", "4"),
    ]


def test_a_smaller_margin_lets_a_waiting_chunk_wait_on() -> None:
    margins = {}
    for margin_s in (0.1, 0.3):
        told = world(background_batch=1, urgency_margin_s=margin_s)
        told.executor.duration_s = lambda job, estimate_s: (
            1.5 if job.lane is LaneName.BACKGROUND else estimate_s
        )
        told.arrive(0.0, 0, 60)
        told.arrive(0.030, 1, 60)
        told.run()
        moved = chunk(told, 1, 1)
        assert moved.deadline_s is not None
        assert moved.launched_s is not None
        margins[margin_s] = moved.deadline_s - moved.launched_s
    assert margins == {0.1: pytest.approx(0.1), 0.3: pytest.approx(0.3)}
