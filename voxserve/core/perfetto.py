"""A trace as Chrome trace events, for the Perfetto UI (ui.perfetto.dev) or chrome://tracing.

One JSON object ``{"traceEvents": [...], "displayTimeUnit": "ms", "otherData": {...}}``; times are
microseconds since the first record. What is where:

- Process "lanes", one thread per lane: a complete event ("X") per job, named by its kind and rows;
  args: job id, rows, bucket, SMs (0: whole device), frames, time queued, request ids, failed.
- Flows ("s" -> "f", category "chunk"): from the LM job that made a chunk ready to the codec job
  that decodes it.
- Process "requests": an async track per request with its states ("b"/"e", category "state") and
  below it its chunks from ready to delivered (category "chunk"; args: class, reason, deadline,
  slack, stall); stalls and missed deadlines are instants ("n").
- Counters ("C"): waiting, running and draining requests; chunks ready or in flight; rows of the
  last batch of each lane; slack of each chunk at launch.
- Process-wide instants ("i"): changes of settings, deferred prompts, overload, host delays.
"""

from __future__ import annotations

import heapq
import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from voxserve.core.events import (
    AdmissionNote,
    ChunkLife,
    HostDelay,
    LaneSpan,
    OverloadChange,
    Record,
    RequestChange,
    SettingChange,
)
from voxserve.core.jobs import JobKind, LaneName
from voxserve.core.request import RequestState

LANES_PID, REQUESTS_PID = 1, 2
_RUN = 2000  # events
_THREADS = {LaneName.URGENT: 1, LaneName.LM: 2, LaneName.BACKGROUND: 3}

_Event = dict[str, Any]


def trace_events(records: Iterable[Record], about: dict[str, Any] | None = None) -> dict[str, Any]:
    """The whole trace as a JSON-ready object.

    Args:
        records: A trace, or a part of one.
        about: Anything worth knowing beside it (model, device, settings), JSON-ready.
    """
    held = list(records)
    export = _Export(held)
    for record in held:
        export.add(record)
    return {
        "traceEvents": [*_names(), *_in_order(export.events)],
        "displayTimeUnit": "ms",
        "otherData": about or {},
    }


def save(records: Iterable[Record], path: str | Path, about: dict[str, Any] | None = None) -> None:
    """Writes a file that the Perfetto UI opens, event by event.

    Encoding all of it in one call would keep the interpreter from a serving thread for seconds, and
    so would letting go of all of it at once.
    """
    whole = trace_events(records, about)
    events: list[_Event] = whole.pop("traceEvents")
    events.reverse()
    with Path(path).open("w", encoding="utf-8") as file:
        file.write('{"traceEvents": [')
        separator = "\n"
        while events:
            file.write(separator + json.dumps(events.pop()))
            separator = ",\n"
        file.write("\n], " + json.dumps(whole)[1:])


def _in_order(events: list[_Event]) -> Iterator[_Event]:
    """By time; sorted in runs, so that no single call keeps the interpreter from anybody."""

    def when_us(event: _Event) -> float:
        return event["ts"]

    runs = (events[at : at + _RUN] for at in range(0, len(events), _RUN))
    return heapq.merge(*(sorted(run, key=when_us) for run in runs), key=when_us)


