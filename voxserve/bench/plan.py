"""Plans a group of GPUs: roles and splits ranked from a profile, the best checked by simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from voxserve.bench.sim_capacity import Tell, find_capacity
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
        ranked: Every assignment of roles with its best split, best first.
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
    seconds: float = 30.0,
    seeds: Sequence[int] = (0,),
    workers: int | None = None,
    tell: Tell = lambda _: None,
) -> Plan:
    """Ranks every placement of roles and splits, and simulates the best few.

    A group that is not all "both" is simulated as its mean GPU (stage times scaled by how much of
    each stage's throughput falls to one backbone): good for order and rough size.

    Args:
        profile: Name, file or profile.
        num_gpus: GPUs of the group.
        workload: Name or workload.
        rate_rps: Target load of one GPU for the split choice; None: as much as it can carry.
        check: How many placements to simulate.
        seconds: Arrival window of each run.
        seeds: Of the runs.
        workers: Processes; all cores when None.
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
    checked: list[Checked] = []
    for rank, item in enumerate(ranked):
        capacity = None
        if rank < check:
            tell(f"simulating placement {rank + 1} of {min(check, len(ranked))}: {item}")
            capacity = _simulated_rps(found, item, load, workload, seconds, seeds, workers, tell)
        checked.append(Checked(item, capacity))
    return Plan(
        profile=found.name,
        workload=workloads.find(workload).name,
        num_gpus=num_gpus,
        split=split,
        ranked=tuple(checked),
        notes=cost.notes,
    )


def _simulated_rps(
    profile: Profile,
    placement: Placement,
    load: ExpectedLoad,
    workload: Workload | str,
    seconds: float,
    seeds: Sequence[int],
    workers: int | None,
    tell: Tell,
) -> float:
    """Capacity of the group at 90 %: that of its mean GPU times its backbones."""
    backbones = placement.num_both + placement.num_lm
    capacity = find_capacity(
        mean_gpu(profile, placement, load),
        workload,
        seconds=seconds,
        seeds=seeds,
        workers=workers,
        start_rps=max(2.0, placement.rate_rps / backbones),
        sm_split=placement.split,
        side_by_side=placement.num_both > 0,
        tell=lambda line: tell(f"  per backbone: {line}"),
    )
    return capacity.rps[0.9] * backbones
