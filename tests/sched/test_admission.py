"""Prefill admission: who may defer a prompt, for how long, and what goes first."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sched.stories import PREFILL_S, STEP_S, chunk, entered, spans, world
from voxserve.core.events import AdmissionNote
from voxserve.core.jobs import (
    Cancel,
    JobKind,
    LaneName,
    PrefillJob,
    SettingsChanged,
    TextArrived,
)
from voxserve.core.request import RequestState
from voxserve.sim.fake import FakeWorld, TableCost


def _slow_prefill(seconds: float = 0.15, **settings: Any) -> FakeWorld:
    """A prefill takes so long that a running first chunk (target 0.2 s) defers it."""
    told = world(**settings)
    told.cost = TableCost(prefill=(seconds, 0.0))
    told.__post_init__()
    told.executor.duration_s = lambda job, estimate_s: (
        PREFILL_S if isinstance(job, PrefillJob) else estimate_s
    )
    return told


def _prefill_times(told: FakeWorld) -> list[float]:
    return [span.queued_s for span in spans(told, LaneName.LM, JobKind.PREFILL)]


def test_with_nothing_running_a_prompt_is_admitted_at_once() -> None:
    told = _slow_prefill()
    told.arrive(0.003, 0, 5)
    told.run()
    assert _prefill_times(told) == [0.003]


def test_a_prompt_waits_while_the_smallest_slack_is_below_its_prefill() -> None:
    told = _slow_prefill(0.15)
    told.arrive(0.0, 0, 60)
    told.arrive(0.010, 1, 10)
    told.run()
    # Until the first chunk of request 0 (95 ms) its slack is below 150 ms; then it has 0.8 s of
    # audio, minus ten steps and a decode, which is more.
    assert entered(told, 1, RequestState.PREFILLING).time_s == pytest.approx(PREFILL_S + 9 * STEP_S)


def test_the_slack_counts_steps_and_decode_still_needed() -> None:
    # At 15 ms, request 0 has one frame: slack = 0.2 - 0.015 - 8 steps - 2 ms = 103 ms.
    for prefill_s, is_deferred in ((0.102, False), (0.104, True)):
        told = _slow_prefill(prefill_s)
        told.arrive(0.0, 0, 60)
        told.arrive(0.010, 1, 10)
        told.run()
        assert (_prefill_times(told)[1] > 0.0151) is is_deferred


def test_the_limit_belongs_to_the_oldest_prompt_and_then_all_that_fit_are_admitted() -> None:
    told = _slow_prefill(0.5, max_prefill_defer_s=0.05)
    told.arrive(0.0, 0, 60)
    told.arrive(0.010, 1, 10)  # deferred from the decision at 15 ms on
    told.arrive(0.050, 2, 10)
    told.arrive(0.072, 3, 10)
    told.run()
    assert _prefill_times(told)[1] == pytest.approx(0.065)
    second = [job for job in told.jobs if isinstance(job, PrefillJob)][1]
    assert second.request_ids == (1, 2)
    notes = told.records(AdmissionNote)
    assert [(n.request_id, n.admitted) for n in notes[:2]] == [(1, False), (1, True)]
    assert notes[1].why == "deferral limit"


@pytest.mark.parametrize(("steps", "expected"), [(1, [(1,), (2,)]), (3, [(1, 2)])])
def test_prompts_that_arrive_between_two_prefills_share_the_next(
    steps: int, expected: list[tuple[int, ...]]
) -> None:
    told = world(decode_steps_per_prefill=steps)
    told.arrive(0.0, 0, 60)
    told.arrive(PREFILL_S, 1, 10)
    told.arrive(PREFILL_S + 1.5 * STEP_S, 2, 10)
    told.run()
    prefills = [job.request_ids for job in told.jobs if isinstance(job, PrefillJob)]
    assert prefills == [(0,), *expected]
    assert _prefill_times(told)[1] == pytest.approx(PREFILL_S + steps * STEP_S)


def test_with_nobody_to_decode_a_prompt_does_not_wait_for_steps() -> None:
    told = world(decode_steps_per_prefill=16)
    told.arrive(0.0, 0, 1)
    told.arrive(0.1, 1, 1)
    told.run()
    assert _prefill_times(told) == [0.0, pytest.approx(0.1)]


def test_a_lost_request_defers_nobody() -> None:
    told = _slow_prefill(0.5)
    told.executor.duration_s = lambda job, estimate_s: (
        0.25 if job.job_id == 1 else PREFILL_S if isinstance(job, PrefillJob) else estimate_s
    )
    told.arrive(0.0, 0, 60)  # its second frame comes at 0.255: the target is lost
    told.arrive(0.100, 1, 10)
    told.run()
    assert _prefill_times(told)[1] == pytest.approx(0.255)


def test_a_starved_request_defers_nobody() -> None:
    told = _slow_prefill(0.5)
    told.arrive(0.0, 0, 60, text_complete=False)  # one frame, then its text is missing
    told.arrive(0.010, 1, 10)
    told.send(0.300, TextArrived(0, 0, True))
    told.run()
    assert entered(told, 0, RequestState.STARVED).time_s == pytest.approx(PREFILL_S)
    assert _prefill_times(told)[1] == 0.010


def test_a_file_defers_nobody() -> None:
    told = _slow_prefill(0.5)
    told.arrive(0.0, 0, 60, has_listener=False)
    told.arrive(0.010, 1, 10)
    told.run()
    assert _prefill_times(told)[1] == pytest.approx(PREFILL_S + STEP_S)


def test_only_as_many_prompts_are_admitted_as_the_slack_bears() -> None:
    told = world()
    told.cost = TableCost(prefill=(0.0, 0.002))  # 40 ms per prompt of 20 tokens
    told.__post_init__()
    told.arrive(0.0, 0, 60)
    for request_id in (1, 2, 3):
        told.arrive(0.045, request_id, 5)
    told.run()
    # At 50 ms request 0 has two frames: slack = 0.2 - 0.05 - 8 steps - 2 ms = 68 ms: one prompt.
    prefills = [job for job in told.jobs if isinstance(job, PrefillJob)]
    assert prefills[1].request_ids == (1,)


def test_prefill_first_admits_every_prompt_that_fits_at_once() -> None:
    told = _slow_prefill(0.5, admission="prefill_first")
    told.arrive(0.0, 0, 60)
    told.arrive(0.010, 1, 10)
    told.arrive(0.012, 2, 10)
    told.run()
    prefills = [job for job in told.jobs if isinstance(job, PrefillJob)]
    assert prefills[1].request_ids == (1, 2)
    assert prefills[1].queued_s == pytest.approx(PREFILL_S + STEP_S)


def test_a_decode_step_comes_between_two_prefills() -> None:
    told = world(admission="prefill_first")
    told.arrive(0.0, 0, 30)
    for request_id in range(1, 6):
        told.arrive(0.001 * request_id, request_id, 30)
    told.arrive(0.016, 6, 30)
    told.run()
    kinds = [span.kind for span in spans(told, LaneName.LM)]
    assert kinds[:4] == [JobKind.PREFILL, JobKind.DECODE, JobKind.PREFILL, JobKind.DECODE]
    assert JobKind.PREFILL in kinds[4:]


def test_the_next_piece_of_a_running_request_goes_before_new_prompts() -> None:
    told = world()
    told.arrive(0.0, 0, (12, 12))
    told.arrive(0.120, 1, 10)
    told.run()
    # The end token of piece 0 comes with the step that ends at 125 ms, after request 1 arrived.
    prefills = [job for job in told.jobs if isinstance(job, PrefillJob)]
    assert [(job.request_ids, job.pieces) for job in prefills] == [
        ((0,), (0,)),
        ((0,), (1,)),
        ((1,), (0,)),
    ]
    assert prefills[1].slots == prefills[0].slots
    assert prefills[2].queued_s == pytest.approx(prefills[1].queued_s + PREFILL_S + STEP_S)
    # One continuous stream: chunk 1 spans both pieces.
    assert (chunk(told, 0, 1).first_frame, chunk(told, 0, 1).num_frames) == (10, 10)
    assert chunk(told, 0, 2).num_frames == 4


def test_prompts_beyond_the_prefill_bucket_wait_for_the_next_prefill() -> None:
    told = world(prepared={"prefill_buckets": (32, 64)})
    for request_id in range(3):
        told.arrive(0.0, request_id, 12, prompt_tokens=(30,))
    told.run()
    prefills = [job for job in told.jobs if isinstance(job, PrefillJob)]
    assert [(job.request_ids, job.bucket) for job in prefills] == [((0, 1), 64), ((2,), 32)]


def test_max_running_holds_from_the_next_decision_on() -> None:
    told = world(max_running=2, admission="prefill_first")
    for request_id in range(4):
        told.arrive(0.0, request_id, 12)
    more = told.settings.changed(told.prepared, max_running=3)
    told.send(0.010, SettingsChanged(more))
    told.run()
    assert entered(told, 2, RequestState.PREFILLING).time_s == pytest.approx(PREFILL_S + STEP_S)
    released_s = entered(told, 0, RequestState.DONE).time_s
    assert entered(told, 3, RequestState.PREFILLING).time_s >= released_s


def test_pages_are_reserved_for_the_worst_case() -> None:
    pools = {"num_kv_pages": 10, "kv_page_tokens": 16, "max_context_tokens": 128}
    told = world(prepared=pools, admission="prefill_first")
    for request_id in range(2):  # 20 prompt tokens and 80 frames: seven pages of 16
        told.arrive(0.0, request_id, 12, max_frames=80)
    told.run()
    assert [len(pages) for job in _prefills(told) for pages in job.kv_pages] == [7, 7]
    assert _prefills(told)[1].queued_s >= entered(told, 0, RequestState.DRAINING).time_s
    assert told.scheduler.num_free_pages == 10


def _prefills(told: FakeWorld) -> list[PrefillJob]:
    return [job for job in told.jobs if isinstance(job, PrefillJob)]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"prompt_tokens": (3000,)}, "3000 tokens is over the limit of 2047"),
        ({"max_frames": 9000}, "9000 frames may be needed and a request may have 8192"),
        ({"max_frames": 500}, "33 KV pages may be needed and there are 20"),
    ],
)
def test_what_no_pool_can_hold_is_refused_with_the_limit(spec: dict[str, Any], words: str) -> None:
    told = world(prepared={"num_kv_pages": 20, "kv_page_tokens": 16})
    told.arrive(0.0, 0, 5, **spec)
    told.run()
    refused = entered(told, 0, RequestState.REJECTED)
    assert words in refused.detail
    assert told.jobs == []


def test_a_waiting_request_can_be_cancelled() -> None:
    told = world(max_running=1)
    told.arrive(0.0, 0, 30)
    told.arrive(0.0, 1, 30)
    told.send(0.050, Cancel(1))
    told.run()
    assert entered(told, 1, RequestState.CANCELLED).time_s == 0.050
    assert all(1 not in job.request_ids for job in _prefills(told))
