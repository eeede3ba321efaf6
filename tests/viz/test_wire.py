"""Deltas keep every figure to float32 precision near the present, however long the uptime."""

from __future__ import annotations

import math

import numpy as np
import pytest
from viz.records import change, chunk, span

from voxserve.core.events import OverloadChange, Trace
from voxserve.core.jobs import JobKind, LaneName
from voxserve.core.live import LiveChunks, Stage
from voxserve.viz import wire


def test_spans_and_chunks_come_back() -> None:
    now_s = 900_000.25  # ten days of uptime: float32 alone would be off by 30 ms
    records = [
        span(LaneName.BACKGROUND, JobKind.CODEC, now_s - 0.010, now_s - 0.002, batch=3),
        chunk(7, 2, delivered_s=now_s - 0.001, deadline_s=None, stall_s=0.5),
    ]
    message, (spans, chunks, _) = wire.delta(records, now_s)
    row = dict(zip(wire.SPAN_COLUMNS, np.frombuffer(spans, "<f4"), strict=True))
    assert wire.LANES[int(row["lane"])] is LaneName.BACKGROUND
    assert wire.KINDS[int(row["kind"])] is JobKind.CODEC
    assert row["batch"] == 3
    assert row["end_s"] + message["t0"] == pytest.approx(now_s - 0.002, abs=1e-5)
    row = dict(zip(wire.CHUNK_COLUMNS, np.frombuffer(chunks, "<f4"), strict=True))
    assert (row["request_id"], row["index"], row["stall_s"]) == (7, 2, 0.5)
    assert math.isnan(row["deadline_s"])


def test_a_waiting_chunks_slack_goes_on_falling_after_the_snapshot() -> None:
    stages = np.array([Stage.GENERATING, Stage.READY, Stage.IN_FLIGHT], np.int8)
    ids, urgent = np.arange(3), np.array([True, False, False])
    live = LiveChunks(4.9, ids, ids, stages, urgent, np.full(3, 0.5))
    _, (_, _, packed) = wire.delta([], 5.0, live=live)
    rows = np.frombuffer(packed, "<f4").reshape(3, len(wire.LIVE_COLUMNS))
    assert rows[:, wire.LIVE_COLUMNS.index("slack_s")] == pytest.approx([0.5, 0.4, 0.5])
    assert rows[:, wire.LIVE_COLUMNS.index("is_urgent")].tolist() == [1, 0, 0]


def test_a_span_of_every_kind_can_be_sent() -> None:
    spans = [span(LaneName.BACKGROUND, kind, 1.0, 2.0) for kind in JobKind]
    _, (packed, _, _) = wire.delta(spans, 5.0)
    rows = np.frombuffer(packed, "<f4").reshape(len(spans), len(wire.SPAN_COLUMNS))
    kinds = [wire.KINDS[int(kind)] for kind in rows[:, wire.SPAN_COLUMNS.index("kind")]]
    assert kinds == list(JobKind)


def test_setting_and_overload_changes_become_marks() -> None:
    records = [change(3.0, "background_batch", "8", "4"), OverloadChange(4.0, True, "TTFA")]
    message, _ = wire.delta(records, 5.0)
    assert [mark["text"] for mark in message["marks"]] == ["background_batch 8 → 4", "overload"]


def test_an_empty_delta_is_a_heartbeat() -> None:
    message, buffers = wire.delta([], 5.0)
    assert message["now"] == 5.0
    assert buffers == [b"", b"", b""]


def test_recent_records_are_read_from_the_end() -> None:
    trace = Trace(20_000)
    for i in range(30_000):
        trace.append(change(float(i), "background_batch", "8", "4"))
    assert [r.time_s for r in wire.recent(trace, 29_998.0)] == [29_998.0, 29_999.0]
    assert len(wire.recent(trace, 0.0)) == 20_000
    assert wire.recent(Trace(), 0.0) == []
