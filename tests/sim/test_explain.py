"""Explanations: every late chunk's lateness is accounted for, and cures are real."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from voxserve.core.errors import InvalidInput
from voxserve.core.events import ChunkLife
from voxserve.core.jobs import JobKind, TextArrived
from voxserve.core.settings import LANE_MODES, Settings, Split
from voxserve.sim.explain import Explanation, Label, explain, late_chunks
from voxserve.sim.fake import FAKE_PREPARED, FakeWorld, TableCost
from voxserve.sim.way import Work
from voxserve.sim.what_if import Context


def _world(prepared: dict[str, Any] | None = None, **settings: Any) -> FakeWorld:
    settings.setdefault("sm_split", Split(100, 32))
    settings.setdefault("overload", "off")
    return FakeWorld(Settings(**settings), replace(FAKE_PREPARED, **(prepared or {})))


def _explained(told: FakeWorld, request_id: int, index: int) -> Explanation:
    found = explain(told.trace, request_id, index, Context(told.settings, told.prepared))
    _check(told, found)
    return found


def _check(told: FakeWorld, found: Explanation) -> None:
    assert sum(part.seconds for part in found.parts) == pytest.approx(found.lateness_s, abs=1e-3)
    arrival_s = min(
        r.time_s
        for r in told.trace
        if getattr(r, "request_id", -1) == found.request_id and hasattr(r, "state")
    )
    chunk = next(
        c
        for c in told.records(ChunkLife)
        if (c.request_id, c.index) == (found.request_id, found.index)
    )
    assert found.way[0].start_s == pytest.approx(arrival_s)
    assert found.way[-1].end_s == pytest.approx(chunk.delivered_s)
    for before, after in zip(found.way, found.way[1:], strict=False):
        assert before.end_s == pytest.approx(after.start_s)


def test_a_deferred_prompt() -> None:
    told = _world()
    told.cost = TableCost(prefill=(0.15, 0.0))
    told.__post_init__()
    told.executor.duration_s = lambda job, estimate_s: (
        0.005 if job.kind is JobKind.PREFILL else estimate_s
    )
    told.arrive(0.0, 0, 60)
    told.arrive(0.010, 1, 30, ttfa_target_s=0.15)
    told.run()
    found = _explained(told, 1, 0)
    assert found.is_first
    assert found.label is Label.SERVER
    assert found.parts[-1].work is Work.DEFERRED or found.parts[0].work is Work.DEFERRED
    assert "deferred for the slack of running requests" in found.sentence
    assert "after the TTFA target" in found.sentence
    assert found.cure is None  # replayed with the costs in the trace, nothing is deferred


def test_a_batch_in_the_way_and_the_margin_that_avoids_it() -> None:
    told = _world(background_batch=1, urgency_margin_s=0.0)
    told.cost = TableCost(partition_factor=400.0)  # 0.8 s per background batch
    told.__post_init__()
    told.arrive(0.0, 0, 60)
    told.arrive(0.030, 1, 60)
    told.run()
    late = late_chunks(told.trace)[0]
    found = _explained(told, late.request_id, late.index)
    assert found.label is Label.SERVER
    assert Work.LANE in {part.work for part in found.parts}
    assert "behind a codec batch (1 chunk on 32 SMs)" in found.sentence
    assert found.cure is not None
    assert f"With {found.cure.name} " in found.sentence


def test_a_lost_decode_place_and_the_batch_that_avoids_it() -> None:
    told = _world(
        prepared={"decode_buckets": (1, 2, 4)}, max_decode_batch=1, admission="prefill_first"
    )
    told.arrive(0.0, 0, 40)
    told.arrive(0.0, 1, 40)
    told.run()
    found = _explained(told, 1, 0)
    assert found.parts[-1].work is Work.DECODE_PLACE
    assert found.cure is not None
    assert (found.cure.name, found.cure.new) == ("max_decode_batch", 2)
    assert found.sentence.endswith(
        "With max_decode_batch 2 instead of 1 it would have been in time."
    )


def test_missing_text_is_input_not_server() -> None:
    told = _world()
    told.arrive(0.0, 0, 40, text_complete=False)
    told.send(0.0, TextArrived(0, 14, False))
    told.send(1.5, TextArrived(0, 0, True))
    told.run()
    found = _explained(told, 0, 1)
    assert found.label is Label.INPUT
    assert {part.work for part in found.parts} == {Work.INPUT}
    assert "waiting for streamed text" in found.sentence


def test_no_free_slot() -> None:
    told = _world(max_running=1)
    told.arrive(0.0, 0, 40)
    told.arrive(0.1, 1, 20)
    told.run()
    found = _explained(told, 1, 0)
    assert found.parts[-1].work is Work.PLACE
    assert found.cure is not None
    assert found.cure.name == "max_running"


def test_a_slow_host() -> None:
    told = _world()
    told.arrive(0.0, 0, 20)
    told.run()
    records = [
        replace(r, delivered_s=r.delivered_s + 0.3, stall_s=0.0)
        if isinstance(r, ChunkLife) and r.index == 0 and r.delivered_s is not None
        else r
        for r in told.trace
    ]
    found = explain(records, 0, 0)
    assert found.label is Label.HOST
    assert found.parts[-1].work is Work.HOST


def test_work_is_named_only_when_waits_do_not_explain_it() -> None:
    told = _world()
    told.executor.duration_s = lambda job, estimate_s: (
        0.1 if job.kind is JobKind.DECODE else estimate_s
    )
    told.arrive(0.0, 0, 20)
    told.run()
    found = _explained(told, 0, 1)
    assert {part.work for part in found.parts} <= {Work.GENERATING, Work.DECODING}
    assert "generating its frames" in found.sentence


def test_in_time_and_unheard_chunks_are_said_so() -> None:
    told = _world()
    told.arrive(0.0, 0, 20)
    told.arrive(0.0, 1, 20, has_listener=False)
    told.run()
    assert _explained(told, 0, 1).sentence.endswith("before its deadline.")
    assert _explained(told, 0, 1).label is Label.IN_TIME
    assert "nobody listens" in _explained(told, 1, 0).sentence
    with pytest.raises(InvalidInput, match="no delivered chunk 9 of request 0"):
        explain(told.trace, 0, 9)
    with pytest.raises(InvalidInput, match="arrival of request 0"):
        explain(told.trace.records()[5:], 0, 0)


@pytest.mark.parametrize("mode", LANE_MODES)
def test_every_late_chunk_of_an_overloaded_server_is_accounted_for(mode: str) -> None:
    told = _world(lane_mode=mode, max_decode_batch=8, background_batch=4)
    told.cost = TableCost(decode=(0.010, 0.001), prefill=(0.010, 0.0), codec=(0.004, 0.004))
    told.__post_init__()
    for request_id in range(60):
        told.arrive(0.03 * request_id, request_id, 30 + request_id % 40)
    told.run()
    late = late_chunks(told.trace)
    assert len(late) > 20
    for chunk in late[:60]:
        found = explain(told.trace, chunk.request_id, chunk.index)
        _check(told, found)
        assert found.lateness_s > 0.0
