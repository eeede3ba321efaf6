"""Helpers for stories in virtual time: steps of 10 ms, prefills of 5, codec 2 (partition 8)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from voxserve.core.events import ChunkLife, LaneSpan, RequestChange
from voxserve.core.jobs import JobKind, LaneName
from voxserve.core.request import RequestState
from voxserve.core.settings import Settings, Split
from voxserve.sim.fake import FAKE_PREPARED, FakeWorld

STEP_S, PREFILL_S, URGENT_S, BACKGROUND_S = 0.010, 0.005, 0.002, 0.008
FIRST_S = PREFILL_S + 9 * STEP_S  # a request alone has its first ten frames
SPLIT = Split(100, 32)


def world(prepared: dict[str, Any] | None = None, **settings: Any) -> FakeWorld:
    """A world with the default table cost; keyword arguments are settings."""
    settings.setdefault("sm_split", SPLIT)
    return FakeWorld(Settings(**settings), replace(FAKE_PREPARED, **(prepared or {})))


def chunk(told: FakeWorld, request_id: int, index: int) -> ChunkLife:
    """The record of one chunk."""
    (record,) = (
        c for c in told.records(ChunkLife) if (c.request_id, c.index) == (request_id, index)
    )
    return record


def spans(told: FakeWorld, lane: LaneName, kind: JobKind | None = None) -> list[LaneSpan]:
    """Spans of a lane in order of their ends."""
    found: list[LaneSpan] = [s for s in told.records(LaneSpan) if s.lane is lane]
    return [s for s in found if kind is None or s.kind is kind]


def entered(told: FakeWorld, request_id: int, state: RequestState) -> RequestChange:
    """When and why a request entered a state."""
    (record,) = (
        r for r in told.records(RequestChange) if (r.request_id, r.state) == (request_id, state)
    )
    return record
