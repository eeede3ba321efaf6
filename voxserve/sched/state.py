"""What the scheduler knows about each request: one Python object, one column of the slot table.

Everything that a step touches for many requests at once is an array over slots; everything that
happens once per request or chunk is an attribute of `ActiveRequest`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from voxserve.core.jobs import CodesArrived
from voxserve.core.playback import BoolArray, FloatArray
from voxserve.core.request import FinishReason, RequestSpec, RequestState

IntArray = NDArray[np.int64]
WIDTH_STEP = 64
_TIE_S = 1e-9
NEVER = np.iinfo(np.int64).max // 4  # a frame count no request reaches


@dataclass(slots=True, eq=False)
class ActiveRequest:
    """A request that has not ended, or whose last jobs are still running.

    Attributes:
        slot: Device-side place, -1 while waiting.
        piece: Piece of the text that is being (or about to be) spoken.
        piece_first_frame: Frames made before this piece.
        kv_pages: Pages reserved for the longest piece.
        frame_limit: Frames this piece may reach: the budget, or a full context.
        text_frames: Frames the text that arrived so far allows (streamed text only): the prefill
            makes the first frame, and each later one takes a text token.
        deferred_since_s: When its prefill was first deferred.
        reason: How the stream of frames ended, once it has.
        early_codes: Role CODEC: what arrived before there was a slot.
        reported_s, report_error_s: The listener's last report, and how much later than modelled
            its audio runs out (smoothed).
    """

    spec: RequestSpec
    state: RequestState = RequestState.WAITING
    slot: int = -1
    piece: int = 0
    piece_first_frame: int = 0
    kv_pages: tuple[int, ...] = ()
    frame_limit: int = NEVER
    text_frames: int = NEVER
    deferred_since_s: float | None = None
    reason: FinishReason | None = None
    early_codes: CodesArrived | None = None
    reported_s: float | None = None
    report_error_s: float = 0.0

    @property
    def request_id(self) -> int:
        """Unique in the engine."""
        return self.spec.request_id

    @property
    def prompt_tokens(self) -> int:
        """Prompt length of the current piece."""
        return self.spec.prompt_tokens[self.piece]


class SlotTable:
    """Per-slot columns, [width] each; a free slot's values mean nothing.

    Only as many slots are looked at as requests have needed since the last pause, in steps of
    `WIDTH_STEP`: a decision costs what is running, not what a device could hold. It also keeps
    columns short of the 500 elements from which on numpy hands the interpreter to other threads.

    Attributes:
        width: Slots looked at; those from here on have never been given out.
        num_opened: Slots given out so far.
        owner: The request in each slot, or None.
        request_id: Its id, -1 when free.
        order, opened_s: Admission order and time.
        tie_s: A nanosecond per place in that order, to be added to times that may be equal.
        frames: Frames made (steps whose flags were read).
        launched: LM rows in flight.
        discard: Of those, how many belong to a sequence that has ended; `num_discard` in all.
        limit: Frames after which no further step is launched (budget, context, streamed text).
        check_at: Frames at which something happens: a chunk becomes ready or the limit is hit.
        border: Frames at which the next chunk becomes ready, look-ahead included.
        is_active: The backbone has more to generate (piece prefilled, or its prefill launched).
        is_pending: The next piece's prefill is due: running, though not active.
        is_starved: Streamed text is missing.
        has_ended: The stream of frames is complete.
        is_over: The request has ended; jobs in flight still use the slot.
        last_step_s: When it last got a row in a step.
        ready_s: When the ready chunks that are no heads yet became ready, oldest first.
        num_ready: Chunks made ready.
        ready_frames: Frames in ready chunks.
        next_frames: Size of the chunk that is being generated.
        num_done: Chunks delivered.
        done_frames: Frames in delivered chunks (role LM: in chunks handed off).
        heard_frames: Frames in delivered chunks, wherever they were decoded.
        is_head: A head chunk waits for a lane; `head_frames` are its valid frames.
        is_new_head: It has not been classed yet.
        is_urgent: Its class.
        head_ready_s, head_s, promoted_s: When it became ready; when it became the head; when it
            was promoted (NaN: not).
        is_busy: A chunk is on a codec lane.
        busy_until_s: When that is expected to end.
        has_listener: False: no deadlines.
        ramp, ramp_length: Chunk sizes, the last one repeated; how many were given.
        is_playing: Audio was delivered.
        deadline_s: When the audio delivered runs out; arrival + target before the first audio;
            infinite without a listener. SLO accounting uses this one.
        due_s: The same, corrected by what the listener reported.
        has_reports: A listener has reported, so the two can differ.
    """

    def __init__(self, num_slots: int, max_ramp: int) -> None:
        def ints(fill: int = 0) -> IntArray:
            return np.full(num_slots, fill, dtype=np.int64)

        def bools() -> BoolArray:
            return np.zeros(num_slots, dtype=np.bool_)

        def floats(fill: float = 0.0) -> FloatArray:
            return np.full(num_slots, fill, dtype=np.float64)

        self.num_slots = num_slots
        self.owner: list[ActiveRequest | None] = [None] * num_slots
        self.ready_s: list[deque[float]] = [deque() for _ in range(num_slots)]
        self.num_discard = 0
        self.free = list(range(num_slots - 1, -1, -1))  # at first the lowest goes out first
        self.request_id = ints(-1)
        self.order, self.frames, self.launched, self.discard = ints(), ints(), ints(), ints()
        self.limit, self.check_at, self.border = ints(), ints(), ints()
        self.is_active, self.is_pending, self.is_starved = bools(), bools(), bools()
        self.has_ended, self.is_over = bools(), bools()
        self.opened_s, self.last_step_s, self.tie_s = floats(), floats(), floats()
        self.num_ready, self.ready_frames, self.next_frames = ints(), ints(), ints()
        self.num_done, self.done_frames, self.head_frames = ints(), ints(), ints()
        self.heard_frames = self.done_frames
        self.is_head, self.is_new_head, self.is_urgent = bools(), bools(), bools()
        self.head_ready_s, self.head_s, self.promoted_s = floats(), floats(), floats(np.nan)
        self.is_busy = bools()
        self.busy_until_s = floats()
        self.has_listener, self.is_playing = bools(), bools()
        self.deadline_s, self.due_s = floats(), floats()
        self.ramp_length = ints()
        self.ramp = np.ones((num_slots, max_ramp), dtype=np.int64)
        self.num_opened = 0
        self.has_reports = False
        self._full: dict[str, NDArray[Any]] = {
            name: cast("NDArray[Any]", column)
            for name, column in vars(self).items()
            if isinstance(column, np.ndarray)
        }
        self.width = 0
        self._show(WIDTH_STEP)

    def heard_elsewhere(self) -> None:
        """Role LM: being handed off and being heard are two things."""
        self._full["heard_frames"] = np.zeros(self.num_slots, dtype=np.int64)
        self._show(self.width)

    def widened(self, mask: IntArray) -> IntArray:
        """A mask over the slots that were looked at when it was made, for those of now."""
        if len(mask) == self.width:
            return mask
        wide = np.zeros_like(self.launched)
        wide[: len(mask)] = mask
        return wide

    def _show(self, width: int) -> None:
        self.width = min(width, self.num_slots)
        for name, column in self._full.items():
            setattr(self, name, column[: self.width])

    @property
    def num_held(self) -> int:
        """Slots with an owner."""
        return self.num_slots - len(self.free)

    def num_undelivered(self) -> int:
        """Chunks that are ready and undelivered, those in flight included; from any thread.

        NOTE: other threads may look while the width changes, one column after the other.
        """
        full = self._full
        held = full["request_id"] >= 0
        return int((full["num_ready"][held] - full["num_done"][held]).sum())

    def open(self, request: ActiveRequest, now_s: float, lookahead_frames: int) -> None:
        """Gives a free slot to a request that is about to be prefilled: the last one freed."""
        slot = self.free.pop()
        if slot >= self.width:
            self._show(self.width + WIDTH_STEP)
        spec = request.spec
        request.slot = slot
        self.owner[slot] = request
        self.ready_s[slot].clear()
        self.request_id[slot] = spec.request_id
        self.order[slot] = self.num_opened
        self.tie_s[slot] = _TIE_S * self.num_opened
        self.num_opened += 1
        for column in (
            *(self.frames, self.launched, self.discard, self.num_ready, self.ready_frames),
            *(self.num_done, self.done_frames, self.heard_frames, self.busy_until_s),
            *(self.is_active, self.is_pending, self.is_starved, self.has_ended),
            *(self.is_over, self.is_head, self.is_urgent, self.is_busy, self.is_playing),
        ):
            column[slot] = 0
        self.opened_s[slot] = self.last_step_s[slot] = now_s
        self.promoted_s[slot] = np.nan
        self.has_listener[slot] = spec.has_listener
        due_s = spec.arrival_s + spec.ttfa_target_s if spec.has_listener else np.inf
        self.deadline_s[slot] = self.due_s[slot] = due_s
        width = self.ramp.shape[1]
        ramp = spec.chunk_ramp[:width]
        self.ramp[slot] = (*ramp, *(ramp[-1:] * (width - len(ramp))))
        self.ramp_length[slot] = len(ramp)
        self.next_frames[slot] = ramp[0]
        self.border[slot] = ramp[0] + lookahead_frames

    def ramp_size(self, slots: IntArray, index: IntArray) -> IntArray:
        """[slots] int64: full size of the chunk with an index, of each slot."""
        width = self.ramp.shape[1]
        return self.ramp.ravel()[slots * width + np.minimum(index, width - 1)]

    def close(self, slot: int) -> None:
        """Frees a slot that no job uses."""
        assert self.launched[slot] == 0, f"slot {slot} freed under a step in flight"
        assert not self.is_busy[slot], f"slot {slot} freed under a codec batch in flight"
        self.owner[slot] = None
        self.request_id[slot] = -1
        self.is_active[slot] = self.is_pending[slot] = self.is_head[slot] = False
        self.is_starved[slot] = False
        self.free.append(slot)
        if len(self.free) == self.num_slots:  # a pause: the lowest go out first again
            self.free.sort(reverse=True)
            self._show(WIDTH_STEP)

    def discard_launched(self, slot: int) -> None:
        """Marks every row in flight of a slot whose sequence has ended."""
        self.num_discard += int(self.launched[slot] - self.discard[slot])
        self.discard[slot] = self.launched[slot]

    def is_decodable(self) -> BoolArray:
        """[width] bool: which slots a decode step may be launched for."""
        return self.is_active & (self.frames + self.launched < self.limit)
