"""Version 1's policy: start a bounded number of requests at a time, then watch the steady ones."""

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

CRITICAL_S = 1.0  # a steady request nearer to its deadline is critical
_STEP = 1e6  # seconds, above any slack: separates the ranks


class StartupSteadyPolicy(Policy):
    """Startup requests first, then critical ones, then the rest; nothing is held back.

    Args:
        num_starting: Requests that may be between admission and their first audio.
    """

    name = "startup_steady"

    def __init__(self, num_starting: int = 8) -> None:
        self.num_starting = num_starting

    def is_urgent(self, heads: HeadChunks, settings: Settings) -> BoolArray:
        """First chunks and those of critical requests."""
        is_critical = heads.time_to_deadline_s < CRITICAL_S + TIMER_TOLERANCE_S
        return (heads.is_first | is_critical) & np.isfinite(heads.due_s)

    def next_urgent_s(self, heads: HeadChunks, settings: Settings) -> float:
        """One second before the nearest deadline."""
        return float(heads.due_s[0]) - CRITICAL_S

    def background(self, view: BackgroundView) -> Launch:
        """Whatever is ready."""
        return Launch(view.all_rows())

    def decode_keys(self, view: RunningView) -> FloatArray:
        """Startup in order of arrival, then critical, then the others by slack."""
        slack_s = np.clip(view.slack_s, -_STEP / 2, _STEP / 2)
        steady = np.where(slack_s < CRITICAL_S, slack_s, slack_s + _STEP)
        return np.where(view.is_first, view.order - 2.0 * _STEP - view.order.max(), steady)

    def max_starting(self) -> int:
        """The bound on the startup phase."""
        return self.num_starting
