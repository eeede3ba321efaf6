"""Books ended codec batches: the playback clock, deliveries, next head chunks, ends of requests."""

from __future__ import annotations

import numpy as np

from voxserve.core.chunk import Chunks
from voxserve.core.events import PackedChunks
from voxserve.core.jobs import (
    ChunkHandedOff,
    ChunksDelivered,
    CodecDone,
    CodecJob,
    HeardElsewhere,
    JobKind,
)
from voxserve.core.playback import FloatArray, deliver_batch
from voxserve.core.request import RequestState
from voxserve.sched.board import Board, InFlight
from voxserve.sched.life import end, release
from voxserve.sched.readiness import make_heads
from voxserve.sched.state import ActiveRequest, IntArray


def codec_done(board: Board, now_s: float, event: CodecDone) -> None:
    """Delivers a batch's chunks, in row order, to the requests that still want them."""
    entry = board.finish(event.job_id, event.start_s, event.end_s, failed=False)
    assert len(event.num_samples) == len(entry.slots), f"job {event.job_id}: wrong sample counts"
    job, table = entry.job, board.table
    assert isinstance(job, CodecJob), f"job {job.job_id} decodes no chunks"
    chunks, lives = job.chunks, entry.lives
    num_samples = np.asarray(event.num_samples, dtype=np.int64)
    table.is_busy[chunks.slot] = False
    if event.failed or np.count_nonzero(table.is_over[chunks.slot]):
        rows = _wanted_rows(board, now_s, entry, event.failed)
        chunks, num_samples = chunks.picked(rows), num_samples[rows]
        lives = None if lives is None else lives.picked(rows)
    if len(chunks) > 0 and job.kind is JobKind.HANDOFF:
        _hand_off(board, now_s, chunks)
    elif len(chunks) > 0:
        _deliver(board, now_s, chunks, lives, num_samples)


def codec_failed(board: Board, now_s: float, entry: InFlight, message: str) -> None:
    """A whole codec job failed: so do its requests, and only they."""
    board.table.is_busy[entry.slots] = False
    _wanted_rows(board, now_s, entry, dict.fromkeys(range(len(entry.slots)), message))


def heard_elsewhere(board: Board, now_s: float, event: HeardElsewhere) -> None:
    """Role LM: the codec's device delivered a chunk; ignored for requests that have ended."""
    request = board.requests.get(event.request_id)
    if request is None or request.slot < 0:
        return
    table, slot = board.table, request.slot
    _play(board, now_s, np.array([slot]), np.array([event.num_samples / board.sample_rate_hz]))
    table.heard_frames[slot] += event.num_frames
    _end_if_heard(board, now_s, request)


def _hand_off(board: Board, now_s: float, chunks: Chunks) -> None:
    table, slots = board.table, chunks.slot
    table.num_done[slots] += 1
    table.done_frames[slots] += table.head_frames[slots]
    refs = list(chunks)
    for chunk in refs:
        owner, frames = _owner(board, chunk.slot), int(table.frames[chunk.slot])
        there = min(frames, chunk.first_frame + chunk.num_frames + board.lookahead_frames)
        reason = owner.reason if chunk.is_last else None
        board.notices.append(ChunkHandedOff(chunk, there, reason))
    make_heads(board, now_s, slots[table.num_ready[slots] > table.num_done[slots]])
    for chunk in refs:
        _end_if_heard(board, now_s, _owner(board, chunk.slot))


def _end_if_heard(board: Board, now_s: float, request: ActiveRequest) -> None:
    table, slot = board.table, request.slot
    is_sent = table.num_done[slot] == table.num_ready[slot]
    if table.has_ended[slot] and is_sent and table.heard_frames[slot] == table.frames[slot]:
        end(board, now_s, request, RequestState.DONE)


def _wanted_rows(board: Board, now_s: float, entry: InFlight, failed: dict[int, str]) -> list[int]:
    """Rows to deliver; fails the failed ones and lets go of what ended meanwhile."""
    rows: list[int] = []
    slots: list[int] = entry.slots.tolist()
    for row, slot in enumerate(slots):
        owner = _owner(board, slot)
        if not owner.state.is_final and row not in failed:
            rows.append(row)
            continue
        if board.record is not None and entry.lives is not None:
            board.record(entry.lives.picked([row]))
        if owner.state.is_final:
            release(board, now_s, owner)
        else:
            end(board, now_s, owner, RequestState.FAILED, failed[row])
    return rows


def _deliver(
    board: Board,
    now_s: float,
    chunks: Chunks,
    lives: PackedChunks | None,
    num_samples: IntArray,
) -> None:
    table, slots = board.table, chunks.slot
    audio_s = num_samples / board.sample_rate_hz
    deadline_s, stall_s = _play(board, now_s, slots, audio_s)
    num_done = chunks.index + 1
    table.num_done[slots] = num_done
    table.done_frames[slots] = chunks.first_frame + chunks.num_frames
    board.delivered.append((now_s, int(np.add.reduce(chunks.num_frames))))
    board.notices.append(ChunksDelivered(chunks, num_samples, deadline_s, stall_s))
    if board.record is not None and lives is not None:
        lives.delivered_s, lives.audio_s, lives.stall_s = now_s, audio_s, stall_s
        board.record(lives)
    is_behind = table.num_ready[slots] > num_done
    if np.count_nonzero(is_behind):
        make_heads(board, now_s, slots[is_behind])
    over: list[int] = slots[table.has_ended[slots] > is_behind].tolist()  # ended, nothing left
    for slot in over:
        end(board, now_s, _owner(board, slot), RequestState.DONE)


def _play(
    board: Board, now_s: float, slots: IntArray, audio_s: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Moves the playback clocks on; returns the chunks' own deadlines and stalls."""
    table = board.table
    deadline_s, is_playing = table.deadline_s[slots], table.is_playing[slots]
    stall_s, next_s = deliver_batch(now_s, audio_s, deadline_s, is_playing)
    if np.count_nonzero(is_playing) < len(slots):
        next_s = np.where(table.has_listener[slots], next_s, np.inf)
        starts = (audio_s > 0.0) & ~is_playing
        _start_playing(board, now_s, slots[starts], deadline_s[starts])
    due_s = next_s
    if table.has_reports:  # nobody's deadlines are corrected before the first report
        correction_s = np.zeros(len(slots))
        is_corrected = is_playing & table.has_listener[slots]  # elsewhere both can be infinite
        np.subtract(table.due_s[slots], deadline_s, out=correction_s, where=is_corrected)
        due_s = next_s + correction_s
    table.deadline_s[slots] = next_s
    table.due_s[slots] = due_s
    return deadline_s, stall_s


def _start_playing(board: Board, now_s: float, slots: IntArray, due_s: FloatArray) -> None:
    board.table.is_playing[slots] = True
    is_heard = due_s != np.inf
    num_heard = int(np.count_nonzero(is_heard))
    if num_heard == 0:
        return
    board.late_firsts.add(now_s, num_heard, int(np.count_nonzero(due_s < now_s)))
    pace_s = board.pace_s()
    heard: list[int] = slots[is_heard].tolist()
    for slot in heard:
        board.first_audio.add(now_s, now_s - _owner(board, slot).spec.arrival_s, pace_s)


def _owner(board: Board, slot: int) -> ActiveRequest:
    owner = board.table.owner[slot]
    assert owner is not None, f"slot {slot} has a chunk in flight without an owner"
    return owner