class _Export:
    def __init__(self, records: list[Record]) -> None:
        self.events: list[_Event] = []
        self._start_s = min((_first_s(record) for record in records), default=0.0)
        self._end_s = max((_last_s(record) for record in records), default=0.0)
        self._spans = {r.job_id: r for r in records if isinstance(r, LaneSpan)}
        lm = [span for span in self._spans.values() if span.lane is LaneName.LM]
        self._lm = sorted(lm, key=lambda span: span.end_s)
        self._lm_ends_s = [span.end_s for span in self._lm]
        self._states: dict[int, RequestState] = {}
        self._counts = {"waiting": 0, "running": 0, "draining": 0}
        self._ready = 0
        self._count_chunks([r for r in records if isinstance(r, ChunkLife)])
        self._close_states(records)

    def add(self, record: Record) -> None:
        if isinstance(record, LaneSpan):
            self._span(record)
        elif isinstance(record, ChunkLife):
            self._chunk(record)
        elif isinstance(record, RequestChange):
            self._state(record)
        else:
            self._instant(record)

    def _us(self, time_s: float) -> float:
        return round((time_s - self._start_s) * 1e6, 3)

    def _event(self, phase: str, name: str, time_s: float, pid: int, **more: Any) -> None:
        self.events.append(
            {"ph": phase, "name": name, "ts": self._us(time_s), "pid": pid, "tid": 0} | more
        )

    def _counter(self, name: str, time_s: float, value: float) -> None:
        self._event("C", name, time_s, LANES_PID, args={"value": value})

    def _span(self, span: LaneSpan) -> None:
        unit = "token" if span.kind is JobKind.PREFILL else "row"
        self._event(
            "X",
            f"{span.kind} {span.batch}",
            span.start_s,
            LANES_PID,
            tid=_THREADS[span.lane],
            dur=round((span.end_s - span.start_s) * 1e6, 3),
            cat=str(span.kind),
            args={
                "job": span.job_id,
                "rows": span.batch,
                f"bucket ({unit}s)": span.bucket,
                "SMs": span.sms,
                "frames": span.num_frames,
                "queued (us)": self._us(span.queued_s),
                "requests": list(span.rows),
                "failed": span.failed,
            },
        )
        self._counter(f"batch {span.lane}", span.start_s, span.batch)
        self._counter(f"batch {span.lane}", span.end_s, 0)

    def _chunk(self, chunk: ChunkLife) -> None:
        name = f"chunk {chunk.index}"
        track: dict[str, Any] = {"cat": "chunk", "id": chunk.request_id}
        args = {
            "frames": chunk.num_frames,
            "class": str(chunk.urgency),
            "reason": str(chunk.reason),
            "lane": None if chunk.lane is None else str(chunk.lane),
            "deadline (us)": None if chunk.deadline_s is None else self._us(chunk.deadline_s),
            "slack (s)": chunk.slack_s,
            "stall (s)": chunk.stall_s,
            "audio (s)": chunk.audio_s,
        }
        span = self._spans.get(-1 if chunk.job_id is None else chunk.job_id)
        end_s = chunk.delivered_s
        if end_s is None:
            end_s = chunk.ready_s if span is None else span.end_s
        self._event("b", name, chunk.ready_s, REQUESTS_PID, args=args, **track)
        self._event("e", name, end_s, REQUESTS_PID, **track)
        if chunk.stall_s > 0.0:
            self._event("n", f"stall {chunk.stall_s * 1e3:.0f} ms", end_s, REQUESTS_PID, **track)
        if chunk.slack_s is not None and chunk.launched_s is not None:
            self._counter("slack at launch (s)", chunk.launched_s, round(chunk.slack_s, 6))
        if span is not None:
            self._flow(chunk, span)

    def _flow(self, chunk: ChunkLife, span: LaneSpan) -> None:
        place = bisect_right(self._lm_ends_s, chunk.ready_s) - 1
        if place < 0:
            return
        made = self._lm[place]
        arrow: dict[str, Any] = {"cat": "chunk", "id": f"{chunk.request_id}.{chunk.index}"}
        # An arrow is tied to the slice that encloses its time: start inside the step.
        inside_s = made.end_s - min(1e-6, (made.end_s - made.start_s) / 2)
        name = "chunk"
        self._event("s", name, inside_s, LANES_PID, tid=_THREADS[LaneName.LM], **arrow)
        self._event("f", name, span.start_s, LANES_PID, tid=_THREADS[span.lane], bp="e", **arrow)

    def _state(self, change: RequestChange) -> None:
        request = change.request_id
        track: dict[str, Any] = {"cat": "state", "id": request}
        old = self._states.get(request)
        if old is not None:
            self._event("e", str(old), change.time_s, REQUESTS_PID, **track)
        detail = {"detail": change.detail, "frames": change.num_frames}
        if change.state.is_final:
            self._states.pop(request, None)
            reason = "" if change.reason is None else f" ({change.reason})"
            name = f"{change.state}{reason}"
            self._event("n", name, change.time_s, REQUESTS_PID, args=detail, **track)
        else:
            self._states[request] = change.state
            name = str(change.state)
            self._event("b", name, change.time_s, REQUESTS_PID, args=detail, **track)
        self._count_requests(change, old)

    def _count_requests(self, change: RequestChange, old: RequestState | None) -> None:
        for state, step in ((old, -1), (change.state, 1)):
            group = None if state is None else _group(state)
            if group is not None:
                self._counts[group] += step
                self._counter(f"{group} requests", change.time_s, self._counts[group])

    def _count_chunks(self, chunks: list[ChunkLife]) -> None:
        steps = [(c.ready_s, 1) for c in chunks]
        steps += [(c.delivered_s, -1) for c in chunks if c.delivered_s is not None]
        count = 0
        for time_s, step in sorted(steps):
            count += step
            self._counter("ready chunks", time_s, count)

    def _close_states(self, records: list[Record]) -> None:
        """A trace can end in the middle: what is open then is closed at its end."""
        last = {r.request_id: r for r in records if isinstance(r, RequestChange)}
        for change in last.values():
            if not change.state.is_final:
                name = str(change.state)
                track: dict[str, Any] = {"cat": "state", "id": change.request_id}
                self._event("e", name, self._end_s, REQUESTS_PID, **track)

    def _instant(self, record: Record) -> None:
        if isinstance(record, SettingChange):
            name = f"{record.name}: {record.old} -> {record.new}"
        elif isinstance(record, AdmissionNote):
            verb = "admitted" if record.admitted else "deferred"
            name = f"request {record.request_id} {verb}: {record.why}"
        elif isinstance(record, OverloadChange):
            name = f"overload {'entered' if record.active else 'left'}: {record.why}"
        else:
            assert isinstance(record, HostDelay), f"unknown record {record!r}"
            name = f"host delay {record.delay_s * 1e3:.1f} ms"
        self._event("i", name, _first_s(record), LANES_PID, s="p")


def _names() -> list[_Event]:
    events = [_name("process_name", LANES_PID, 0, "lanes")]
    events += [_name("thread_name", LANES_PID, tid, str(lane)) for lane, tid in _THREADS.items()]
    return [*events, _name("process_name", REQUESTS_PID, 0, "requests")]


def _name(kind: str, pid: int, tid: int, name: str) -> _Event:
    return {"ph": "M", "name": kind, "ts": 0.0, "pid": pid, "tid": tid, "args": {"name": name}}


def _group(state: RequestState) -> str | None:
    if state is RequestState.WAITING:
        return "waiting"
    if state is RequestState.DRAINING:
        return "draining"
    return None if state.is_final else "running"


def _first_s(record: Record) -> float:
    if isinstance(record, LaneSpan):
        return min(record.queued_s, record.start_s)
    return record.ready_s if isinstance(record, ChunkLife) else record.time_s


def _last_s(record: Record) -> float:
    if isinstance(record, LaneSpan):
        return record.end_s
    if isinstance(record, ChunkLife):
        return record.ready_s if record.delivered_s is None else record.delivered_s
    return record.time_s
