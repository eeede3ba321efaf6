"""What a request is to the scheduler: its shape, its states and how it ended. No text, no audio."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RequestState(StrEnum):
    """Life of a request: waiting, prefilling, running, draining, then one of the four ends."""

    WAITING = "waiting"
    PREFILLING = "prefilling"
    RUNNING = "running"
    STARVED = "starved"  # streamed text is missing; only this request pauses
    DRAINING = "draining"  # frames complete, chunks outstanding
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"
    REJECTED = "rejected"  # refused at arrival

    @property
    def is_final(self) -> bool:
        """Whether nothing can follow this state."""
        return self in _FINAL


_FINAL = frozenset(
    (RequestState.DONE, RequestState.CANCELLED, RequestState.FAILED, RequestState.REJECTED)
)


class FinishReason(StrEnum):
    """Why a `done` request ended."""

    END = "end"  # the model's end token after the last piece
    LENGTH = "length"  # the frame budget ran out
    WATCHDOG = "watchdog"  # silence or repetition
    NO_AUDIO = "no audio"  # the end token came first


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """A request as the scheduler sees it.

    A long text is spoken as several *pieces*: at the end of a piece the backbone prefills the
    next one into the same slot, while frames, codec state and deadlines go on as one stream.

    Attributes:
        request_id: Unique in the engine.
        arrival_s: When the request was made, engine clock.
        prompt_tokens: Prompt length of each piece, in tokens.
        max_frames: Frame budget over all pieces.
        chunk_ramp: Frames of the first, second, ... chunk; the last number repeats.
        has_listener: False for file output: no deadlines, never held back.
        ttfa_target_s: First-chunk deadline relative to arrival.
        text_complete: False while streamed text is still arriving.
    """

    request_id: int
    arrival_s: float
    prompt_tokens: tuple[int, ...]
    max_frames: int
    chunk_ramp: tuple[int, ...]
    has_listener: bool = True
    ttfa_target_s: float = 0.2
    text_complete: bool = True
