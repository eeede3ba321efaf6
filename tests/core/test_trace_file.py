"""Saved traces: every record type comes back equal, equal traces are equal files."""

from __future__ import annotations

import gzip
import json

import pytest

from voxserve.core import trace_file
from voxserve.core.chunk import Urgency, UrgencyReason
from voxserve.core.errors import InvalidInput
from voxserve.core.events import (
    AdmissionNote,
    ChunkLife,
    HostDelay,
    LaneSpan,
    OverloadChange,
    RequestChange,
    SettingChange,
)
from voxserve.core.jobs import JobKind, LaneName
from voxserve.core.request import FinishReason, RequestState
from voxserve.core.trace_file import SavedTrace

RECORDS = (
    LaneSpan(LaneName.LM, JobKind.DECODE, 4, 2, 2, 100, 0.1, 0.2, 0.25, (1, 2), 1),
    ChunkLife(
        request_id=1,
        index=0,
        first_frame=0,
        num_frames=10,
        is_last=False,
        ready_s=0.3,
        head_s=0.3,
        urgency=Urgency.URGENT,
        reason=UrgencyReason.FIRST,
        promoted_s=None,
        launched_s=0.31,
        delivered_s=None,
        deadline_s=0.5,
        slack_s=0.1,
        audio_s=0.8,
        stall_s=0.0,
        lane=LaneName.URGENT,
        job_id=9,
    ),
    RequestChange(1, RequestState.DONE, 1.0, FinishReason.LENGTH, "why", 20),
    SettingChange(1.0, "background_batch", "8", "16"),
    AdmissionNote(1.0, 1, False, "slack"),
    OverloadChange(1.0, True, "late"),
    HostDelay(1.0, 0.002),
)


def test_round_trip(tmp_path):
    trace = SavedTrace(RECORDS, 0.08, 24000, {"rate_rps": 48.0})
    trace_file.save(trace, tmp_path / "a.gz")
    trace_file.save(trace, tmp_path / "b.gz")
    assert trace_file.load(tmp_path / "a.gz") == trace
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
    (tmp_path / "plain").write_bytes(trace_file.to_bytes(trace))
    assert trace_file.load(tmp_path / "plain") == trace


HEADER = trace_file.to_bytes(SavedTrace((), 0.08, 24_000))
PACKED = gzip.compress(trace_file.to_bytes(SavedTrace(RECORDS, 0.08, 24_000)), mtime=0)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b"5",
        b"[" * 100_000,
        b"\xff" * 100_000,
        b'{"format": "other"}\n',
        b"\x1f\x8bnothing",
        PACKED[: len(PACKED) // 2],
        PACKED[:40] + bytes(40) + PACKED[80:],
        HEADER.replace(b"0.08", b"NaN"),
        HEADER.replace(b"0.08", b'"x"'),
        HEADER.replace(b'"about": {}', b'"about": []'),
        HEADER.replace(b'"about": {}', b'"about": {"settings": "x"}'),
        *(HEADER + row for row in (b"5\n", b"[]\n", b"{}\n", b'{"type": "Nothing"}\n')),
    ],
)
def test_other_and_damaged_files_are_refused(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(InvalidInput, match="trace") as told:
        trace_file.load(tmp_path / "x")
    assert len(str(told.value)) < 500


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), "\ud800", [1.5], {}, True])
def test_a_value_of_another_type_is_refused_in_every_field(tmp_path, record, wrong):
    whole = json.loads(trace_file.to_bytes(SavedTrace((record,), 0.08, 24_000)).splitlines()[1])
    for name in whole.keys() - {"type"}:
        if isinstance(wrong, str | bool) and type(wrong) is type(whole[name]):
            continue
        (tmp_path / "x").write_bytes(HEADER + json.dumps(whole | {name: wrong}).encode())
        with pytest.raises(InvalidInput, match="not a saved trace"):
            trace_file.load(tmp_path / "x")
