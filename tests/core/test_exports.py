"""Exports of a trace: columns, and Chrome trace events by that format's rules."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from voxserve.core import perfetto
from voxserve.core.columns import columns
from voxserve.core.events import ChunkLife, LaneSpan, SettingChange
from voxserve.core.jobs import Cancel, SettingsChanged
from voxserve.sim.fake import FakeWorld


@pytest.fixture(scope="module")
def told() -> FakeWorld:
    world = FakeWorld()
    for request_id in range(5):
        world.arrive(0.02 * request_id, request_id, 25)
    world.send(0.06, SettingsChanged(world.settings.changed(world.prepared, background_batch=2)))
    world.send(0.3, Cancel(4))
    world.run()
    return world


def test_columns_have_one_length_and_plain_values(told: FakeWorld) -> None:
    table = columns(told.trace, ChunkLife)
    assert {len(values) for values in table.values()} == {len(told.records(ChunkLife))}
    assert set(table["lane"]) <= {"urgent", "background"}
    assert table["request_id"][0] == told.records(ChunkLife)[0].request_id
    assert columns([], LaneSpan)["job_id"] == []


def test_the_export_follows_the_format(told: FakeWorld, tmp_path: Path) -> None:
    perfetto.save(told.trace, tmp_path / "trace.json", about={"device": "fake"})
    file = json.loads((tmp_path / "trace.json").read_text())
    events = file["traceEvents"]
    assert file["otherData"] == {"device": "fake"}
    assert all({"ph", "name", "ts", "pid", "tid"} <= set(event) for event in events)
    assert all(event["ts"] >= 0.0 for event in events)
    assert all(event["dur"] >= 0.0 for event in events if event["ph"] == "X")
    assert len([e for e in events if e["ph"] == "X"]) == len(told.records(LaneSpan))
    opened = Counter((e["cat"], e["id"], e["name"]) for e in events if e["ph"] == "b")
    closed = Counter((e["cat"], e["id"], e["name"]) for e in events if e["ph"] == "e")
    assert opened == closed


def test_lanes_are_threads_and_chunks_are_flows_between_their_slices(told: FakeWorld) -> None:
    events = perfetto.trace_events(told.trace)["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert set(names.values()) == {"lm", "background", "urgent"}
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert (
        set(starts) == set(ends) == {f"{c.request_id}.{c.index}" for c in told.records(ChunkLife)}
    )
    slices = [e for e in events if e["ph"] == "X"]
    for event in [*starts.values(), *ends.values()]:
        assert any(
            s["tid"] == event["tid"] and s["ts"] <= event["ts"] <= s["ts"] + s["dur"]
            for s in slices
        )
    assert all(starts[key]["ts"] <= ends[key]["ts"] for key in starts)


def test_counters_return_to_zero(told: FakeWorld) -> None:
    events = perfetto.trace_events(told.trace)["traceEvents"]
    last = {e["name"]: e["args"]["value"] for e in events if e["ph"] == "C"}
    assert {last[f"{group} requests"] for group in ("waiting", "running", "draining")} == {0}
    assert {last[f"batch {lane}"] for lane in ("lm", "urgent", "background")} == {0}
    assert "slack at launch (s)" in last


def test_changes_are_instants_and_a_cut_trace_is_closed(told: FakeWorld) -> None:
    events = perfetto.trace_events(told.trace)["traceEvents"]
    instants = [e["name"] for e in events if e["ph"] == "i"]
    assert "background_batch: 8 -> 2" in instants
    assert len(told.records(SettingChange)) == len([n for n in instants if " -> " in n])
    cut = perfetto.trace_events(told.trace.records()[:40])["traceEvents"]
    opened = Counter((e["cat"], e["id"], e["name"]) for e in cut if e["ph"] == "b")
    closed = Counter((e["cat"], e["id"], e["name"]) for e in cut if e["ph"] == "e")
    assert opened == closed
    assert perfetto.trace_events([])["traceEvents"][0]["ph"] == "M"
