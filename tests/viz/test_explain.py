"""A chunk's story names what made it late and the knob that acts on it."""

from __future__ import annotations

from viz.records import chunk, span

from voxserve.core.chunk import Urgency
from voxserve.core.events import Trace
from voxserve.core.jobs import JobKind, LaneName
from voxserve.viz.explain import chunk_words


def _told(record, *others) -> str:
    trace = Trace()
    for one in (*others, record):
        trace.append(one)
    return chunk_words(trace, record.request_id, record.index)


def test_in_time() -> None:
    batch = span(LaneName.BACKGROUND, JobKind.CODEC, 0.98, 1.0, batch=3, job_id=8)
    told = _told(chunk(1, 2, delivered_s=1.0, deadline_s=1.5, job_id=8), batch)
    assert "with 2 others" in told
    assert "500 ms before its deadline" in told


def test_late_for_want_of_frames() -> None:
    told = _told(chunk(1, 2, delivered_s=1.0, deadline_s=0.5, ready_s=0.9, launched_s=0.95))
    assert "LM lane is too slow" in told


def test_late_for_waiting_as_background() -> None:
    told = _told(chunk(1, 2, delivered_s=1.0, deadline_s=0.9, ready_s=0.2, launched_s=0.8))
    assert "larger urgency margin" in told


def test_late_for_a_slow_decode() -> None:
    late = chunk(
        1, 2, delivered_s=1.0, deadline_s=0.9, ready_s=0.4, launched_s=0.45, urgency=Urgency.URGENT
    )
    assert "decode itself" in _told(late)


def test_a_forgotten_chunk() -> None:
    assert "no longer holds" in chunk_words(Trace(), 1, 1)
