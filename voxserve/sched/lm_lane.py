"""Decides what the LM lane does next: a prefill, a decode step, and of which rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from voxserve.core.jobs import DecodeJob, JobKind, PrefillJob
from voxserve.core.playback import BoolArray, FloatArray
from voxserve.core.request import RequestState
from voxserve.core.settings import MAX_STEPS_PER_PREFILL
from voxserve.sched.admission import admit, pages_needed
from voxserve.sched.board import Board, InFlight
from voxserve.sched.estimates import bucket_for
from voxserve.sched.life import change_state
from voxserve.sched.policy import RunningView
from voxserve.sched.slack import slack_s
from voxserve.sched.split import follow_lm_split
from voxserve.sched.state import ActiveRequest, IntArray


class LmLane:
    """The LM lane's decisions; see `next_job` for their order."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._steps = MAX_STEPS_PER_PREFILL  # since the last prefill
        self._everybody_s = -np.inf  # when a step last held all who wanted a row
        self._rows = _Rows(board)

    def next_job(self, now_s: float) -> PrefillJob | DecodeJob | None:
        """A continuation's prefill, new prompts, or a decode step; None when there is no work.

        After a prefill decode steps come first wherever one is possible: so many as set.
        """
        board = self._board
        follow_lm_split(board)
        is_row = board.table.is_decodable()
        has_rows = bool(np.count_nonzero(is_row))
        may_prefill = self._steps >= board.settings.decode_steps_per_prefill or not has_rows
        if may_prefill and board.continuing:
            return self._prefill(now_s, self._continuations())
        if may_prefill and board.waiting:
            admitted = admit(board, now_s)
            if admitted:
                for request in admitted:
                    self._open(request, now_s)
                return self._prefill(now_s, admitted)
        return self._decode(now_s, is_row) if has_rows else None

    def _continuations(self) -> list[ActiveRequest]:
        room = self._board.prepared.prefill_buckets[-1]
        picked: list[ActiveRequest] = []
        while self._board.continuing and self._board.continuing[0].prompt_tokens <= room:
            room -= self._board.continuing[0].prompt_tokens
            picked.append(self._board.continuing.popleft())
        return picked

    def _open(self, request: ActiveRequest, now_s: float) -> None:
        board = self._board
        board.waiting.remove(request)
        board.table.open(request, now_s, board.lookahead_frames)
        request.kv_pages = board.pages.take(pages_needed(board, request))
        change_state(board, request, RequestState.PREFILLING, now_s)

    def _prefill(self, now_s: float, requests: list[ActiveRequest]) -> PrefillJob:
        board, table = self._board, self._board.table
        num_tokens = sum(request.prompt_tokens for request in requests)
        job = PrefillJob(
            job_id=board.new_job_id(),
            request_ids=tuple(request.request_id for request in requests),
            slots=tuple(request.slot for request in requests),
            pieces=tuple(request.piece for request in requests),
            kv_pages=tuple(request.kv_pages for request in requests),
            num_tokens=num_tokens,
            bucket=bucket_for(board.prepared.prefill_buckets, num_tokens),
            queued_s=now_s,
            split=board.lm_split,
        )
        for request in requests:
            self._set_limit(request)
        slots = np.array(job.slots, dtype=np.int64)
        table.is_active[slots] = True
        table.is_pending[slots] = False
        estimate_s = board.estimates.prefill_s(num_tokens, len(requests), job.split)
        is_row = np.zeros_like(table.launched)
        is_row[slots] = 1
        self._launch(now_s, job, slots, is_row, estimate_s)
        return job

    def _set_limit(self, request: ActiveRequest) -> None:
        """Frames this piece may reach: the budget, the context, and the text that is there."""
        board, table, slot = self._board, self._board.table, request.slot
        request.piece_first_frame = int(table.frames[slot])
        context = board.prepared.max_context_tokens - request.prompt_tokens
        request.frame_limit = min(request.spec.max_frames, request.piece_first_frame + context)
        table.limit[slot] = min(request.frame_limit, request.text_frames)
        table.check_at[slot] = min(table.border[slot], table.limit[slot])

    def _decode(self, now_s: float, is_row: BoolArray) -> DecodeJob:
        board, batch = self._board, self._rows
        if np.count_nonzero(is_row) > board.settings.max_decode_batch:
            slots = self._chosen(now_s, is_row.nonzero()[0])
            is_row = np.zeros_like(is_row)
            is_row[slots] = True
            board.table.last_step_s[slots] = now_s
        else:
            self._everybody_s = now_s
        batch.become(is_row)
        split = board.lm_split
        partition = board.lm_partition(split)
        job = DecodeJob(board.new_job_id(), batch.job_slots, batch.bucket, now_s, split, partition)
        estimate_s = board.estimates.decode_s(len(batch.slots), split, partition)
        self._launch(now_s, job, batch.slots, batch.is_row, estimate_s)
        return job

    def _launch(
        self,
        now_s: float,
        job: PrefillJob | DecodeJob,
        slots: IntArray,
        is_row: IntArray,
        estimate_s: float,
    ) -> InFlight:
        board = self._board
        entry = board.start(now_s, job, slots, estimate_s)
        entry.is_row = is_row
        board.table.launched += is_row
        self._steps = 0 if job.kind is JobKind.PREFILL else self._steps + 1
        return entry

    def _chosen(self, now_s: float, rows: IntArray) -> IntArray:
        """Slots of a step that cannot hold everybody, in no order."""
        board, table = self._board, self._board.table
        at = rows if len(rows) < table.width else slice(None)  # all: views instead of copies
        order = table.order[at]
        if board.admission == "prefill_first":
            keys: FloatArray = order.astype(np.float64)
        else:
            view = RunningView(
                now_s,
                board.settings,
                rows,
                slack_s(board, now_s)[at],
                now_s - np.maximum(table.last_step_s[at], self._everybody_s),
                ~table.is_playing[at],
                order,
            )
            keys = board.policy.decode_keys(view) + table.tie_s[at]
        batch = board.settings.max_decode_batch
        return rows[keys.argpartition(batch - 1)[:batch]]


class _Rows:
    """The rows of a decode step in the forms they are needed in; most steps repeat the last."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._key: bytes | None = None
        self.slots: IntArray = np.zeros(0, dtype=np.int64)
        self.is_row: IntArray = self.slots
        self.job_slots: NDArray[np.int32] = self.slots.astype(np.int32)
        self.bucket = 0

    def become(self, is_row: BoolArray) -> None:
        """Takes the rows of a mask [width]."""
        key = is_row.tobytes()
        if key == self._key:
            return
        self._key = key
        self.slots = is_row.nonzero()[0]
        self.is_row = is_row.astype(np.int64)
        self.job_slots = self.slots.astype(np.int32)
        self.bucket = bucket_for(self._board.prepared.decode_buckets, len(self.slots))
