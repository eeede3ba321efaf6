"""Why a chunk was late: its whole way through the server as intervals, and what they cost it.

`explain(trace, request_id, index)` takes any records (a live trace, a saved one, a simulation) and
attributes the lateness of that chunk to intervals that add up to it: waits first, the latest
first, and only what is left to the work itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from voxserve.core.errors import InvalidInput
from voxserve.core.events import ChunkLife, Record
from voxserve.sim.way import Interval, Way, Work
from voxserve.sim.what_if import Change, Context, smallest_change


class Label(StrEnum):
    """Who is to blame, in one word."""

    IN_TIME = "in time"
    SERVER = "server"
    INPUT = "input"
    HOST = "host"
    LISTENER = "listener"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a chunk came when it did.

    Attributes:
        lateness_s: Delivered after its deadline by so much; 0 when in time.
        is_first: The lateness is a missed TTFA target, not a stall.
        label: Where the largest part of it comes from.
        parts: Intervals that add up to the lateness, in order of time.
        way: Every interval from the request's arrival to this delivery.
        cure: The smallest change of one setting that avoids it, or None.
        sentence: All of it in plain words.
    """

    request_id: int
    index: int
    lateness_s: float
    is_first: bool
    label: Label
    parts: tuple[Interval, ...]
    way: tuple[Interval, ...]
    cure: Change | None
    sentence: str

    @property
    def about_it(self) -> str:
        """The sentence, where the chunk was named before."""
        return f"It{self.sentence.removeprefix(_name(self.request_id, self.index))}"


_LABELS = {Work.INPUT: Label.INPUT, Work.HOST: Label.HOST, Work.LISTENER: Label.LISTENER}


def explain(
    trace: Iterable[Record], request_id: int, index: int, context: Context | None = None
) -> Explanation:
    """Explains one delivered chunk.

    Args:
        trace: Records that hold the request's whole life so far.
        request_id: Whose chunk.
        index: Which one, 0 first.
        context: What the trace was recorded under; with it, a cure is looked for by replaying
            the trace's load in virtual time.

    Raises:
        InvalidInput: The trace does not hold this chunk, or not its request's arrival.
    """
    records = list(trace)
    chunk = _chunk(records, request_id, index)
    way = Way(records, request_id, context.settings.lane_mode if context else None)
    intervals = way.until_delivery(chunk)
    lateness_s = _lateness_s(chunk)
    is_first = _is_first(records, chunk)
    parts = _attributed(intervals, lateness_s)
    cure = None
    if context is not None and lateness_s > 0.0:
        cure = smallest_change(records, chunk, is_first, context)
    return Explanation(
        request_id,
        index,
        lateness_s,
        is_first,
        _label(parts),
        parts,
        tuple(intervals),
        cure,
        _sentence(chunk, lateness_s, is_first, parts, cure),
    )


def late_chunks(trace: Iterable[Record]) -> list[ChunkLife]:
    """Chunks that stalled their stream or missed the TTFA target, in order of delivery."""
    records = list(trace)
    found = [r for r in records if isinstance(r, ChunkLife) and _lateness_s(r) > 0.0]
    return [c for c in found if c.stall_s > 0.0 or _is_first(records, c)]


def _chunk(records: list[Record], request_id: int, index: int) -> ChunkLife:
    for record in records:
        if isinstance(record, ChunkLife) and record.delivered_s is not None:
            if (record.request_id, record.index) == (request_id, index):
                return record
    raise InvalidInput(f"the trace holds no delivered chunk {index} of request {request_id}")


def _lateness_s(chunk: ChunkLife) -> float:
    if chunk.deadline_s is None or chunk.delivered_s is None or chunk.audio_s <= 0.0:
        return 0.0
    return max(0.0, chunk.delivered_s - chunk.deadline_s)


def _is_first(records: list[Record], chunk: ChunkLife) -> bool:
    """Whether it is the first with audio: earlier ones were silence, cut away."""
    return not any(
        isinstance(r, ChunkLife)
        and r.request_id == chunk.request_id
        and r.index < chunk.index
        and r.audio_s > 0.0
        for r in records
    )


def _attributed(intervals: list[Interval], lateness_s: float) -> tuple[Interval, ...]:
    """The latest waits that add up to the lateness; if they do not, the latest work too."""
    left_s, parts = lateness_s, list[Interval]()
    for wants_wait in (True, False):
        for interval in reversed(intervals):
            if left_s <= 0.0:
                break
            if interval.work.is_wait is wants_wait and interval.seconds > 0.0:
                part = interval.last(left_s)
                parts.append(part)
                left_s -= part.seconds
    return tuple(sorted(parts, key=lambda part: part.start_s))


def _sums(parts: tuple[Interval, ...]) -> list[tuple[float, Interval]]:
    """Seconds per kind of interval, the largest first, with the longest interval of each."""
    sums: dict[Work, float] = {}
    longest: dict[Work, Interval] = {}
    for part in parts:
        sums[part.work] = sums.get(part.work, 0.0) + part.seconds
        if part.work not in longest or part.seconds > longest[part.work].seconds:
            longest[part.work] = part
    return sorted(((sums[w], longest[w]) for w in sums), key=lambda item: -item[0])


def _label(parts: tuple[Interval, ...]) -> Label:
    if not parts:
        return Label.IN_TIME
    return _LABELS.get(_sums(parts)[0][1].work, Label.SERVER)


def _sentence(
    chunk: ChunkLife,
    lateness_s: float,
    is_first: bool,
    parts: tuple[Interval, ...],
    cure: Change | None,
) -> str:
    name = _name(chunk.request_id, chunk.index)
    if lateness_s <= 0.0:
        if chunk.deadline_s is None or chunk.delivered_s is None:
            return f"{name} has no deadline: nobody listens."
        spare_s = chunk.deadline_s - chunk.delivered_s
        return f"{name} came {_length(spare_s, 0)} before its deadline."
    what = "after the TTFA target" if is_first else "late, and playback stalled"
    because = ", ".join(f"{_length(s, 1)} {part.words()}" for s, part in _sums(parts))
    told = f"{name} came {_length(lateness_s, 1)} {what}: {because}."
    return told if cure is None else f"{told} {cure.sentence()}"


def _name(request_id: int, index: int) -> str:
    return f"Chunk {index} of request {request_id}"


def _length(seconds: float, digits: int) -> str:
    """Milliseconds below a second, which is where their digits matter."""
    return f"{seconds * 1e3:.{digits}f} ms" if seconds < 1.0 else f"{seconds:.2f} s"
