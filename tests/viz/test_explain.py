"""A chunk's story adds up, and a late one's names what it consists of and what would cure it."""

from __future__ import annotations

from viz.fakes import FakeEngine
from viz.records import change, chunk, span, state

from voxserve.core import profile
from voxserve.core.events import Trace
from voxserve.core.jobs import JobKind, LaneName
from voxserve.core.request import RequestState
from voxserve.sim.api import simulate
from voxserve.sim.device import prepared_of
from voxserve.sim.explain import late_chunks
from voxserve.viz.explain import _settings_at, chunk_words, cure_words


def _told(record, *others) -> str:
    trace = Trace()
    for one in (*others, record):
        trace.append(one)
    return chunk_words(trace, record.request_id, record.index)


def test_in_time() -> None:
    batch = span(LaneName.BACKGROUND, JobKind.CODEC, 0.98, 1.0, batch=3, job_id=8)
    arrival = state(1, RequestState.WAITING, 0.1)
    told = _told(chunk(1, 2, delivered_s=1.0, deadline_s=1.5, job_id=8), arrival, batch)
    assert "with 2 others" in told
    assert "500 ms before its deadline" in told


def test_a_late_chunk_is_told_even_when_its_beginning_is_forgotten() -> None:
    told = _told(chunk(1, 2, delivered_s=1.0, deadline_s=0.5, ready_s=0.9, launched_s=0.95))
    assert "500 ms after its deadline" in told


def test_a_late_chunks_parts_and_cure_come_from_the_simulator() -> None:
    """In a simulation without an urgent lane, whose trace holds everything."""
    hard = {"sm_split": "116/16", "lane_mode": "partitioned", "ttfa_target_s": 0.12}
    result = simulate("h100", rate_rps=40, seconds=3, trace=True, **hard)
    engine = FakeEngine("explained")
    engine._settings = result.settings
    engine.prepared = prepared_of(profile.load("h100"))
    for record in result.records:
        engine.trace.append(record)
    late = late_chunks(result.records)[0]
    told = chunk_words(engine.trace, late.request_id, late.index)
    assert "Of that: " in told
    cure = cure_words(engine, late.request_id, late.index)
    assert "it would have been in time" in cure or "No single setting" in cure


def test_settings_of_an_earlier_moment_are_read_back() -> None:
    engine = FakeEngine("earlier")
    before = engine.settings
    engine.set(urgency_margin_s=0.3, chunk_ramp=(10,), sm_split="none", lane_mode="time_sharing")
    assert _settings_at(engine, engine.trace.records(), 0.0) == before
    unknown = change(9.0, "retired_setting", "a", "b")
    assert _settings_at(engine, [unknown], 0.0) == engine.settings


def test_a_forgotten_chunk() -> None:
    assert "no longer holds" in chunk_words(Trace(), 1, 1)
