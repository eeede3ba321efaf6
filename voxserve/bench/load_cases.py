"""What a GPU's load table needs measured: cases by name, and how their runs are chosen in time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from voxserve.bench.client import Hopeless, Listener
from voxserve.bench.runs import Run
from voxserve.core.errors import InvalidInput
from voxserve.core.settings import LANE_MODES

THRESHOLDS = (0.9, 0.99)
# A server that falls behind by this share of the audio asked for cannot hold the rate: buffered
# audio only hides it for a while. Source: simulated runs of 20 s and 60 s around capacity.
FALLS_BEHIND = 0.045
_SETTLED_S = 15.0  # shorter runs end before what is asked for and what is delivered even out
_SPARE_MISSES = 0.02  # of a short run's requests, beyond the allowed ones, before it is given up
_WORKLOADS = ("libritts", "seedtts")


@dataclass(frozen=True, slots=True)
class Case:
    """One configuration whose capacity is looked for.

    Attributes:
        name: Workload, chunk ramp and, unless it is the usual one, lane mode: "libritts-4-10",
            "libritts-10-two_streams".
        start_rps: First rate of its search.
    """

    name: str
    workload: str
    settings: dict[str, Any]
    start_rps: float

    @classmethod
    def parse(cls, text: str, start_rps: float) -> Case:
        """Reads "NAME" or "NAME@RATE".

        Raises:
            InvalidInput: Says what a name is like.
        """
        name, _, rate = text.partition("@")
        workload, *parts = name.split("-")
        mode = parts.pop() if parts and parts[-1] in LANE_MODES else None
        known = workload in _WORKLOADS and parts and all(part.isdecimal() for part in parts)
        if not known or not _is_rate(rate or "1"):
            raise InvalidInput(f"no figure {text!r}; one is like libritts-4-10@180 or seedtts-10")
        settings: dict[str, Any] = {"chunk_ramp": tuple(int(part) for part in parts)}
        if mode is not None:
            settings["lane_mode"] = mode
        if mode in ("two_streams", "time_sharing"):
            settings["sm_split"] = "none"
        return cls(name, workload, settings, float(rate) if rate else start_rps)


def _is_rate(text: str) -> bool:
    try:
        return 0.0 < float(text) < 1e5
    except ValueError:
        return False


def gives_up_on(ttfa_target_s: float, threshold: float, now_s: Any) -> Hopeless:
    """Ends a short run that misses the threshold whatever comes.

    Args:
        ttfa_target_s: The SLO's.
        threshold: Attainment to keep.
        now_s: The client's clock.
    """

    def hopeless(sent: Sequence[Listener], size: int) -> str:
        at_s = now_s()
        missed = sum(listener.has_missed(at_s, ttfa_target_s) for listener in sent)
        if missed > (1.0 - threshold + _SPARE_MISSES) * size:
            return f"{missed} of {size} requests had missed the SLO"
        return ""

    return hopeless


def short_run_share(run: Run) -> float:
    """Attainment a short run promises for a long one: none where the server falls behind."""
    behind = run.seconds >= _SETTLED_S and run.observed.get("lag_growth", 0.0) > FALLS_BEHIND
    return 0.0 if run.stopped or behind else run.attainment


@dataclass(slots=True)
class Budget:
    """Time that is left, and what a run takes beyond its arrivals.

    Attributes:
        seconds: In all, from now.
        overhead_s: Of a run: warm-up, draining, accounting; follows the runs before.
        reserved_s: Kept for a part that comes later.
        skipped: What no longer fitted.
    """

    seconds: float
    overhead_s: float = 14.0
    reserved_s: float = 0.0
    skipped: list[str] = field(default_factory=list[str])
    _begun_s: float = field(default_factory=time.monotonic)

    @property
    def spent_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._begun_s

    @property
    def left_s(self) -> float:
        """Seconds until the end."""
        return self.seconds - self.spent_s

    def fits(self, what: str, seconds: float) -> bool:
        """Whether a run with so many seconds of arrivals ends in time; notes what does not."""
        if self.left_s - self.reserved_s >= seconds + self.overhead_s:
            return True
        if what not in self.skipped:
            self.skipped.append(what)
        return False

    def took(self, arrivals_s: float, seconds: float) -> None:
        """Learns from a run."""
        self.overhead_s = 0.5 * self.overhead_s + 0.5 * max(3.0, 1.15 * (seconds - arrivals_s))
