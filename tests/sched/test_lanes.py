"""Launch rules of the codec lanes: urgent at once, background held within slack."""

from __future__ import annotations

import pytest

from tests.sched.stories import (
    BACKGROUND_S,
    FIRST_S,
    PREFILL_S,
    SPLIT,
    STEP_S,
    URGENT_S,
    chunk,
    spans,
    world,
)
from voxserve.core.chunk import Urgency, UrgencyReason
from voxserve.core.jobs import (
    Cancel,
    CodecJob,
    DecodeJob,
    Job,
    LaneName,
    Partition,
    SettingsChanged,
)
from voxserve.core.settings import Split


def test_a_first_chunk_goes_to_the_urgent_lane_the_moment_it_is_ready() -> None:
    told = world()
    told.arrive(0.0, 0, 25)
    told.run()
    first = chunk(told, 0, 0)
    assert first.lane is LaneName.URGENT
    assert first.reason is UrgencyReason.FIRST
    assert first.ready_s == first.launched_s == pytest.approx(FIRST_S)
    assert first.delivered_s == pytest.approx(FIRST_S + URGENT_S)
    assert first.deadline_s == pytest.approx(0.2)


def test_the_clock_starts_with_the_first_delivery() -> None:
    told = world()
    told.arrive(0.0, 0, 25)
    told.run()
    delivered_s = FIRST_S + URGENT_S
    assert chunk(told, 0, 1).deadline_s == pytest.approx(delivered_s + 0.8)
    assert chunk(told, 0, 2).deadline_s == pytest.approx(delivered_s + 1.6)


def test_urgent_chunks_run_on_the_whole_device_and_background_ones_on_the_codec_partition() -> None:
    told = world()
    told.arrive(0.0, 0, 25)
    told.run()
    codec = [job for job in told.jobs if isinstance(job, CodecJob)]
    assert [job.partition for job in codec] == [Partition.WHOLE, Partition.CODEC, Partition.CODEC]
    steps = [job for job in told.jobs if isinstance(job, DecodeJob)]
    assert {job.partition for job in steps} == {Partition.LM}
    assert {job.split for job in told.jobs} == {SPLIT}


def test_background_chunks_wait_until_b_are_ready() -> None:
    told = world(background_batch=3)
    for request_id in range(3):
        told.arrive(0.030 * request_id, request_id, 40)
    told.run()
    second = [chunk(told, request_id, 1) for request_id in range(3)]
    assert [c.urgency for c in second] == [Urgency.BACKGROUND] * 3
    assert second[0].ready_s < second[1].ready_s < second[2].ready_s  # type: ignore[operator]
    assert {c.launched_s for c in second} == {second[2].ready_s}
    assert len({c.job_id for c in second}) == 1


def test_with_fewer_requests_than_b_nobody_waits_for_chunks_that_cannot_come() -> None:
    told = world(background_batch=8)
    told.arrive(0.0, 0, 25)
    told.arrive(0.0, 1, 25)
    told.run()
    assert chunk(told, 0, 1).launched_s == chunk(told, 0, 1).ready_s
    assert chunk(told, 0, 1).job_id == chunk(told, 1, 1).job_id


def test_a_cancel_that_makes_b_unreachable_launches_what_waits() -> None:
    told = world(background_batch=2)
    told.arrive(0.0, 0, 60)
    told.arrive(0.030, 1, 60)
    told.send(0.215, Cancel(1))
    told.run()
    assert chunk(told, 0, 1).ready_s == pytest.approx(0.2)  # 19 steps, two prefills
    assert chunk(told, 0, 1).launched_s == pytest.approx(0.215)


def _hiccup(at_least_job: int, seconds: float):
    """The LM step with this id or the next takes long."""

    def duration_s(job: Job, estimate_s: float) -> float:
        is_hit = isinstance(job, DecodeJob) and job.job_id in (at_least_job, at_least_job + 1)
        return seconds if is_hit else estimate_s

    return duration_s


def test_the_timer_fires_a_margin_and_a_batch_before_the_first_deadline() -> None:
    told = world(background_batch=2)
    told.executor.duration_s = _hiccup(24, 2.0)  # both requests hang in the LM lane
    told.arrive(0.0, 0, 60)
    told.arrive(0.030, 1, 60)
    told.run()
    waited = chunk(told, 0, 1)
    assert waited.deadline_s is not None
    assert waited.lane is LaneName.BACKGROUND
    assert waited.launched_s == pytest.approx(waited.deadline_s - 0.1 - BACKGROUND_S)


def test_a_chunk_that_waits_into_the_margin_moves_to_the_urgent_lane() -> None:
    told = world(background_batch=1)
    told.executor.duration_s = lambda job, estimate_s: (
        1.5 if job.lane is LaneName.BACKGROUND else estimate_s
    )
    told.arrive(0.0, 0, 60)
    told.arrive(0.030, 1, 60)
    told.run()
    moved = chunk(told, 1, 1)
    assert moved.lane is LaneName.URGENT
    assert moved.reason is UrgencyReason.MARGIN
    assert moved.deadline_s is not None
    assert moved.promoted_s == moved.launched_s == pytest.approx(moved.deadline_s - 0.1)
    assert moved.stall_s == 0.0


