"""The trace schema: what is recorded while serving, in which units. See `Trace` for the ring.

Times are seconds on the engine's monotonic clock. Records are appended once, complete, and never
changed; a chunk's record is appended when it is delivered or dropped, a span's when it ends. Those
two kinds come by the thousand: they are appended packed, a whole batch as columns, and become
records when somebody reads them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from voxserve.core.chunk import Chunks, Urgency, UrgencyReason
from voxserve.core.jobs import CodecJob, Job, JobKind, LaneName, Partition
from voxserve.core.request import FinishReason, RequestState


@dataclass(slots=True, unsafe_hash=True)  # never changed; freezing would take 10 x as long
class LaneSpan:
    """One job on one lane.

    Attributes:
        batch: Real rows; `bucket` prepared size (tokens for prefill).
        sms: SMs (CPU: threads) the job ran on; 0 means the whole device.
        rows: Request ids in row order.
        num_frames: Frames of a codec executable, 1 for a decode step, 0 for prefill.
    """

    lane: LaneName
    kind: JobKind
    job_id: int
    batch: int
    bucket: int
    sms: int
    queued_s: float
    start_s: float
    end_s: float
    rows: tuple[int, ...] = ()
    num_frames: int = 0
    failed: bool = False


@dataclass(slots=True, unsafe_hash=True)
class ChunkLife:
    """A chunk from ready to delivered.

    Attributes:
        ready_s: Its frames (and look-ahead) exist or the stream ended.
        head_s: Its predecessor was delivered: from here on it is classed.
        urgency, reason: Class at launch and why.
        promoted_s: When background became urgent, or None.
        launched_s: When it left for its lane (chunks that never did have no record).
        delivered_s: None when dropped by a cancel or failure.
        deadline_s: The audio delivered before runs out (first chunk: arrival + target); None
            when nobody listens.
        slack_s: Time to deadline minus estimated decode time, at launch.
        audio_s: Length of the samples delivered.
        stall_s: max(0, delivered - deadline); 0 for a first chunk.
        correction_s: How much later than `deadline_s` the listener's reports let it be due.
    """

    request_id: int
    index: int
    first_frame: int
    num_frames: int
    is_last: bool
    ready_s: float
    head_s: float
    urgency: Urgency
    reason: UrgencyReason
    promoted_s: float | None
    slack_s: float | None
    launched_s: float | None
    lane: LaneName | None
    job_id: int | None
    delivered_s: float | None
    deadline_s: float | None
    audio_s: float
    stall_s: float
    correction_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RequestChange:
    """A request entered a state; `detail` says why where it matters."""

    request_id: int
    state: RequestState
    time_s: float
    reason: FinishReason | None = None
    detail: str = ""
    num_frames: int = 0


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A setting took effect (values as text, as in files)."""

    time_s: float
    name: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class AdmissionNote:
    """A prefill was deferred (`admitted` False) or admitted by the limit."""

    time_s: float
    request_id: int
    admitted: bool
    why: str


@dataclass(frozen=True, slots=True)
class OverloadChange:
    """Overload was entered or left."""

    time_s: float
    active: bool
    why: str


@dataclass(frozen=True, slots=True)
class HostDelay:
    """The serving loop acted later than it could have (events waited for the host)."""

    time_s: float
    delay_s: float


Record = (
    LaneSpan
    | ChunkLife
    | RequestChange
    | SettingChange
    | AdmissionNote
    | OverloadChange
    | HostDelay
)


@dataclass(slots=True, eq=False)
class PackedSpan:
    """The `LaneSpan` of an ended job.

    Attributes:
        request_id: [rows] int64, in row order.
    """

    job: Job
    request_id: NDArray[np.int64]
    start_s: float
    end_s: float
    failed: bool

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[LaneSpan]:
        job = self.job
        sms = {Partition.LM: job.split.lm_sms, Partition.CODEC: job.split.codec_sms}
        is_decode = job.kind is JobKind.DECODE
        yield LaneSpan(
            job.lane,
            job.kind,
            job.job_id,
            len(self.request_id),
            job.bucket,
            sms.get(job.partition, 0),
            job.queued_s,
            self.start_s,
            self.end_s,
            tuple(self.request_id.tolist()),
            job.num_frames if isinstance(job, CodecJob) else int(is_decode),
            self.failed,
        )


