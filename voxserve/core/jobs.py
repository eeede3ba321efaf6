"""Jobs the scheduler hands out and events it is told: the contract between decider and doer.

The scheduler is `on_event(now_s, event)` and `next_jobs(now_s) -> list[Job]`. An executor runs
each job in its lane's order and answers with exactly one event for it. Lanes are independent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

import numpy as np
from numpy.typing import NDArray

from voxserve.core.chunk import ChunkRef, Chunks
from voxserve.core.request import FinishReason, RequestSpec, RequestState
from voxserve.core.settings import Settings, Split


class LaneName(StrEnum):
    """The three in-order execution queues."""

    LM = "lm"
    BACKGROUND = "background"
    URGENT = "urgent"


class JobKind(StrEnum):
    """What a job computes; also the kind of a lane span in the trace."""

    PREFILL = "prefill"
    DECODE = "decode"
    CODEC = "codec"
    HANDOFF = "handoff"  # copies a chunk's codes to the device that decodes them


class Role(StrEnum):
    """What a device does; codes travel between devices per chunk, never per step."""

    BOTH = "both"
    LM = "lm"  # ends each chunk with a handoff instead of decoding it
    CODEC = "codec"  # is told of codes that arrived, and decodes them


class Partition(StrEnum):
    """Which set of SMs (or CPU threads) an executable was prepared for."""

    WHOLE = "whole"
    LM = "lm"
    CODEC = "codec"


class RowStatus(IntEnum):
    """What a prefill or decode row said about its sequence."""

    CONTINUE = 0  # made a frame, goes on
    END = 1  # end token: made no frame
    WATCHDOG = 2  # silence or repetition: made no frame, the request ends


@dataclass(frozen=True, slots=True)
class PrefillJob:
    """Prompt pass of one piece of each request; it also samples that piece's first frame.

    Attributes:
        job_id: Unique.
        request_ids: One per row.
        slots: Slot of each row.
        pieces: Which piece of each request's text (0 first).
        kv_pages: KV pages each slot owns, in order (empty when the executor has no pages).
        num_tokens: Prompt tokens of all rows.
        bucket: Prepared size, in tokens.
        queued_s: When the scheduler decided.
        split: SM split in force.
    """

    job_id: int
    request_ids: tuple[int, ...]
    slots: tuple[int, ...]
    pieces: tuple[int, ...]
    kv_pages: tuple[tuple[int, ...], ...]
    num_tokens: int
    bucket: int
    queued_s: float
    split: Split
    lane: LaneName = LaneName.LM
    kind: JobKind = JobKind.PREFILL
    partition: Partition = Partition.WHOLE


@dataclass(slots=True, eq=False)  # never changed; freezing would take 10 x as long
class DecodeJob:
    """One decode step: one frame for each row.

    Attributes:
        slots: [rows] int32, in the order of the rows.
        bucket: Prepared batch size, >= rows.
    """

    job_id: int
    slots: NDArray[np.int32]
    bucket: int
    queued_s: float
    split: Split
    partition: Partition
    lane: LaneName = LaneName.LM
    kind: JobKind = JobKind.DECODE


@dataclass(slots=True, eq=False)  # never changed; freezing would take 10 x as long
class CodecJob:
    """Chunks decoded as one batch on a codec lane.

    On a device with role LM its kind is HANDOFF: the codes of the chunks, and of as many frames
    after them as the codec looks ahead, are copied to the codec's device instead. Its answer is a
    `CodecDone` whose sample counts mean nothing.

    Attributes:
        chunks: One per row, in deadline order.
        bucket: Prepared batch size, >= rows.
        num_frames: Frames of the executable; shorter chunks ride with a per-row valid length.
    """

    job_id: int
    lane: LaneName
    chunks: Chunks
    bucket: int
    num_frames: int
    queued_s: float
    split: Split
    partition: Partition
    kind: JobKind = JobKind.CODEC


Job = PrefillJob | DecodeJob | CodecJob


@dataclass(frozen=True, slots=True)
class Arrival:
    """A new request."""

    spec: RequestSpec


@dataclass(frozen=True, slots=True)
class Cancel:
    """The user no longer wants this request. Unknown or ended ids are ignored."""

    request_id: int


@dataclass(frozen=True, slots=True)
class Fail:
    """This request's work failed outside a job (its input, its consumer)."""

    request_id: int
    error: str


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """Validated settings, effective at the next scheduling point."""

    settings: Settings


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    """Another scheduling policy, effective at the next scheduling point.

    Attributes:
        policy: A `sched.policy.Policy`; None goes back to the one that the settings name.
    """

    policy: object | None


