"""Plans a group of GPUs: roles and splits ranked from a profile, the best checked by simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from voxserve.bench.sim_capacity import find_capacity
from voxserve.core import profile as profiles
from voxserve.core import workload as workloads
from voxserve.core.errors import InvalidInput
from voxserve.core.profile import Profile
from voxserve.core.workload import Workload
from voxserve.sched.placement import (
    ExpectedLoad,
    Placement,
    SplitChoice,
    best_by_roles,
    choose_split,
    estimate_split,
    rank_placements,
)
from voxserve.sim.cost import ProfileCost
from voxserve.sim.device import default_decode_batch, prepared_of, profiled_splits

MAX_GPUS = 64
_SAMPLE = 1000  # utterances that stand for a workload


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


def expected_load(
    profile: Profile, workload: Workload | str, rate_rps: float | None = None
) -> ExpectedLoad:
    """Mean request of a workload, in the profile's frames."""
    found = workloads.find(workload)
    sample = list(islice(found.utterances(seed=0), _SAMPLE))
    frames = sum(item.num_frames(profile.frame_s) for item in sample) / len(sample)
    tokens = sum(item.prompt_tokens for item in sample) / len(sample)
    return ExpectedLoad(
        rate_rps=rate_rps,
        frames_per_request=frames,
        prompt_tokens=round(tokens),
        chunk_frames=profile.prepared.chunk_frames[-1],
        decode_rows=default_decode_batch(profile.prepared),
        codec_rows=32,
    )


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

    Raises:
        InvalidInput: Not 1 to 64 GPUs, unknown profile or workload.
    """
    if not 1 <= num_gpus <= MAX_GPUS:
        raise InvalidInput(f"{num_gpus} GPUs: 1 to {MAX_GPUS} can be planned")
    found = profile if isinstance(profile, Profile) else profiles.load(profile)
    prepared = prepared_of(found)
    inside = replace(prepared, splits=profiled_splits(found, prepared))
    load = expected_load(found, workload, rate_rps)
    cost = ProfileCost(found, prepared)
    alone = ProfileCost(found, prepared, side_by_side=False)
    ranked = best_by_roles(rank_placements(cost, alone, inside, load, num_gpus), num_gpus * 4)
    checked: list[Checked] = []
    for rank, item in enumerate(ranked):
        capacity = None
        if rank < check:
            capacity = _simulated_rps(found, item, load, workload, seconds, seeds, workers)
        checked.append(Checked(item, capacity))
    return Plan(
        profile=found.name,
        workload=workloads.find(workload).name,
        num_gpus=num_gpus,
        split=choose_split(cost, inside, load),
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
) -> float:
    """Capacity of the group at 90 %: that of its mean GPU times its backbones."""
    backbones = placement.num_both + placement.num_lm
    is_uniform = placement.num_both == backbones and placement.num_codec == 0
    mean = profile if is_uniform else _mean_gpu(profile, placement, load)
    capacity = find_capacity(
        mean,
        workload,
        seconds=seconds,
        seeds=seeds,
        workers=workers,
        start_rps=max(2.0, placement.rate_rps / backbones),
        sm_split=placement.split,
        side_by_side=placement.num_both > 0,
    )
    return capacity.rps[0.9] * backbones


def _mean_gpu(profile: Profile, placement: Placement, load: ExpectedLoad) -> Profile:
    """The profile scaled so that one GPU has one backbone's share of the group's throughput."""
    backbones = placement.num_both + placement.num_lm
    prepared = prepared_of(profile)
    cost = ProfileCost(profile, prepared, side_by_side=placement.num_both > 0)
    reference = estimate_split(cost, prepared, placement.split, load)
    lm = reference.lm_rps / (placement.lm_rps / backbones)
    codec = reference.codec_rps / (placement.codec_rps / backbones)
    return replace(
        profile,
        name=f"{profile.name} as {placement}",
        times=tuple(
            replace(time, seconds=time.seconds * (codec if time.stage == "codec" else lm))
            for time in profile.times
        ),
    )
