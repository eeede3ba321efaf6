"""Notices that more is offered than can be served in time, and says whom to refuse.

Overload is entered when the oldest waiting request's predicted TTFA has exceeded its target for a
second, when over a fifth of the first chunks of the last two seconds were late, or when over a
fifth of the continuation chunks of the last second were urgent; it is left when predictions have
stayed below 0.7 of the target for two seconds and chunks are in time again. While it lasts,
requests that would be too late anyway are refused at arrival (`shed`) unless they are alone, or
prompts are prefilled at once (`prefill_first`).
"""

from __future__ import annotations

import math

import numpy as np

from voxserve.core.events import OverloadChange
from voxserve.core.jobs import LaneName, Partition
from voxserve.core.playback import BoolArray
from voxserve.core.request import RequestSpec
from voxserve.sched.board import Board
from voxserve.sched.policy import HeadChunks
from voxserve.sched.recent import Share
from voxserve.sched.state import ActiveRequest, IntArray

ENTER_S, LEAVE_S = 1.0, 2.0
LEAVE_RATIO = 0.7  # of the target
LATE_SHARE = 0.2  # of first chunks; a burst below capacity makes a tenth late now and then
URGENT_SHARE, WINDOW_S = 0.2, 1.0
SPREAD = 1.05  # on what requests usually wait: refusing a little early is what keeps them in time
MIN_SPEED = 1.2  # a little above the speed of speech: chunks come in waves
_LOOK_EVERY_S = 0.01  # a prediction costs as much as a decision; spells last a hundred of these
_GAP_S = 0.25  # a queue that is empty for this long ends a spell of late predictions


