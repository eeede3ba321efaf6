"""Books ended codec batches: the playback clock, deliveries, next head chunks, ends of requests."""

from __future__ import annotations

import numpy as np

from voxserve.core.chunk import ChunkRef
from voxserve.core.events import ChunkLife
from voxserve.core.jobs import ChunkDelivered, CodecDone, CodecJob
from voxserve.core.playback import FloatArray, next_deadlines_s, stalls_s
from voxserve.core.request import RequestState
from voxserve.sched.board import Board, InFlight
from voxserve.sched.life import end, release
from voxserve.sched.readiness import make_heads
from voxserve.sched.state import ActiveRequest, IntArray


def codec_done(board: Board, now_s: float, event: CodecDone) -> None:
    """Delivers a batch's chunks, in row order, to the requests that still want them."""
    entry = board.finish(event.job_id, event.start_s, event.end_s, failed=False)
    assert len(event.num_samples) == len(entry.slots), f"job {event.job_id}: wrong sample counts"
    board.table.is_busy[entry.slots] = False
    rows = _wanted_rows(board, now_s, entry, event.failed)
    if not rows:
        return
    slots = entry.slots[rows]
    num_samples = [event.num_samples[row] for row in rows]
    audio_s = np.array(num_samples) / board.sample_rate_hz
    due_s, stall_s = _play(board, now_s, slots, audio_s)
    for row, slot, samples, due, stall in zip(
        rows, slots.tolist(), num_samples, due_s.tolist(), stall_s.tolist(), strict=True
    ):
        _deliver(board, now_s, entry, row, slot, samples, due, stall)
    table = board.table
    make_heads(board, now_s, slots[table.num_ready[slots] > table.num_done[slots]])
    is_over = table.has_ended[slots] & (table.num_done[slots] == table.num_ready[slots])
    for slot in slots[is_over].tolist():
        end(board, now_s, _owner(board, slot), RequestState.DONE)


def codec_failed(board: Board, now_s: float, entry: InFlight, message: str) -> None:
    """A whole codec job failed: so do its requests, and only they."""
    board.table.is_busy[entry.slots] = False
    _wanted_rows(board, now_s, entry, dict.fromkeys(range(len(entry.slots)), message))


def _wanted_rows(board: Board, now_s: float, entry: InFlight, failed: dict[int, str]) -> list[int]:
    """Rows to deliver; fails the failed ones and lets go of what ended meanwhile."""
    rows: list[int] = []
    for row, slot in enumerate(entry.slots.tolist()):
        owner = _owner(board, slot)
        if not owner.state.is_final and row not in failed:
            rows.append(row)
            continue
        if board.record is not None:
            _record(board, entry, row, owner, None, 0, np.inf, 0.0)
        if owner.state.is_final:
            release(board, owner)
        else:
            end(board, now_s, owner, RequestState.FAILED, failed[row])
    return rows


def _play(
    board: Board, now_s: float, slots: IntArray, audio_s: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Moves the playback clocks on; returns the chunks' own deadlines and stalls."""
    table = board.table
    deadline_s, is_playing = table.deadline_s[slots], table.is_playing[slots]
    has_clock = is_playing & table.has_listener[slots]  # without one, both are infinite
    correction_s = np.zeros(len(slots))
    np.subtract(table.due_s[slots], deadline_s, out=correction_s, where=has_clock)
    stall_s = np.where(audio_s > 0.0, stalls_s(now_s, deadline_s, is_playing), 0.0)
    next_s = next_deadlines_s(now_s, audio_s, deadline_s, is_playing)
    has_listener = table.has_listener[slots]
    table.deadline_s[slots] = np.where(has_listener, next_s, np.inf)
    table.due_s[slots] = np.where(has_listener, next_s + correction_s, np.inf)
    table.is_playing[slots] |= audio_s > 0.0
    return deadline_s, np.where(has_listener, stall_s, 0.0)


def _deliver(
    board: Board,
    now_s: float,
    entry: InFlight,
    row: int,
    slot: int,
    num_samples: int,
    deadline_s: float,
    stall_s: float,
) -> None:
    table, owner = board.table, _owner(board, slot)
    chunk = _chunk(entry, row)
    table.num_done[slot] += 1
    table.done_frames[slot] += chunk.num_frames
    owner.num_samples += num_samples
    board.notices.append(ChunkDelivered(chunk, num_samples, deadline_s, stall_s))
    if board.record is not None:
        _record(board, entry, row, owner, now_s, num_samples, deadline_s, stall_s)


def _record(
    board: Board,
    entry: InFlight,
    row: int,
    owner: ActiveRequest,
    delivered_s: float | None,
    num_samples: int,
    deadline_s: float,
    stall_s: float,
) -> None:
    assert board.record is not None, "asked to record without a recorder"
    chunk = _chunk(entry, row)
    head_s, urgency, reason, promoted_s, slack_s = entry.chunks[row]
    board.record(
        ChunkLife(
            chunk.request_id,
            chunk.index,
            chunk.first_frame,
            chunk.num_frames,
            chunk.is_last,
            owner.ready_s[chunk.index],
            head_s,
            urgency,
            reason,
            promoted_s,
            entry.job.queued_s,
            delivered_s,
            deadline_s if deadline_s != np.inf else None,
            slack_s,
            num_samples / board.sample_rate_hz,
            stall_s,
            entry.job.lane,
            entry.job.job_id,
        )
    )


def _chunk(entry: InFlight, row: int) -> ChunkRef:
    assert isinstance(entry.job, CodecJob), "only codec jobs carry chunks"
    return entry.job.chunks[row]


def _owner(board: Board, slot: int) -> ActiveRequest:
    owner = board.table.owner[slot]
    assert owner is not None, f"slot {slot} has a chunk in flight without an owner"
    return owner