@dataclass(slots=True, eq=False)
class PackedChunks:
    """The `ChunkLife` records of a batch, columns of [chunks] each; complete once delivered.

    Attributes:
        job: What took them to their lane.
        chunks: Those of the job, or some of them.
        cost_s: Estimated time of the job.
        promoted_s: NaN where a chunk was not promoted.
        deadline_s, due_s: Without and with what the listener reported, infinite where nobody
            listens.
        delivered_s, audio_s, stall_s: None when dropped.
    """

    job: CodecJob
    chunks: Chunks
    cost_s: float
    ready_s: NDArray[np.float64]
    head_s: NDArray[np.float64]
    is_urgent: NDArray[np.bool_]
    is_first: NDArray[np.bool_]
    promoted_s: NDArray[np.float64]
    deadline_s: NDArray[np.float64]
    due_s: NDArray[np.float64]
    delivered_s: float | None = None
    audio_s: NDArray[np.float64] | None = None
    stall_s: NDArray[np.float64] | None = None

    def picked(self, rows: Sequence[int]) -> PackedChunks:
        """Some of the rows of a batch that is not delivered yet, in the order given."""
        at = np.array(rows, dtype=np.int64)
        return PackedChunks(
            self.job,
            self.chunks.picked(rows),
            self.cost_s,
            self.ready_s[at],
            self.head_s[at],
            self.is_urgent[at],
            self.is_first[at],
            self.promoted_s[at],
            self.deadline_s[at],
            self.due_s[at],
        )

    def __len__(self) -> int:
        return len(self.chunks)

    def __iter__(self) -> Iterator[ChunkLife]:
        chunks, job, due_s = self.chunks, self.job, self.due_s.tolist()
        return map(
            ChunkLife,
            chunks.request_id.tolist(),
            chunks.index.tolist(),
            chunks.first_frame.tolist(),
            chunks.num_frames.tolist(),
            chunks.is_last.tolist(),
            self.ready_s.tolist(),
            self.head_s.tolist(),
            [
                Urgency.URGENT if urgent else Urgency.BACKGROUND
                for urgent in self.is_urgent.tolist()
            ],
            map(_reason, due_s, self.is_first.tolist(), self.is_urgent.tolist()),
            [time_s if time_s == time_s else None for time_s in self.promoted_s.tolist()],
            [_finite(time_s - job.queued_s - self.cost_s) for time_s in due_s],
            repeat(job.queued_s),
            repeat(job.lane),
            repeat(job.job_id),
            repeat(self.delivered_s),
            repeat(None) if self.audio_s is None else map(_finite, self.deadline_s.tolist()),
            repeat(0.0) if self.audio_s is None else self.audio_s.tolist(),
            repeat(0.0) if self.stall_s is None else self.stall_s.tolist(),
            map(_correction_s, due_s, self.deadline_s.tolist()),
        )


def _finite(time_s: float) -> float | None:
    return None if time_s == math.inf else time_s


def _reason(due_s: float, is_first: bool, is_urgent: bool) -> UrgencyReason:
    if due_s == math.inf:
        return UrgencyReason.NO_LISTENER
    if is_first:  # urgent, unless a policy lets first chunks wait
        return UrgencyReason.FIRST
    return UrgencyReason.MARGIN if is_urgent else UrgencyReason.SLACK


def _correction_s(due_s: float, deadline_s: float) -> float:
    return 0.0 if due_s == math.inf else due_s - deadline_s


Packed = PackedSpan | PackedChunks
_PACKED = (PackedSpan, PackedChunks)


def unpacked(items: Iterable[Record | Packed]) -> Iterator[Record]:
    """Every record, in order."""
    for item in items:
        if isinstance(item, _PACKED):
            yield from item
        else:
            yield item


class Trace:
    """A bounded ring of records.

    Appending is O(1) and safe from one writer thread while others read: readers take a copy of
    the range they want. `total` counts every record ever appended, so a reader that remembers it
    gets only what is new from `since`.
    """

    def __init__(self, capacity: int = 200_000) -> None:
        if capacity < 1:
            raise ValueError(f"trace capacity {capacity} is not positive")
        self.capacity = capacity
        self.total = 0
        # A ring of items (a record, or packed ones), each with the positions of its first record
        # and of the one after its last. Items are numbered from the first one ever.
        self._ring: list[tuple[int, int, Record | Packed] | None] = [None] * capacity
        self._oldest = self._num_items = 0

    def append(self, item: Record | Packed) -> None:
        """Adds a record, or packed ones, dropping the oldest when full."""
        start = self.total
        end = start + (len(item) if isinstance(item, _PACKED) else 1)
        if end > self.capacity:
            self._drop(end - self.capacity)
        self._ring[self._num_items % self.capacity] = (start, end, item)
        self._num_items += 1
        self.total = end

    def _drop(self, first: int) -> None:
        """Lets go of items that lie wholly before a position."""
        while True:
            place = self._oldest % self.capacity
            entry = self._ring[place]
            if entry is None or entry[1] > first:
                return
            self._ring[place] = None
            self._oldest += 1

    def since(self, position: int) -> tuple[list[Record], int]:
        """Records appended at or after `position` that are still held, and the new position."""
        number = self._num_items - 1
        entry = self._ring[number % self.capacity]
        if number < 0 or entry is None:
            return [], self.total
        end = at = entry[1]
        first = max(position, end - self.capacity)
        items: list[Record | Packed] = []
        # An item that ends elsewhere was overwritten while this one was being read.
        while at > first and entry is not None and entry[1] == at:
            at = entry[0]
            items.append(entry[2])
            number -= 1
            entry = self._ring[number % self.capacity]
        records = list(unpacked(reversed(items)))
        return records[max(first - at, 0) :], end

    def records(self) -> list[Record]:
        """All records still held, oldest first."""
        return self.since(0)[0]

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records())

    def __len__(self) -> int:
        return min(self.total, self.capacity)
