"""Whether a past load could have been served well at all: with another setting, or with less of it.

Served well means that nine of ten requests meet the SLO, as in the capacity at 90 %.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from voxserve.core.errors import InvalidSetting
from voxserve.core.events import Record
from voxserve.core.profile import Profile
from voxserve.sim.rerun import Past, rerun, so_far
from voxserve.sim.what_if import Change, FittedCost

PROMISE = 0.9
_HALVINGS = 5  # of the share of the arrivals that is looked for: to 3 %


@dataclass(frozen=True, slots=True)
class Possible:
    """What a simulation of the past tells of its load.

    Attributes:
        seconds: Length of the window.
        offered_rps: Requests that arrived in it, per second.
        attainment: Share that meets the SLO, simulated as it was.
        num_tried: Changes of one setting that were tried in vain.
        cure: The first change with which the promise is kept.
        rate_rps: The highest rate, of those tried, that keeps it with the settings as they were:
            arrivals were left out at random. None when a thirtieth of the load does not.
    """

    seconds: float
    offered_rps: float
    attainment: float
    num_tried: int = 0
    cure: Change | None = None
    rate_rps: float | None = None

    @property
    def is_kept(self) -> bool:
        """Whether the load could be served as it was."""
        return self.attainment >= PROMISE


def possible(
    past: Past,
    cost: Profile | FittedCost,
    changes: Sequence[Change],
    progress: Callable[[float], None] = lambda share: None,
) -> Possible:
    """Serves a past load as it was; when that fails, with each change, then with less of it.

    Args:
        past: From `rerun.past_of`.
        cost: Stage times.
        changes: Of one setting each, tried in order.
        progress: Told the share done, 0 to 1.
    """
    share_done = _Counter(1 + len(changes) + _HALVINGS, progress)
    attainment = _attainment(past, cost, {}, share_done)
    seconds = past.until_s - past.from_s
    offered_rps = sum(r.arrival_s >= past.from_s for r in past.requests) / seconds
    found = Possible(seconds, offered_rps, attainment)
    if found.is_kept:
        return found
    for change in changes:
        if _attainment(past, cost, {change.name: change.new}, share_done) >= PROMISE:
            return replace(found, cure=change)
    share = _share_kept(past, cost, share_done)
    rate_rps = share * offered_rps if share else None
    return replace(found, num_tried=len(changes), rate_rps=rate_rps)


class _Counter:
    """Tells how many of the runs are done."""

    def __init__(self, runs: int, progress: Callable[[float], None]) -> None:
        self._runs = runs
        self._done = 0
        self._progress = progress

    def one_more(self) -> None:
        self._done += 1
        self._progress(self._done / self._runs)


def _attainment(
    past: Past, cost: Profile | FittedCost, overrides: dict[str, Any], done: _Counter
) -> float:
    """0 where the setting cannot be simulated; 1 where no request is left to miss anything."""
    records: list[Record] = []
    try:
        rerun(past, cost, overrides, records.append)
    except InvalidSetting:
        return 0.0
    finally:
        done.one_more()
    target_s = past.settings[-1][1].ttfa_target_s
    attainment = so_far(records, past.from_s, past.until_s, target_s).attainment
    return 1.0 if attainment is None else attainment


def _share_kept(past: Past, cost: Profile | FittedCost, done: _Counter) -> float:
    """The largest share of the arrivals that keeps the promise, by halving; 0 for none."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _attainment(_thinned(past, middle), cost, {}, done) >= PROMISE:
            low = middle
        else:
            high = middle
    return low


def _thinned(past: Past, share: float) -> Past:
    """Some of the requests, the same ones in every larger share."""
    ranks = np.random.default_rng(0).permutation(len(past.requests))
    kept = ranks < share * len(past.requests)
    return replace(past, requests=tuple(r for r, k in zip(past.requests, kept, strict=True) if k))
