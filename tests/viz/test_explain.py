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
from voxserve.sim.explain import explain, late_chunks
from voxserve.viz.cures import CureSearch, _settings_at
from voxserve.viz.explain import chunk_words, heard_words
from voxserve.viz.wire import ListenerStall


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
    assert explain(result.records, late.request_id, late.index).about_it in told
    cure = CureSearch(engine, list(engine.trace), late.request_id, late.index).words()
    assert "it would have been in time" in cure or "No single setting" in cure


def test_settings_of_an_earlier_moment_are_read_back() -> None:
    engine = FakeEngine("earlier")
    before = engine.settings
    engine.set(urgency_margin_s=0.3, chunk_ramp=(10,), sm_split="none", lane_mode="time_sharing")
    assert _settings_at(engine, engine.trace.records(), 0.0) == before
    unknown = change(9.0, "retired_setting", "a", "b")
    assert _settings_at(engine, [unknown], 0.0) == engine.settings


def test_text_that_came_late_is_the_inputs_stall_and_no_cure_is_looked_for() -> None:
    engine = FakeEngine("starved")
    for record in (
        state(7, RequestState.WAITING, 0.0),
        span(LaneName.LM, JobKind.PREFILL, 0.0, 0.1, rows=(7,)),
        state(7, RequestState.STARVED, 0.2),
        state(7, RequestState.RUNNING, 1.4),
        span(LaneName.LM, JobKind.DECODE, 1.4, 1.5, rows=(7,)),
        chunk(7, 0, ready_s=0.1, launched_s=0.11, delivered_s=0.15, deadline_s=0.2),
        chunk(7, 1, ready_s=1.5, launched_s=1.51, delivered_s=1.55, deadline_s=0.55, stall_s=1.0),
    ):
        engine.trace.append(record)
    told = chunk_words(engine.trace, 7, 1)
    assert "waiting for streamed text" in told
    assert "the input's stall" in told
    assert CureSearch(engine, list(engine.trace), 7, 1).words() == ""


def test_a_listeners_stall_is_the_servers_or_the_ways() -> None:
    late = chunk(3, 2, delivered_s=2.0, deadline_s=1.5, stall_s=0.5)
    told = heard_words([late], ListenerStall(1.6, 0.0, 3), 0.1, 0.0)
    assert "The server was late" in told
    assert "500 ms after its deadline" in told
    in_time = chunk(3, 2, delivered_s=1.2, deadline_s=1.5)
    told = heard_words([in_time], ListenerStall(1.6, 0.0, 3), 0.1, 0.4)
    assert "every chunk in time, the tightest with 300 ms to spare" in told
    assert "by up to 400 ms" in told
    assert "A prebuffer of 400 ms" in told


def test_a_forgotten_chunk() -> None:
    assert "no longer holds" in chunk_words(Trace(), 1, 1)


def test_a_spoken_request_is_named_by_its_text_and_a_background_one_by_its_number() -> None:
    late = chunk(3, 2, delivered_s=1.6, deadline_s=1.5, stall_s=0.1)
    arrival = state(3, RequestState.WAITING, 0.1)
    told = chunk_words([arrival, late], 3, 2, "Fish & chips, and then a whole hour of it")
    assert told.startswith("<b>“Fish &amp; chips, and then a whole …” (request 3), chunk 2</b>: ")
    assert "<b>It came 100.0 ms " in told
    assert chunk_words([arrival, late], 3, 2).startswith("<b>Request 3, chunk 2</b>: ")
    stall = ListenerStall(1.6, 0.0, 3)
    assert "of “Fish” (request 3): the browser" in heard_words([late], stall, 0.1, 0.0, "Fish")


def test_a_load_that_was_too_much_is_told_with_the_rate_that_would_not_have_been() -> None:
    result = simulate("h100", rate_rps=300, seconds=2, trace=True)
    engine = FakeEngine("overloaded")
    engine.device_name = "sim:h100"
    engine._settings = result.settings
    engine.prepared = prepared_of(profile.load("h100"))
    for record in result.records:
        engine.trace.append(record)
    late = late_chunks(result.records)[-1]
    shares: list[float] = []
    search = CureSearch(engine, list(engine.trace), late.request_id, late.index)
    told = search.words(shares.append)
    assert "Too much load: none of" in told
    assert "90 % would have been" in told
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
