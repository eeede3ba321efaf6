"""The trace's ring: batches go in packed, records come out."""

from __future__ import annotations

import numpy as np
import pytest

from voxserve.core.chunk import ChunkRef, Chunks, Urgency, UrgencyReason
from voxserve.core.events import ChunkLife, HostDelay, PackedChunks, Trace
from voxserve.core.jobs import CodecJob, LaneName, Partition
from voxserve.core.settings import Split


def _batch(*request_ids: int) -> PackedChunks:
    chunks = Chunks.of([ChunkRef(i, i, 2, 20, 10, False) for i in request_ids])
    rows = len(chunks)
    split = Split(100, 32)
    job = CodecJob(7, LaneName.BACKGROUND, chunks, 8, 10, 1.0, split, Partition.CODEC)
    return PackedChunks(
        job,
        chunks,
        cost_s=0.25,
        ready_s=np.full(rows, 0.5),
        head_s=np.full(rows, 0.75),
        is_urgent=np.arange(rows) == 1,
        is_first=np.arange(rows) == 2,
        promoted_s=np.where(np.arange(rows) == 1, 0.875, np.nan),
        deadline_s=np.where(np.arange(rows) == 3, np.inf, 2.0),
        due_s=np.where(np.arange(rows) == 3, np.inf, 2.5),
    )


def _ids(trace: Trace, position: int = 0) -> list[int]:
    records, end = trace.since(position)
    assert end == trace.total
    return [r.request_id if isinstance(r, ChunkLife) else int(r.time_s) for r in records]  # type: ignore[union-attr]


def test_a_batch_becomes_one_record_per_chunk() -> None:
    batch = _batch(10, 11, 12, 13)
    batch.delivered_s, batch.audio_s, batch.stall_s = 1.5, np.full(4, 0.8), np.zeros(4)
    trace = Trace()
    trace.append(batch)
    held, urgent, first, file = trace.records()
    assert held == ChunkLife(
        *(10, 2, 20, 10, False, 0.5, 0.75, Urgency.BACKGROUND, UrgencyReason.SLACK, None, 1.25),
        *(1.0, LaneName.BACKGROUND, 7, 1.5, 2.0, 0.8, 0.0, 0.5),
    )
    assert isinstance(urgent, ChunkLife)
    assert (urgent.urgency, urgent.reason) == (Urgency.URGENT, UrgencyReason.MARGIN)
    assert urgent.promoted_s == 0.875
    assert isinstance(first, ChunkLife)
    assert first.reason is UrgencyReason.FIRST
    assert isinstance(file, ChunkLife)
    assert file.reason is UrgencyReason.NO_LISTENER
    assert (file.deadline_s, file.slack_s, file.correction_s) == (None, None, 0.0)


def test_dropped_rows_of_a_batch_are_records_without_a_delivery() -> None:
    (record,) = _batch(10, 11, 12).picked([1])
    assert (record.request_id, record.delivered_s, record.deadline_s) == (11, None, None)
    assert (record.audio_s, record.stall_s, record.lane) == (0.0, 0.0, LaneName.BACKGROUND)


def test_since_gives_what_is_new_even_inside_a_batch() -> None:
    trace = Trace()
    trace.append(HostDelay(1.0, 0.01))
    trace.append(_batch(10, 11, 12))
    trace.append(HostDelay(2.0, 0.01))
    assert _ids(trace) == [1, 10, 11, 12, 2]
    assert _ids(trace, 2) == [11, 12, 2]
    assert _ids(trace, trace.total) == []
    assert Trace().since(0) == ([], 0)


@pytest.mark.parametrize("capacity", [1, 3, 4, 7])
def test_the_last_records_are_held_and_older_ones_let_go(capacity: int) -> None:
    trace, expected = Trace(capacity), []
    for number in range(60):
        if number % 5 in (0, 3):
            batch = [100 + number, 200 + number, 300 + number]
            trace.append(_batch(*batch))
            expected += batch
        else:
            trace.append(HostDelay(float(number), 0.01))
            expected.append(number)
        assert _ids(trace) == expected[-capacity:]
        assert trace.total == len(expected)
        assert len(trace) == min(len(expected), capacity)
        held = [entry for entry in trace._ring if entry is not None]
        assert sum(end - start for start, end, _ in held) <= capacity + 2  # one batch is cut
