"""Placements and splits of a profiled device: `sched.placement` fed from a profile."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice

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
from voxserve.sim.device import (
    default_decode_batch,
    prepared_of,
    profiled_splits,
    steps_per_prefill,
)

__all__ = ["ExpectedLoad", "Placement", "SplitChoice", "expected_load", "split_of"]

_SAMPLE = 1000  # utterances that stand for a workload


def expected_load(
    profile: Profile,
    workload: Workload | str,
    rate_rps: float | None = None,
    decode_rows: int | None = None,
) -> ExpectedLoad:
    """Mean request of a workload, in the profile's frames.

    Args:
        profile: Gives the frame length and the sizes of a fresh device.
        workload: Name or workload.
        rate_rps: Target of one GPU, or None for as much as it can carry.
        decode_rows: Rows of a full decode step; those of a fresh device when None.

    Raises:
        InvalidInput: Unknown workload, or a rate that is not positive and finite.
    """
    if rate_rps is not None and not 0 < rate_rps < math.inf:
        raise InvalidInput(f"a target of {rate_rps} requests per second is not positive and finite")
    found = workloads.find(workload)
    sample = list(islice(found.utterances(seed=0), _SAMPLE))
    return ExpectedLoad(
        rate_rps=rate_rps,
        frames_per_request=sum(item.num_frames(profile.frame_s) for item in sample) / len(sample),
        prompt_tokens=round(sum(item.prompt_tokens for item in sample) / len(sample)),
        chunk_frames=profile.prepared.chunk_frames[-1],
        decode_rows=decode_rows or default_decode_batch(profile.prepared),
        steps_per_prefill=steps_per_prefill(profile),
    )


def split_of(profile: Profile, load: ExpectedLoad, cost: ProfileCost | None = None) -> SplitChoice:
    """The split of one GPU that runs both stages, among those the profile covers.

    Args:
        profile: Stage times.
        load: Mean request and batch sizes.
        cost: Collects what had to be continued or assumed, where the caller wants to tell.
    """
    prepared = prepared_of(profile)
    inside = replace(prepared, splits=profiled_splits(profile, prepared))
    return choose_split(cost or ProfileCost(profile, prepared), inside, load)


def placements_of(profile: Profile, load: ExpectedLoad, num_gpus: int) -> list[Placement]:
    """Every assignment of roles with its best split, the fastest first."""
    prepared = prepared_of(profile)
    inside = replace(prepared, splits=profiled_splits(profile, prepared))
    cost = ProfileCost(profile, prepared)
    alone = ProfileCost(profile, prepared, side_by_side=False)
    return best_by_roles(rank_placements(cost, alone, inside, load, num_gpus))


def mean_gpu(profile: Profile, placement: Placement, load: ExpectedLoad) -> Profile:
    """The profile scaled so that one GPU has one backbone's share of the group's throughput."""
    backbones = placement.num_both + placement.num_lm
    if placement.num_both == backbones and placement.num_codec == 0:
        return profile
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
