"""What a scheduling policy decides, and what it is shown: subclass `Policy` to try an idea.

A policy says which waiting head chunks are urgent, when a background batch is launched, which
requests get a row when more run than one decode step holds, and how many may start at once. The
scheduler does the rest whatever a policy answers: a request's chunks stay in order, each is
decoded once, and batches never exceed what is prepared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from voxserve.core.playback import BoolArray, FloatArray
from voxserve.core.settings import Settings
from voxserve.sched.state import IntArray

TIMER_TOLERANCE_S = 1e-9  # a timer set for t has fired at t, whatever floats make of t


@dataclass(slots=True, eq=False)
class HeadChunks:
    """Waiting head chunks, nearest deadline first; ties in admission order.

    Attributes:
        slots: [chunks] int64.
        due_s: [chunks] float64 deadline, corrected by the listener's reports; infinite when
            nobody listens.
        is_first: [chunks] bool, before the request's first audio.
        num_frames: [chunks] int64.
    """

    now_s: float
    slots: IntArray
    due_s: FloatArray
    is_first: BoolArray
    num_frames: IntArray

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def time_to_deadline_s(self) -> FloatArray:
        """[chunks] float64; negative once late."""
        return self.due_s - self.now_s

    def first(self, rows: int) -> HeadChunks:
        """The first chunks."""
        return self if rows >= len(self.slots) else self.picked(slice(rows))

    def longest(self, rows: int | None = None) -> int:
        """Frames of the longest of the first chunks, of all when None."""
        return int(np.maximum.reduce(self.num_frames[:rows]))

    def picked(self, which: BoolArray | IntArray | slice) -> HeadChunks:
        """Some of the chunks, in the same order."""
        return HeadChunks(
            self.now_s,
            self.slots[which],
            self.due_s[which],
            self.is_first[which],
            self.num_frames[which],
        )


@dataclass(slots=True, eq=False)
class BackgroundView:
    """The background lane when it is idle and background chunks wait.

    Attributes:
        heads: The waiting background chunks; at least one.
        max_batch: Rows of the largest batch allowed.
        lm_is_idle: The LM lane has nothing left to generate.
        codec_s: Estimated seconds of a batch of the first n chunks.
        can_be_ready: How many requests have, or can still produce, a head chunk by a time.
    """

    heads: HeadChunks
    settings: Settings
    max_batch: int
    lm_is_idle: bool
    codec_s: Callable[[int], float]
    can_be_ready: Callable[[float], int]

    def all_rows(self) -> int:
        """The largest batch: every waiting chunk that fits."""
        return min(len(self.heads), self.max_batch)

    def rows_in_time(self) -> int:
        """Rows of the longest prefix that ends by its own first deadline; at least one."""
        left_s = float(self.heads.due_s[0]) - self.heads.now_s + TIMER_TOLERANCE_S
        rows = self.all_rows()
        while rows > 1 and self.codec_s(rows) > left_s:
            rows -= 1
        return rows


@dataclass(frozen=True, slots=True)
class Launch:
    """How many of the first waiting chunks to launch now; if none, when to look again."""

    rows: int
    look_again_s: float = np.inf


@dataclass(slots=True, eq=False)
class RunningView:
    """Requests that want a decode row when more run than one step holds.

    Attributes:
        slots: [rows] int64.
        slack_s: [rows] float64, of the next chunk; infinite without a listener.
        unserved_s: [rows] float64, time since the last row.
        is_first: [rows] bool, before the request's first audio.
        order: [rows] int64, admission order.
    """

    now_s: float
    settings: Settings
    slots: IntArray
    slack_s: FloatArray
    unserved_s: FloatArray
    is_first: BoolArray
    order: IntArray


class Policy(ABC):
    """Base of all policies; see the module docstring and `voxserve/sched/urgency.py`.

    Attributes:
        name: What the setting `policy` calls it.
        has_deadlines: False: no request's slack holds a prefill back.
    """

    name = "custom"
    has_deadlines = True

    @abstractmethod
    def is_urgent(self, heads: HeadChunks, settings: Settings) -> BoolArray:
        """[chunks] bool: which waiting head chunks must not wait."""

    @abstractmethod
    def next_urgent_s(self, heads: HeadChunks, settings: Settings) -> float:
        """When the next of these background chunks becomes urgent by itself (inf: never)."""

    @abstractmethod
    def background(self, view: BackgroundView) -> Launch:
        """Whether to launch a background batch now, and of how many chunks."""

    @abstractmethod
    def decode_keys(self, view: RunningView) -> FloatArray:
        """[rows] float64: rows with the lowest keys get into the step; ties: older first."""

    def max_starting(self) -> int | None:
        """Most requests between admission and their first audio; None: no bound."""
        return None
