"""Plans a group of GPUs: roles and splits ranked from a profile, the best checked by simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from voxserve.bench.sim_capacity import RATE_STEP_RPS, Tell, find_capacity
from voxserve.core import profile as profiles
from voxserve.core import workload as workloads
from voxserve.core.errors import InvalidInput
from voxserve.core.profile import Profile
from voxserve.core.workload import Workload
from voxserve.sim.cost import ProfileCost
from voxserve.sim.device import prepared_of
from voxserve.sim.placing import (
    ExpectedLoad,
    Placement,
    SplitChoice,
    expected_load,
    mean_gpu,
    placements_of,
    split_of,
)

MAX_GPUS = 64
_STEP = 0.04  # of the estimated rate: finer than an estimate needs would take minutes
_USUAL_RUNS = 6  # of a search with two workers, for the bar


@dataclass(frozen=True, slots=True)
class Checked:
    """A placement with its simulated SLO capacity.

    Attributes:
        simulated_rps: Of the whole group, 90 % attainment; None when it was not simulated.
    """

    placement: Placement
    simulated_rps: float | None


@dataclass(frozen=True, slots=True)
class Plan:
    """A ranked plan.

    Attributes:
        split: The choice for one GPU that runs both stages, with its alternatives.
        ranked: Every assignment of roles with its best split; the simulated ones first, best first.
        notes: Where the profile was continued or a default was used.
    """

    profile: str
    workload: str
    num_gpus: int
    split: SplitChoice
    ranked: tuple[Checked, ...]
    notes: tuple[str, ...]

    def table(self) -> str:
        """Plain text: rank, placement, rates by stage, simulated capacity."""
        lines = [f"{'':4}{'placement':44}{'LM':>8}{'codec':>8}{'group':>8}{'simulated':>11}  req/s"]
        for rank, item in enumerate(self.ranked, 1):
            place = item.placement
            simulated = "" if item.simulated_rps is None else f"{item.simulated_rps:.0f}"
            lines.append(
                f"{rank:>2}. {place!s:44}{place.lm_rps:8.1f}{place.codec_rps:8.1f}"
                f"{place.rate_rps:8.1f}{simulated:>11}"
            )
        return "\n".join(lines)


def plan(
    profile: Profile | str | Path = "h200",
    num_gpus: int = 1,
    workload: Workload | str = "libritts",
    *,
    rate_rps: float | None = None,
    check: int = 3,
    seconds: float = 60.0,
    seeds: Sequence[int] = (0,),
    workers: int | None = None,
    progress: bool = True,
    tell: Tell = lambda _: None,
) -> Plan:
    """Ranks every placement of roles and splits, and simulates the best few.

    A group that is not all "both" is simulated as its mean GPU (stage times scaled by how much of
    each stage's throughput falls to one backbone), to 4 % of its rate. Runs much shorter than a
    minute find too much: buffered audio hides for a while what a server lacks.

    Args:
        profile: Name, file or profile.
        num_gpus: GPUs of the group.
        workload: Name or workload.
        rate_rps: Target load of one GPU for the split choice; None: as much as it can carry.
        check: How many placements to simulate.
        seconds: Arrival window of each run.
        seeds: Of the runs.
        workers: Processes; all cores when None.
        progress: Show a bar with the time left.
        tell: Called with a line about each placement and each simulated run.

    Raises:
        InvalidInput: Not 1 to 64 GPUs, unknown profile or workload, less than nothing to check.
    """
    if not 1 <= num_gpus <= MAX_GPUS:
        raise InvalidInput(f"{num_gpus} GPUs: 1 to {MAX_GPUS} can be planned")
    if check < 0:
        raise InvalidInput(f"check {check}: no placement (0) or more can be simulated")
    found = profile if isinstance(profile, Profile) else profiles.load(profile)
    load = expected_load(found, workload, rate_rps)
    cost = ProfileCost(found, prepared_of(found))
    split = split_of(found, load, cost)
    ranked = placements_of(found, load, num_gpus)
    num_checked = min(check, len(ranked))
    checked: list[Checked] = []
    with _Bar(num_checked, progress and num_checked > 0) as bar:

        def told(line: str) -> None:
            bar.step()
            tell(f"  per backbone: {line}")

        call: dict[str, Any] = {
            **{"workload": workload, "seconds": seconds, "seeds": seeds},
            **{"workers": workers, "tell": told},
        }
        for rank, item in enumerate(ranked):
            capacity = None
            if rank < check:
                tell(f"simulating placement {rank + 1} of {num_checked}: {item}")
                bar.begin(rank, str(item))
                capacity = _simulated_rps(found, item, load, call)
            checked.append(Checked(item, capacity))
    # What was simulated is better known than what was estimated.
    checked[:num_checked] = sorted(checked[:num_checked], key=lambda c: -(c.simulated_rps or 0.0))
    return Plan(
        profile=found.name,
        workload=workloads.find(workload).name,
        num_gpus=num_gpus,
        split=split,
        ranked=tuple(checked),
        notes=cost.notes,
    )


class _Bar:
    """Progress over the searches of several placements, by how many runs one usually takes."""

    def __init__(self, num_placements: int, is_shown: bool) -> None:
        self._bar = tqdm(
            total=num_placements * _USUAL_RUNS,
            disable=not is_shown,
            leave=False,
            bar_format="{desc}: {percentage:3.0f}% {bar} about {remaining} left",
        )
        self._last = 0

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *exc: object) -> None:
        self._bar.close()

    def begin(self, rank: int, name: str) -> None:
        """A placement's search begins."""
        self._bar.set_description(name)
        self._bar.update(rank * _USUAL_RUNS - self._bar.n)
        self._last = (rank + 1) * _USUAL_RUNS - 1

    def step(self) -> None:
        """A run has ended; a search that takes more than usual waits at its last step."""
        self._bar.update(min(1, self._last - self._bar.n))


def _simulated_rps(
    profile: Profile, placement: Placement, load: ExpectedLoad, call: dict[str, Any]
) -> float:
    """Capacity of the group at 90 %: that of its mean GPU times its backbones.

    Args:
        profile: Of one GPU.
        placement: Of the group.
        load: What it was estimated for.
        call: Further arguments of `find_capacity`.
    """
    backbones = placement.num_both + placement.num_lm
    estimate_rps = max(RATE_STEP_RPS, placement.rate_rps / backbones)
    capacity = find_capacity(
        mean_gpu(profile, placement, load),
        start_rps=estimate_rps,
        step_rps=max(RATE_STEP_RPS, round(_STEP * estimate_rps)),
        sm_split=placement.split,
        side_by_side=placement.num_both > 0,
        **call,
    )
    return capacity.rps[0.9] * backbones
