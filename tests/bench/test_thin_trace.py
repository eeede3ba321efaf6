"""Traces small enough to keep."""

from pathlib import Path

import pytest

from voxserve.bench.thin_trace import save_below, thinned
from voxserve.bench.validate import outcomes_of
from voxserve.core import trace_file
from voxserve.core.events import ChunkLife, HostDelay, LaneSpan, RequestChange
from voxserve.core.jobs import JobKind
from voxserve.core.request import RequestState
from voxserve.core.trace_file import SavedTrace
from voxserve.core.workload import replay
from voxserve.sim.api import simulate


@pytest.fixture(scope="module")
def simulated():
    return simulate("h200", rate_rps=20.0, seconds=6.0, seed=1, trace=True)


def test_requests_of_the_window_are_kept_to_their_end(simulated):
    records = thinned(simulated.trace().records, 0.0, 3.0)
    expected = [item for item in simulated.outcomes if item.arrival_s < 3.0]
    found = sorted(outcomes_of(records), key=lambda item: item.arrival_s)
    assert len(found) == len(expected) > 40
    for one, other in zip(found, expected, strict=True):
        assert one.ttfa_s == pytest.approx(other.ttfa_s, abs=5e-4)
        assert one.audio_s == pytest.approx(other.audio_s, abs=1e-2)
    assert len(replay(records, simulated.trace().frame_s).items) == len(expected)


def test_times_count_from_the_start():
    change = RequestChange(1, RequestState.WAITING, 100.5)
    done = RequestChange(1, RequestState.DONE, 104.25, num_frames=9)
    delay = HostDelay(101.0, 0.25)
    found = thinned([change, delay, done, HostDelay(104.0, 0.25)], 100.0, 3.0)
    assert [record.time_s for record in found] == [0.5, 1.0, 4.25]
    assert found[1] == HostDelay(1.0, 0.25)


def test_only_decode_rows_are_dropped(simulated):
    records = thinned(simulated.trace().records, 0.0, 3.0)
    spans = [record for record in records if isinstance(record, LaneSpan)]
    assert all(span.start_s < 3.0 for span in spans)
    assert {bool(span.rows) for span in spans if span.kind is JobKind.DECODE} == {False}
    assert {bool(span.rows) for span in spans if span.kind is JobKind.CODEC} == {True}
    assert any(isinstance(record, ChunkLife) for record in records)


def test_the_window_shrinks_until_the_file_is_small_enough(simulated, tmp_path: Path):
    full = simulated.trace()
    saved = SavedTrace(full.records, full.frame_s, full.sample_rate_hz, {"window_s": 6.0})
    path = tmp_path / "small.trace.jsonl.gz"
    seconds = save_below(saved, path, 15_000)
    assert path.stat().st_size <= 15_000
    assert 0.0 < seconds < 6.0
    assert trace_file.load(path).about["window_s"] == pytest.approx(seconds, abs=0.01)
