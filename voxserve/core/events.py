"""The trace schema: what is recorded while serving, in which units. See `Trace` for the ring.

Times are seconds on the engine's monotonic clock. Records are appended once, complete, and never
changed; a chunk's record is appended when it is delivered or dropped, a span's when it ends. The
two that are made for every job and chunk are not frozen: that would take ten times as long.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from voxserve.core.chunk import Urgency, UrgencyReason
from voxserve.core.jobs import JobKind, LaneName
from voxserve.core.request import FinishReason, RequestState


@dataclass(slots=True, unsafe_hash=True)
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
        self._ring: list[Record | None] = [None] * capacity

    def append(self, record: Record) -> None:
        """Adds a record, dropping the oldest when full."""
        self._ring[self.total % self.capacity] = record
        self.total += 1

    def since(self, position: int) -> tuple[list[Record], int]:
        """Records appended at or after `position` that are still held, and the new position."""
        end = self.total
        start = max(position, end - self.capacity, 0)
        picked = [self._ring[i % self.capacity] for i in range(start, end)]
        return [record for record in picked if record is not None], end

    def records(self) -> list[Record]:
        """All records still held, oldest first."""
        return self.since(0)[0]

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records())

    def __len__(self) -> int:
        return min(self.total, self.capacity)

    def clear(self) -> None:
        """Forgets what is held; positions handed out before stay valid."""
        self._ring = [None] * self.capacity
