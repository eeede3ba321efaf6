"""A chunk: a fixed run of one request's frames, decoded in one codec call."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Urgency(StrEnum):
    """Class of a ready head chunk."""

    URGENT = "urgent"
    BACKGROUND = "background"


class UrgencyReason(StrEnum):
    """Why a chunk got its class, in the words the workbench shows."""

    FIRST = "first chunk"
    MARGIN = "inside the urgency margin"
    SLACK = "has slack"
    NO_LISTENER = "nobody listens"


@dataclass(slots=True, unsafe_hash=True)  # never changed; freezing would take 10 x as long
class ChunkRef:
    """Names a chunk in jobs and events.

    Attributes:
        request_id: Owner.
        slot: Device-side place of the owner's codes and codec state.
        index: 0 for the first chunk.
        first_frame: First frame of the chunk within the request.
        num_frames: Valid frames (a last chunk can be short; 0 for a pure flush).
        is_last: The codec flushes its delayed samples after these frames.
    """

    request_id: int
    slot: int
    index: int
    first_frame: int
    num_frames: int
    is_last: bool
