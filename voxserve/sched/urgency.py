"""The default policy: hold chunks that have slack, hurry those that have none."""

from __future__ import annotations

import numpy as np

from voxserve.core.playback import BoolArray, FloatArray
from voxserve.core.settings import Settings
from voxserve.sched.policy import (
    TIMER_TOLERANCE_S,
    BackgroundView,
    HeadChunks,
    Launch,
    Policy,
    RunningView,
)

MAX_UNSERVED_S = 1.0  # ageing bound: nobody waits longer for a decode row
_LAST = 1e6  # seconds, above any slack


class UrgencyPolicy(Policy):
    """Source: VoxServe section 3.2, with the lane rules of this project's design."""

    name = "urgency"

    def is_urgent(self, heads: HeadChunks, settings: Settings) -> BoolArray:
        """First chunks, and chunks nearer to their deadline than the margin."""
        inside = heads.time_to_deadline_s < settings.urgency_margin_s + TIMER_TOLERANCE_S
        return heads.is_first & np.isfinite(heads.due_s) | inside

    def next_urgent_s(self, heads: HeadChunks, settings: Settings) -> float:
        """The nearest deadline minus the margin."""
        return float(heads.due_s[0]) - settings.urgency_margin_s

    def background(self, view: BackgroundView) -> Launch:
        """At B chunks, or when the nearest deadline, an idle LM lane or a file asks for it."""
        heads, batch = view.heads, view.settings.background_batch
        rows = view.all_rows()
        if rows >= min(batch, view.max_batch) or heads.due_s[-1] == np.inf:
            return Launch(rows)
        timer_s = float(heads.due_s[0]) - view.settings.urgency_margin_s - view.codec_s(rows)
        if view.lm_is_idle or heads.now_s >= timer_s - TIMER_TOLERANCE_S:
            return Launch(view.rows_in_time())
        if rows >= min(batch, view.can_be_ready(timer_s)):
            return Launch(rows)
        return Launch(0, look_again_s=timer_s)

    def decode_keys(self, view: RunningView) -> FloatArray:
        """Least slack first; lost requests after savable ones, but nobody waits over 1 s."""
        keys: FloatArray = np.minimum(view.slack_s, _LAST, dtype=np.float64)
        lost = (keys < 0.0).nonzero()[0]
        keys[lost] += 2 * _LAST
        overdue = (view.unserved_s >= MAX_UNSERVED_S).nonzero()[0]
        keys[overdue] = -_LAST
        return keys