@dataclass(frozen=True, slots=True, eq=False)
class StepDone:
    """A prefill or decode job ended.

    Attributes:
        status: [rows] int8 of RowStatus; a CONTINUE row made one frame.
        start_s, end_s: Measured on the lane.
        failed: Row index -> message, for rows whose own work failed.
    """

    job_id: int
    status: NDArray[np.int8]
    start_s: float
    end_s: float
    failed: dict[int, str] = field(default_factory=dict[int, str])


@dataclass(frozen=True, slots=True, eq=False)
class CodecDone:
    """A codec job ended.

    Attributes:
        num_samples: [chunks], samples to deliver for each (0: all cut as leading silence).
    """

    job_id: int
    num_samples: Sequence[int] | NDArray[np.int64]
    start_s: float
    end_s: float
    failed: dict[int, str] = field(default_factory=dict[int, str])


@dataclass(frozen=True, slots=True)
class JobFailed:
    """A whole job failed; every request in it fails, others go on."""

    job_id: int
    error: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class TextArrived:
    """Streamed text: `num_tokens` more are there; `complete` after the last.

    The prefill makes the first frame from the prompt; each later frame takes one more token, and
    the request is starved while it has none. Once complete it goes on to its end token.
    """

    request_id: int
    num_tokens: int
    complete: bool


@dataclass(frozen=True, slots=True)
class CodesArrived:
    """Role CODEC: this many frames of a request are here, all in all.

    Attributes:
        reason: How the stream of frames ended, with the last of them; None before.
    """

    request_id: int
    num_frames: int
    reason: FinishReason | None = None


@dataclass(frozen=True, slots=True)
class HeardElsewhere:
    """Role LM: the codec's device delivered a chunk of this request just now."""

    request_id: int
    num_frames: int
    num_samples: int


@dataclass(frozen=True, slots=True)
class ListenerReport:
    """A real player's audio still to play, to correct the playback clock (bounded, slewed)."""

    request_id: int
    buffered_s: float


JobEnded = StepDone | CodecDone | JobFailed
Event = (
    Arrival
    | Cancel
    | Fail
    | SettingsChanged
    | PolicyChanged
    | StepDone
    | CodecDone
    | JobFailed
    | TextArrived
    | CodesArrived
    | HeardElsewhere
    | ListenerReport
)


@dataclass(slots=True)
class ChunkDelivered:
    """A row of `ChunksDelivered`."""

    chunk: ChunkRef
    num_samples: int
    deadline_s: float
    stall_s: float


@dataclass(slots=True, eq=False)
class ChunksDelivered:
    """The engine may hand these chunks' samples to their listeners now, in row order.

    Iterating gives a `ChunkDelivered` per row.

    Attributes:
        num_samples: [chunks] int64.
        deadline_s: [chunks] float64, infinite where nobody listens.
        stall_s: [chunks] float64.
    """

    chunks: Chunks
    num_samples: NDArray[np.int64]
    deadline_s: NDArray[np.float64]
    stall_s: NDArray[np.float64]

    def __iter__(self) -> Iterator[ChunkDelivered]:
        columns = (self.num_samples, self.deadline_s, self.stall_s)
        return map(ChunkDelivered, self.chunks, *(column.tolist() for column in columns))


@dataclass(frozen=True, slots=True)
class ChunkHandedOff:
    """Role LM: the codes are on the codec's device; send it `CodesArrived`.

    Attributes:
        num_frames: Frames of the request that are there now, look-ahead included.
        reason: Set with the last chunk.
    """

    chunk: ChunkRef
    num_frames: int
    reason: FinishReason | None


@dataclass(frozen=True, slots=True)
class RequestEnded:
    """A request reached a final state; nothing is delivered after it."""

    request_id: int
    state: RequestState
    reason: FinishReason | None
    error: str | None
    num_frames: int


@dataclass(frozen=True, slots=True)
class SlotReleased:
    """No job uses this slot any more."""

    slot: int
    request_id: int


Notice = ChunksDelivered | ChunkHandedOff | RequestEnded | SlotReleased