class Overload:
    """Watches predictions and classes; `board.is_overloaded` is its verdict."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._next_look_s = -math.inf
        self._late_since_s: float | None = None
        self._last_late_s = -math.inf
        self._calm_since_s: float | None = None
        self._urgent = Share(WINDOW_S)

    def update(self, now_s: float) -> None:
        """Looks at the oldest waiting request now and then; call it before every decision."""
        board = self._board
        if board.settings.overload == "off" or not board.policy.has_deadlines:
            self._set(now_s, False, "turned off")
            return
        if now_s < self._next_look_s:
            return
        self._next_look_s = now_s + _LOOK_EVERY_S
        oldest = next((r for r in board.waiting if r.spec.has_listener), None)
        ratio = 0.0
        if oldest is not None:
            ratio = self._oldest_ttfa_s(now_s, oldest) / oldest.spec.ttfa_target_s
        elif now_s - self._last_late_s < _GAP_S:
            return
        self._judge(now_s, ratio)

    def refusal(self, now_s: float, spec: RequestSpec) -> str:
        """Why a request arriving now is hopeless; "" if it is not, or nothing is refused."""
        board = self._board
        if not board.is_overloaded or board.settings.overload != "shed" or not spec.has_listener:
            return ""
        if not board.waiting and not board.table.num_held:
            return ""  # what is slow alone is no overload; refused, it would never be timed again
        ttfa_s = self._new_ttfa_s(now_s, spec)
        self._judge(now_s, ttfa_s / spec.ttfa_target_s)
        if ttfa_s > spec.ttfa_target_s:
            return (
                f"overloaded: first audio is predicted after {ttfa_s * 1e3:.0f} ms, "
                f"the target is {spec.ttfa_target_s * 1e3:.0f} ms; try again later"
            )
        speed = self._speed(now_s)
        if speed < MIN_SPEED:
            return (
                f"overloaded: the streams under way are served at {speed:.2f} times the speed of "
                "speech, so with this one some would stall; try again later"
            )
        return ""

    def launched(self, heads: HeadChunks, index: IntArray, is_urgent: BoolArray) -> None:
        """Counts continuation chunks by class as they leave; those of the ramp do not count.

        Args:
            heads: The chunks of a batch.
            index: [chunks] int64 within their requests.
            is_urgent: [chunks] bool, their class.
        """
        has_started = index >= self._board.table.ramp_length[heads.slots]
        is_steady = (has_started > heads.is_first) & (heads.due_s != np.inf)
        count = int(np.count_nonzero(is_steady))
        if count:
            self._urgent.add(heads.now_s, count, int(np.count_nonzero(is_urgent & is_steady)))

    def _judge(self, now_s: float, ratio: float) -> None:
        """Takes a prediction (in units of its target) as evidence."""
        board = self._board
        if ratio > 1.0:
            self._last_late_s = now_s
            if self._late_since_s is None:
                self._late_since_s = now_s
        else:
            self._late_since_s = None
        is_short = self._urgent.at(now_s) > URGENT_SHARE
        is_late = board.late_firsts.at(now_s) > LATE_SHARE
        is_slow = board.is_overloaded and self._speed(now_s) < MIN_SPEED / LEAVE_RATIO
        if ratio >= LEAVE_RATIO or is_short or is_late or is_slow:
            self._calm_since_s = None
        elif self._calm_since_s is None:
            self._calm_since_s = now_s
        if is_short:
            self._set(now_s, True, f"over {URGENT_SHARE:.0%} of continuation chunks are urgent")
        elif is_late:
            self._set(now_s, True, f"over {LATE_SHARE:.0%} of first chunks are late")
        elif self._late_since_s is not None and now_s - self._late_since_s >= ENTER_S:
            self._set(now_s, True, f"predicted TTFA over the target for {ENTER_S:.0f} s")
        elif self._calm_since_s is not None and now_s - self._calm_since_s >= LEAVE_S:
            self._set(now_s, False, f"below {LEAVE_RATIO} of the target for {LEAVE_S:.0f} s")

    def _set(self, now_s: float, is_active: bool, why: str) -> None:
        board = self._board
        if board.is_overloaded == is_active:
            return
        board.is_overloaded = is_active
        self._late_since_s = self._calm_since_s = None
        if board.record is not None:
            board.record(OverloadChange(now_s, is_active, why))

    def _speed(self, now_s: float) -> float:
        """Audio delivered per second, per stream that has not got all of its audio for a second.

        A leading sign: below 1 the streams' buffers shrink, long before chunks are late.
        """
        board, table = self._board, self._board.table
        delivered = board.delivered
        while delivered and delivered[0][0] <= now_s - WINDOW_S:
            delivered.popleft()
        frames = sum(item[1] for item in delivered)
        is_open = (table.request_id >= 0) & ~table.is_over & table.has_listener
        num_open = np.count_nonzero(is_open & (table.opened_s <= now_s - WINDOW_S))
        return frames * board.frame_s / WINDOW_S / num_open if num_open else math.inf

    def _oldest_ttfa_s(self, now_s: float, request: ActiveRequest) -> float:
        waited_s = now_s - request.spec.arrival_s
        rest_s = max(self._busy_s(now_s), self._slot_wait_s(1))
        return waited_s + rest_s + self._service_s(request.spec, request.prompt_tokens, 1)

    def _new_ttfa_s(self, now_s: float, spec: RequestSpec) -> float:
        """By what is ahead of it; at least what requests usually wait at the present pace."""
        board = self._board
        tokens = sum(r.prompt_tokens for r in board.waiting) + spec.prompt_tokens[0]
        count = len(board.waiting) + 1
        # It will wait at least about as long as the oldest has waited so far.
        queued_s = now_s - board.waiting[0].spec.arrival_s if board.waiting else 0.0
        wait_s = max(self._busy_s(now_s), self._slot_wait_s(count), queued_s)
        ttfa_s = now_s - spec.arrival_s + wait_s + self._service_s(spec, tokens, count)
        return max(ttfa_s, SPREAD * board.first_audio.usual_ttfa_s(now_s, board.pace_s()))

    def _busy_s(self, now_s: float) -> float:
        """Until the LM lane has done what it was given."""
        in_lane = self._board.lanes[LaneName.LM]
        return max(0.0, self._board.jobs[in_lane[-1]].ends_s - now_s) if in_lane else 0.0

    def _slot_wait_s(self, count: int) -> float:
        """Until so many slots are free, at the pace at which they came back lately."""
        board = self._board
        table = board.table
        free = min(len(table.free), board.settings.max_running - table.num_held)
        missing = count - max(free, 0)
        released_s = board.released_s
        if missing <= 0 or len(released_s) < 2:
            return 0.0
        return missing * (released_s[-1] - released_s[0]) / (len(released_s) - 1)

    def _service_s(self, spec: RequestSpec, tokens: int, count: int) -> float:
        """Prefill to first audio, as estimated."""
        board, table = self._board, self._board.table
        bucket = board.prepared.prefill_buckets[-1]
        rounds = math.ceil(tokens / bucket)
        step_s = board.step_s()
        prefill_s = board.estimates.prefill_s(min(tokens, bucket), count, board.lm_split)
        partition = Partition.WHOLE
        if not board.has_urgent_lane:
            partition = board.codec_partition(board.codec_split)
        codec_s = board.estimates.codec_s(1, spec.chunk_ramp[0], board.codec_split, partition)
        queued = int(np.count_nonzero(table.is_head & table.is_urgent))
        steps = rounds - 1 + spec.chunk_ramp[0] + board.lookahead_frames - 1
        batches = 1 + queued // board.settings.urgent_batch
        return rounds * prefill_s + steps * step_s + batches * codec_s
