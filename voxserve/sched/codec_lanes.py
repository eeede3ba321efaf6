"""Decides what the codec lanes do: classes of head chunks, urgent and background batches."""

from __future__ import annotations

import numpy as np

from voxserve.core.chunk import Chunks
from voxserve.core.events import PackedChunks
from voxserve.core.jobs import CodecJob, JobKind, LaneName, Partition, Role
from voxserve.core.playback import BoolArray, FloatArray
from voxserve.core.settings import Split
from voxserve.sched.board import Board
from voxserve.sched.estimates import bucket_for
from voxserve.sched.overload import Overload
from voxserve.sched.policy import BackgroundView, HeadChunks
from voxserve.sched.split import follow_codec_split
from voxserve.sched.state import IntArray

_NO_SPLIT = Split()
_FEW = 64


class CodecLanes:
    """Both codec lanes' decisions."""

    def __init__(self, board: Board, overload: Overload) -> None:
        self._board = board
        self._overload = overload

    def next_jobs(self, now_s: float, lm_is_idle: bool) -> list[CodecJob]:
        """Batches for the lanes that are idle, urgent first; sets the timers of what waits."""
        board = self._board
        may_launch = follow_codec_split(board) and board.is_idle(LaneName.BACKGROUND)
        heads = self._heads(now_s)
        if heads is None:
            return []
        if board.role is Role.LM:
            return self._one_batch(heads) if may_launch else []
        is_urgent = self._classify(heads)
        if not board.has_partitions:
            return self._one_batch(heads) if may_launch else []
        has_urgent = bool(np.count_nonzero(is_urgent))
        background = heads.picked(~is_urgent) if has_urgent else heads
        if len(background):
            self._wake_to_promote(background)
        if not board.has_urgent_lane:
            return self._background(heads, is_urgent, lm_is_idle) if may_launch else []
        jobs = self._urgent(heads, is_urgent, may_launch) if has_urgent else []
        if len(background) and may_launch and len(jobs) < 2:
            jobs += self._held(background, lm_is_idle)
        return jobs

    def _heads(self, now_s: float) -> HeadChunks | None:
        table = self._board.table
        slots = table.is_head.nonzero()[0]
        if len(slots) == 0:
            return None
        due_s = table.due_s[slots]
        by_due = _order(due_s)
        if due_s[by_due[-1]] == np.inf:  # files: longest waiting first, so none waits for ever
            by_due = np.lexsort((table.head_s[slots], due_s))
        slots = slots[by_due]
        is_first = ~table.is_playing[slots]
        return HeadChunks(now_s, slots, due_s[by_due], is_first, table.head_frames[slots])

    def _classify(self, heads: HeadChunks) -> BoolArray:
        board, table, slots = self._board, self._board.table, heads.slots
        is_urgent = board.policy.is_urgent(heads, board.settings)
        assert is_urgent.shape == slots.shape, "a policy classes each head chunk"
        if np.count_nonzero(is_urgent):
            was_background = ~(table.is_urgent[slots] | table.is_new_head[slots])
            table.promoted_s[slots[is_urgent & was_background]] = heads.now_s
        table.is_urgent[slots] = is_urgent
        table.is_new_head[slots] = False
        return is_urgent

    def _one_batch(self, heads: HeadChunks) -> list[CodecJob]:
        """Without lanes of its own (or codec of its own), everything that is ready goes."""
        rows = min(len(heads), self._board.settings.max_background_batch)
        return [self._launch(heads.first(rows), LaneName.BACKGROUND)]

    def _urgent(
        self, heads: HeadChunks, is_urgent: BoolArray, may_overflow: bool
    ) -> list[CodecJob]:
        """All urgent chunks as one batch; what overflows it may go to the background lane."""
        board = self._board
        if not board.is_idle(LaneName.URGENT):
            return []
        urgent = heads.picked(is_urgent)
        rows = min(len(urgent), board.settings.urgent_batch)
        jobs = [self._launch(urgent.first(rows), LaneName.URGENT)]
        overflow = urgent.picked(slice(rows, None))
        if len(overflow) and may_overflow and self._overflow_gains(overflow, jobs[0]):
            rows = min(len(overflow), board.settings.max_background_batch)
            jobs.append(self._launch(overflow.first(rows), LaneName.BACKGROUND))
        return jobs

    def _overflow_gains(self, overflow: HeadChunks, urgent_job: CodecJob) -> bool:
        """Whether an idle background lane ends them no later than the urgent lane would."""
        board = self._board
        num_frames = overflow.longest()
        batches = -(-len(overflow) // board.settings.urgent_batch)
        per_batch_s = board.estimates.codec_s(
            min(len(overflow), board.settings.urgent_batch), num_frames, _NO_SPLIT, Partition.WHOLE
        )
        wait_s = board.jobs[urgent_job.job_id].ends_s - overflow.now_s + batches * per_batch_s
        rows = min(len(overflow), board.settings.max_background_batch)
        return self._background_s(overflow, rows) <= wait_s

    def _background(
        self, heads: HeadChunks, is_urgent: BoolArray, lm_is_idle: bool
    ) -> list[CodecJob]:
        """Without an urgent lane: urgent chunks at once, and what else lets them be in time."""
        board = self._board
        if not is_urgent.any():
            return self._held(heads, lm_is_idle)
        urgent_first = heads.picked(np.argsort(~is_urgent, kind="stable"))
        left_s = float(urgent_first.due_s[0]) - heads.now_s
        rows = min(len(heads), board.settings.max_background_batch)
        while (
            rows > np.count_nonzero(is_urgent) and self._background_s(urgent_first, rows) > left_s
        ):
            rows -= 1
        return [self._launch(urgent_first.first(rows), LaneName.BACKGROUND)]

    def _held(self, heads: HeadChunks, lm_is_idle: bool) -> list[CodecJob]:
        board = self._board
        view = BackgroundView(
            heads=heads,
            settings=board.settings,
            max_batch=board.settings.max_background_batch,
            lm_is_idle=lm_is_idle,
            codec_s=lambda rows: self._background_s(heads, rows),
            can_be_ready=lambda until_s: self._can_be_ready(heads, until_s),
        )
        launch = board.policy.background(view)
        rows = min(launch.rows, view.all_rows())
        if rows > 0:
            return [self._launch(heads.first(rows), LaneName.BACKGROUND)]
        self._wake_after(heads.now_s, launch.look_again_s)
        return []

    def _background_s(self, heads: HeadChunks, rows: int) -> float:
        board = self._board
        split = board.codec_split
        return board.estimates.codec_s(
            rows, heads.longest(rows), split, board.codec_partition(split)
        )

    def _can_be_ready(self, heads: HeadChunks, until_s: float) -> int:
        """Requests that have a waiting background chunk, or can produce one by `until_s`."""
        board, table = self._board, self._board.table
        is_behind = table.num_ready - table.num_done - table.is_busy > 0
        steps = np.where(is_behind, 0, table.border - table.frames)
        pressure = np.count_nonzero(table.is_active) / board.settings.max_decode_batch
        ready_s = heads.now_s + steps * (board.step_s() * max(1.0, pressure))
        ready_s = np.where(table.is_busy, np.maximum(ready_s, table.busy_until_s), ready_s)
        can = is_behind | ((table.is_active | table.is_pending) & ~table.is_starved)
        can &= ~table.is_head & (table.request_id >= 0)
        if board.has_urgent_lane:  # which takes first chunks
            can &= table.is_playing | table.is_busy
        return len(heads) + int(np.count_nonzero(can & (ready_s <= until_s)))

    def _launch(self, heads: HeadChunks, lane: LaneName) -> CodecJob:
        """Takes head chunks off their slots as one batch."""
        board, table, slots = self._board, self._board.table, heads.slots
        split = board.codec_split
        is_urgent_lane = lane is LaneName.URGENT
        partition = Partition.WHOLE if is_urgent_lane else board.codec_partition(split)
        buckets = board.prepared.urgent_buckets if is_urgent_lane else board.prepared.codec_buckets
        request_id, index = table.request_id[slots], table.num_done[slots]
        is_last = table.has_ended[slots] & (index + 1 == table.num_ready[slots])
        first_frame = table.done_frames[slots]
        chunks = Chunks(request_id, slots, index, first_frame, heads.num_frames, is_last)
        job = CodecJob(
            job_id=board.new_job_id(),
            lane=lane,
            chunks=chunks,
            bucket=bucket_for(buckets, len(slots)),
            num_frames=bucket_for(board.prepared.chunk_frames, heads.longest()),
            queued_s=heads.now_s,
            split=split,
            partition=partition,
            kind=JobKind.HANDOFF if board.role is Role.LM else JobKind.CODEC,
        )
        cost_s = 0.0
        if board.role is not Role.LM:
            cost_s = board.estimates.codec_s(len(slots), job.num_frames, split, partition)
        entry = board.start(heads.now_s, job, slots, cost_s)
        is_urgent = table.is_urgent[slots]
        self._overload.launched(heads, index, is_urgent)
        table.is_head[slots] = False
        table.is_busy[slots] = True
        table.busy_until_s[slots] = entry.ends_s
        if board.record is not None:
            entry.lives = PackedChunks(
                job,
                chunks,
                cost_s,
                table.head_ready_s[slots],
                table.head_s[slots],
                is_urgent,
                heads.is_first,
                table.promoted_s[slots],
                table.deadline_s[slots],
                heads.due_s,
            )
        return job

    def _wake_to_promote(self, background: HeadChunks) -> None:
        board = self._board
        self._wake_after(background.now_s, board.policy.next_urgent_s(background, board.settings))

    def _wake_after(self, now_s: float, time_s: float) -> None:
        """A timer that has passed already is not one: something else is being waited for."""
        if time_s > now_s:
            self._board.wake_at(time_s)


def _order(values: FloatArray) -> IntArray:
    """[values] int64: their ascending order.

    numpy hands the interpreter to other threads while it sorts, which costs a switch interval
    where one of them computes; for few values Python's own sort is about as fast.
    """
    if len(values) > _FEW:
        return values.argsort()
    return np.array(sorted(range(len(values)), key=values.tolist().__getitem__), dtype=np.int64)