def test_an_urgent_chunk_waits_for_no_background_batch() -> None:
    told = world(background_batch=1)
    told.executor.duration_s = lambda job, estimate_s: (
        0.5 if job.lane is LaneName.BACKGROUND else estimate_s
    )
    told.arrive(0.0, 0, 40)
    told.arrive(0.200, 1, 40)
    told.run()
    busy = spans(told, LaneName.BACKGROUND)[0]
    first = chunk(told, 1, 0)
    assert busy.start_s < first.ready_s < busy.end_s
    assert first.launched_s == first.ready_s


def test_when_the_lm_lane_has_nothing_left_the_rest_is_launched() -> None:
    told = world(background_batch=8, urgency_margin_s=0.0)
    told.arrive(0.0, 0, 30)
    told.arrive(0.0, 1, 25)
    told.run()
    last = chunk(told, 0, 2)
    assert last.launched_s == last.ready_s


def test_files_are_never_held_back_and_have_no_deadline() -> None:
    told = world(background_batch=8)
    told.arrive(0.0, 0, 60)
    told.arrive(0.030, 1, 25, has_listener=False)
    told.run()
    first = chunk(told, 1, 0)
    assert first.lane is LaneName.BACKGROUND
    assert first.reason is UrgencyReason.NO_LISTENER
    assert first.deadline_s is None
    assert first.launched_s == first.ready_s


def test_urgent_overflow_takes_the_next_urgent_batch_when_that_is_sooner() -> None:
    told = world()
    for request_id in range(10):
        told.arrive(0.0, request_id, 25)
    told.run()
    batches = spans(told, LaneName.URGENT)[:2]
    assert [span.batch for span in batches] == [8, 2]
    assert batches[1].queued_s == batches[0].end_s


def test_urgent_overflow_takes_an_idle_background_lane_that_is_as_fast() -> None:
    told = world(sm_split=Split())
    for request_id in range(10):
        told.arrive(0.0, request_id, 25)
    told.run()
    urgent, background = spans(told, LaneName.URGENT)[0], spans(told, LaneName.BACKGROUND)[0]
    assert (urgent.batch, background.batch) == (8, 2)
    assert urgent.queued_s == background.queued_s == pytest.approx(FIRST_S)


def test_the_next_chunk_is_dispatched_only_after_the_previous_one_finished() -> None:
    told = world(prepared={"chunk_frames": (2, 10)}, chunk_ramp=(2,))
    told.executor.duration_s = lambda job, estimate_s: (
        0.050 if job.lane is LaneName.URGENT else estimate_s
    )
    told.arrive(0.0, 0, 12)
    told.run()
    first, second = chunk(told, 0, 0), chunk(told, 0, 1)
    assert second.ready_s == pytest.approx(PREFILL_S + 3 * STEP_S)
    assert second.head_s == second.launched_s == first.delivered_s


@pytest.mark.parametrize("index", [0, 1, 2, 3])
def test_the_ramp_gives_each_chunk_its_size_and_the_last_number_repeats(index: int) -> None:
    told = world(chunk_ramp=(2, 4, 10))
    told.arrive(0.0, 0, 30)
    told.run()
    assert chunk(told, 0, index).num_frames == (2, 4, 10, 10)[index]
    assert chunk(told, 0, index).first_frame == (0, 2, 6, 16)[index]
    assert chunk(told, 0, 4).num_frames == 4


def test_a_new_ramp_is_for_new_requests() -> None:
    told = world()
    told.arrive(0.0, 0, 20)
    changed = told.settings.changed(told.prepared, chunk_ramp=(2, 4, 10))
    told.send(0.010, SettingsChanged(changed))
    told.run()
    assert chunk(told, 0, 1).num_frames == 10


def test_look_ahead_delays_readiness_until_the_stream_ends() -> None:
    told = world()
    told.lookahead_frames = 3
    told.__post_init__()
    told.arrive(0.0, 0, 21)
    told.run()
    assert chunk(told, 0, 0).ready_s == pytest.approx(FIRST_S + 3 * STEP_S)
    assert chunk(told, 0, 1).ready_s == pytest.approx(FIRST_S + 12 * STEP_S)  # the end token's step
    assert chunk(told, 0, 2).ready_s == chunk(told, 0, 1).ready_s
    assert [chunk(told, 0, i).is_last for i in range(3)] == [False, False, True]


def test_a_chunk_cut_away_as_silence_does_not_start_playback() -> None:
    told = world(chunk_ramp=(2, 4, 10))
    decode = told.executor.chunk_samples
    told.executor.chunk_samples = lambda c: 0 if c.index == 0 else decode(c)
    told.arrive(0.0, 0, 20)
    told.run()
    silent, first = chunk(told, 0, 0), chunk(told, 0, 1)
    assert silent.audio_s == 0.0
    assert first.lane is LaneName.URGENT
    assert first.reason is UrgencyReason.FIRST
    assert first.deadline_s == pytest.approx(0.2)
    assert chunk(told, 0, 2).deadline_s == pytest.approx(first.delivered_s + 0.32)  # type: ignore[operator]
