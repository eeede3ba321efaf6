"""How much jobs that run side by side slow each other down, from a profile's timings.

Work on disjoint partitions disturbs little (shared memory bandwidth); work on the whole device
beside others shares SMs with them. A combination that the profile has not timed is composed from
its pairs; a pair that it has not timed takes a stated default and is listed in `notes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median
from typing import NamedTuple

from voxserve.core.profile import Profile, StageTime
from voxserve.core.settings import Split


class Work(NamedTuple):
    """A running job as its neighbours see it (a tuple: it is hashed at every launch and end).

    Attributes:
        kind: "decode", "prefill", "background" or "urgent".
        is_partitioned: Confined to its partition of a split.
    """

    kind: str
    is_partitioned: bool


# Slowdown of (victim, neighbour) where a profile is silent. Disjoint partitions: DESIGN figures of
# one H200 (a decode step 4.24 -> 4.31 ms beside a codec batch, that batch 46 -> 50 ms). Sharing
# the whole device: an urgent chunk beside both partitions 2.2 -> 4.0 ms, and what it takes its
# neighbours lose. Without a split the codec's large kernels crowd out a step's small ones; both
# together gain about a fifth over taking turns, which is the paper's 42 requests/s without a split.
DISJOINT = {("decode", "background"): 1.02, ("background", "decode"): 1.09}
SHARED = {
    ("urgent", "decode"): 1.8,
    ("urgent", "background"): 1.8,
    ("urgent", "prefill"): 1.8,
    ("decode", "urgent"): 2.25,
    ("background", "urgent"): 2.25,
    ("prefill", "urgent"): 2.25,
    ("prefill", "background"): 1.2,
    ("background", "prefill"): 1.25,
    ("decode", "background"): 2.7,
    ("background", "decode"): 1.2,
}


class Contention:
    """Slowdown factors by who runs beside whom.

    Attributes:
        is_on: False: every lane has a device of its own.
        notes: Pairs that were asked for but are not in the profile.
    """

    def __init__(
        self, profile: Profile, alone_s: Callable[[StageTime], float], is_on: bool = True
    ) -> None:
        self.is_on = is_on
        self._profile = profile
        self._alone_s = alone_s
        self._measured: dict[tuple[str, bool, frozenset[str]], float] = {}
        self._cache: dict[tuple[Work, tuple[Work, ...]], float] = {}
        self.notes: set[str] = set()

    def measure(self) -> None:
        """Reads the side-by-side entries; `alone_s` must work by now."""
        ratios: dict[tuple[str, bool, frozenset[str]], list[float]] = {}
        for time in self._profile.times:
            if time.beside:
                kind = time.lane if time.stage == "codec" else time.stage
                split = not Split.parse(time.split).is_none
                key = (kind, split, frozenset(time.beside))
                ratios.setdefault(key, []).append(time.seconds / self._alone_s(time))
        self._measured = {key: max(1.0, median(values)) for key, values in ratios.items()}

    def slowdown(self, victim: Work, others: tuple[Work, ...]) -> float:
        """Time of `victim` beside `others` over its time alone, at least 1."""
        if not others or not self.is_on:
            return 1.0
        key = (victim, others)
        if key not in self._cache:
            self._cache[key] = self._composed(victim, others)
        return self._cache[key]

    def _composed(self, victim: Work, others: tuple[Work, ...]) -> float:
        split = victim.is_partitioned or any(other.is_partitioned for other in others)
        exact = self._measured.get((victim.kind, split, frozenset(o.kind for o in others)))
        if exact is not None:
            return exact
        excess = [self._pair(victim, other, split) - 1.0 for other in others]
        if victim.kind == "urgent":
            return 1.0 + max(excess)  # highest stream priority: neighbours don't add up
        return 1.0 + sum(excess)

    def _pair(self, victim: Work, other: Work, split: bool) -> float:
        found = self._measured.get((victim.kind, split, frozenset((other.kind,))))
        if found is not None:
            return found
        disjoint = victim.is_partitioned and other.is_partitioned
        defaults = DISJOINT if disjoint else SHARED
        where = "on its own partition" if disjoint else "on shared SMs"
        self.notes.add(f"not profiled: {victim.kind} beside {other.kind} {where} (default used)")
        return defaults[victim.kind, other.kind]


def speeds(contention: Contention, running: Iterable[Work]) -> tuple[float, ...]:
    """Work done per second by each running job (1 alone), in the order given."""
    jobs = tuple(running)
    return tuple(
        1.0 / contention.slowdown(job, jobs[:i] + jobs[i + 1 :]) for i, job in enumerate(jobs)
    )
