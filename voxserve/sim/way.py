"""A request's way through the server, from a trace: contiguous intervals, each with its reason."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from voxserve.core.chunk import Urgency
from voxserve.core.errors import InvalidInput
from voxserve.core.events import AdmissionNote, ChunkLife, LaneSpan, Record, RequestChange
from voxserve.core.jobs import JobKind, LaneName
from voxserve.core.request import RequestState


class Work(StrEnum):
    """What an interval was spent on; the value completes "12 ms ..."."""

    DEFERRED = "deferred for the slack of running requests"
    PLACE = "waiting for a free slot, pages or prefill bucket"
    STEP = "behind a step in flight"
    PREFILL = "behind a prefill"
    DECODE_PLACE = "without a place in the decode step"
    INPUT = "waiting for streamed text"
    BATCHING = "held back to fill a background batch"
    LANE = "behind a codec batch"
    HOST = "waiting for the host"
    LISTENER = "held back because the listener reported audio in hand"
    GENERATING = "generating its frames"
    DECODING = "decoding it"

    @property
    def is_wait(self) -> bool:
        """Whether nothing was done for this request meanwhile."""
        return self not in (Work.GENERATING, Work.DECODING)


@dataclass(frozen=True, slots=True)
class Interval:
    """A stretch of a request's life.

    Attributes:
        detail: Who was in the way, or how large the batch was.
    """

    start_s: float
    end_s: float
    work: Work
    detail: str = ""

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end_s - self.start_s

    def last(self, seconds: float) -> Interval:
        """Its last part, at most so long."""
        return replace(self, start_s=max(self.start_s, self.end_s - seconds))

    def clipped(self, start_s: float, end_s: float) -> Interval:
        """What lies within the bounds (possibly of length 0)."""
        start_s = min(max(self.start_s, start_s), end_s)
        return replace(self, start_s=start_s, end_s=max(start_s, min(self.end_s, end_s)))

    def words(self) -> str:
        """For a sentence: "behind a codec batch (64 chunks on 32 SMs)"."""
        return f"{self.work.value} ({self.detail})" if self.detail else self.work.value


class Way:
    """The intervals of one request.

    Args:
        records: A trace.
        request_id: Whose way.
        lane_mode: In the modes with one loop, the backbone's jobs hold chunks up too.

    Raises:
        InvalidInput: The trace does not hold the request's arrival.
    """

    def __init__(self, records: Sequence[Record], request_id: int, lane_mode: str | None) -> None:
        self._is_one_loop = lane_mode in ("time_sharing", "two_streams")
        spans = [r for r in records if isinstance(r, LaneSpan)]
        self._by_job = {span.job_id: span for span in spans}
        self._lanes = {
            lane: sorted((s for s in spans if s.lane is lane), key=lambda s: s.start_s)
            for lane in LaneName
        }
        self._chunks = {
            r.index: r for r in records if isinstance(r, ChunkLife) and r.request_id == request_id
        }
        changes = [
            r for r in records if isinstance(r, RequestChange) and r.request_id == request_id
        ]
        if not changes or changes[0].state is not RequestState.WAITING:
            raise InvalidInput(f"the trace does not hold the arrival of request {request_id}")
        self._request_id = request_id
        self._arrival_s = changes[0].time_s
        self._starved = _spells(changes, RequestState.STARVED)
        self._deferred = _deferrals(records, self._lanes[LaneName.LM])

    def until_delivery(self, chunk: ChunkLife) -> list[Interval]:
        """From the request's arrival to the chunk's delivery, without a gap."""
        return [*self._until_ready(chunk.ready_s), *self._after_ready(chunk)]

    def _until_ready(self, ready_s: float) -> list[Interval]:
        """Arrival, prefill, steps."""
        found: list[Interval] = []
        at_s, has_started, num_waited = self._arrival_s, False, 0
        for span in self._lanes[LaneName.LM]:
            if span.end_s <= at_s:
                continue
            if span.start_s >= ready_s:
                break
            if span.start_s > at_s:
                found += self._idle(at_s, min(span.start_s, ready_s))
                at_s = span.start_s
            end_s = min(span.end_s, ready_s)
            if self._request_id in span.rows:
                has_started = True
                detail = f"{span.kind} of {span.batch} on {_sms(span)}"
                found.append(Interval(at_s, end_s, Work.GENERATING, detail))
            elif has_started:
                found += self._passed_over(at_s, end_s, span)
            else:
                found += self._waiting(at_s, end_s, span, num_waited)
                num_waited += 1
            at_s = max(at_s, end_s)
        return [*found, *self._idle(at_s, ready_s)] if at_s < ready_s else found

    def _idle(self, start_s: float, end_s: float) -> list[Interval]:
        """The LM lane has no job: text is missing, or the host is late."""
        return _split(start_s, end_s, self._starved, Work.INPUT, Work.HOST)

    def _waiting(
        self, start_s: float, end_s: float, span: LaneSpan, num_waited: int
    ) -> list[Interval]:
        """Before its prefill, while the LM lane runs something else."""
        if span.kind is JobKind.PREFILL:
            other = Work.PREFILL
        else:
            other = Work.STEP if num_waited == 0 else Work.PLACE
        return _split(start_s, end_s, self._deferred, Work.DEFERRED, other, _rows(span))

    def _passed_over(self, start_s: float, end_s: float, span: LaneSpan) -> list[Interval]:
        """Running, but not in this job."""
        is_prefill = span.kind is JobKind.PREFILL
        other = Work.PREFILL if is_prefill else Work.DECODE_PLACE
        return _split(start_s, end_s, self._starved, Work.INPUT, other, _rows(span))

    def _after_ready(self, chunk: ChunkLife) -> list[Interval]:
        """Waiting for its predecessor, for a lane, and being decoded."""
        assert chunk.launched_s is not None, "a delivered chunk was launched"
        assert chunk.delivered_s is not None, "only delivered chunks have a way"
        found: list[Interval] = []
        if chunk.head_s > chunk.ready_s and chunk.index - 1 in self._chunks:
            before = self._after_ready(self._chunks[chunk.index - 1])
            clipped = [i.clipped(chunk.ready_s, chunk.head_s) for i in before]
            found += [
                replace(i, work=Work.LANE, detail="its own previous chunk")
                if i.work is Work.DECODING
                else i
                for i in clipped
                if i.seconds > 0.0
            ]
        found += self._held(chunk)
        span = self._by_job.get(-1 if chunk.job_id is None else chunk.job_id)
        if span is None:
            return [*found, Interval(chunk.launched_s, chunk.delivered_s, Work.DECODING)]
        found.append(Interval(chunk.launched_s, span.start_s, Work.HOST))
        found.append(Interval(span.start_s, span.end_s, Work.DECODING, _batch(span)))
        found.append(Interval(span.end_s, chunk.delivered_s, Work.HOST))
        return [i for i in found if i.seconds > 0.0]

    def _held(self, chunk: ChunkLife) -> list[Interval]:
        """Head chunk until launch: busy lanes, then what its class made it wait for."""
        assert chunk.launched_s is not None, "was launched"
        if chunk.promoted_s is None:
            lane = chunk.lane or LaneName.BACKGROUND
            is_held = chunk.urgency is Urgency.BACKGROUND
            found = self._behind(chunk.head_s, chunk.launched_s, lane, is_held)
        else:
            found = self._behind(chunk.head_s, chunk.promoted_s, LaneName.BACKGROUND, True)
            found += self._behind(chunk.promoted_s, chunk.launched_s, LaneName.URGENT, False)
        return _blame_listener(found, chunk.correction_s)

    def _behind(
        self, start_s: float, end_s: float, lane: LaneName, is_held: bool
    ) -> list[Interval]:
        found: list[Interval] = []
        at_s = start_s
        for span in self._busy_spans(lane):
            if span.end_s <= at_s or span.start_s >= end_s:
                continue
            if span.start_s > at_s:
                found.append(self._unlaunched(at_s, span.start_s, is_held))
            at_s = max(at_s, span.start_s)
            until_s = min(span.end_s, end_s)
            if span.lane is LaneName.LM:
                is_prefill = span.kind is JobKind.PREFILL
                work = Work.PREFILL if is_prefill else Work.STEP
                found.append(Interval(at_s, until_s, work, _rows(span)))
            else:
                found.append(Interval(at_s, until_s, Work.LANE, _batch(span)))
            at_s = until_s
        if at_s < end_s:
            found.append(self._unlaunched(at_s, end_s, is_held))
        return found

    def _busy_spans(self, lane: LaneName) -> list[LaneSpan]:
        if not self._is_one_loop:
            return self._lanes[lane]
        both = self._lanes[lane] + self._lanes[LaneName.LM]
        return sorted(both, key=lambda span: span.start_s)

    @staticmethod
    def _unlaunched(start_s: float, end_s: float, is_held: bool) -> Interval:
        return Interval(start_s, end_s, Work.BATCHING if is_held else Work.HOST)


def _split(
    start_s: float,
    end_s: float,
    spells: list[tuple[float, float]],
    inside: Work,
    outside: Work,
    detail: str = "",
) -> list[Interval]:
    """An interval cut at the spells: `inside` within them, `outside` between them."""
    found: list[Interval] = []
    at_s = start_s
    for low_s, high_s in spells:
        low_s, high_s = max(low_s, at_s), min(high_s, end_s)
        if high_s <= low_s:
            continue
        if low_s > at_s:
            found.append(Interval(at_s, low_s, outside, detail))
        found.append(Interval(low_s, high_s, inside))
        at_s = high_s
    if at_s < end_s:
        found.append(Interval(at_s, end_s, outside, detail))
    return found


def _spells(changes: list[RequestChange], state: RequestState) -> list[tuple[float, float]]:
    """When the request was in a state."""
    ends_s = [change.time_s for change in changes[1:]] + [float("inf")]
    return [
        (change.time_s, end_s)
        for change, end_s in zip(changes, ends_s, strict=True)
        if change.state is state
    ]


def _deferrals(records: Sequence[Record], lm: list[LaneSpan]) -> list[tuple[float, float]]:
    """When prompts were being deferred: from a note to that request's prefill."""
    prefills = [span for span in lm if span.kind is JobKind.PREFILL]
    starts_s = [span.queued_s for span in prefills]
    spells: list[tuple[float, float]] = []
    for record in records:
        if isinstance(record, AdmissionNote) and not record.admitted:
            place = bisect_right(starts_s, record.time_s)
            ends = (s.queued_s for s in prefills[place:] if record.request_id in s.rows)
            spells.append((record.time_s, next(ends, float("inf"))))
    return sorted(spells)


def _blame_listener(intervals: list[Interval], correction_s: float) -> list[Interval]:
    """The last part of being held back is the listener's, as far as it moved the deadline."""
    found: list[Interval] = []
    for interval in reversed(intervals):
        if interval.work is Work.BATCHING and correction_s > 0.0:
            part = interval.last(correction_s)
            correction_s -= part.seconds
            found.append(replace(part, work=Work.LISTENER))
            interval = replace(interval, end_s=part.start_s)
        if interval.seconds > 0.0:
            found.append(interval)
    return found[::-1]


def _sms(span: LaneSpan) -> str:
    return f"{span.sms} SMs" if span.sms else "the whole device"


def _batch(span: LaneSpan) -> str:
    chunks = "1 chunk" if span.batch == 1 else f"{span.batch} chunks"
    return f"{chunks} on {_sms(span)}"


def _rows(span: LaneSpan) -> str:
    unit = "prompt" if span.kind is JobKind.PREFILL else "row"
    return f"of {span.batch} {unit}{'' if span.batch == 1 else 's'}"
