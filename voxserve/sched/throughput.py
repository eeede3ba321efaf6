"""No deadlines: the most audio seconds per second, for files and data sets."""

from __future__ import annotations

import numpy as np

from voxserve.core.playback import BoolArray, FloatArray
from voxserve.core.settings import Settings
from voxserve.sched.policy import BackgroundView, HeadChunks, Launch, Policy, RunningView


class ThroughputPolicy(Policy):
    """Nothing is urgent, nothing is held back; batches grow while their lane is busy."""

    name = "throughput"
    has_deadlines = False

    def is_urgent(self, heads: HeadChunks, settings: Settings) -> BoolArray:
        """Nothing is."""
        return np.zeros(len(heads), dtype=np.bool_)

    def next_urgent_s(self, heads: HeadChunks, settings: Settings) -> float:
        """Never."""
        return np.inf

    def background(self, view: BackgroundView) -> Launch:
        """Whatever is ready."""
        return Launch(view.all_rows())

    def decode_keys(self, view: RunningView) -> FloatArray:
        """Those that were served longest ago, so that none falls behind."""
        return -view.unserved_s
