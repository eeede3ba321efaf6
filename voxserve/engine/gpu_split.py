"""The SM split a GPU starts with where nobody asks for one."""

from __future__ import annotations

from voxserve.core import profile as profiles
from voxserve.core.profile import Profile
from voxserve.core.settings import Split
from voxserve.sim.placing import expected_load, split_of

_WORKLOAD = "libritts"


def default_split(
    model: str, device: str, num_sms: int, can_partition: bool, usual: Split
) -> tuple[Split, str]:
    """A split, and in one sentence why this one.

    Args:
        model: Registry name.
        device: The GPU's name, as its driver tells it.
        num_sms: Its SMs.
        can_partition: Partitions can be made here.
        usual: Where no profile of the model on this device ships.
    """
    if not can_partition:
        return Split(), "partitions need the package cuda-bindings: install voxserve[cuda]"
    profile = _profile_of(model, device, num_sms)
    if profile is None:
        return usual, f"no profile of {model} on {device} ships: the paper's ratio"
    choice = split_of(profile, expected_load(profile, _WORKLOAD))
    return choice.split, f"profile {profile.name}, {_WORKLOAD}: {choice.why}"


def _profile_of(model: str, device: str, num_sms: int) -> Profile | None:
    for name in profiles.names():
        profile = profiles.load(name)
        if (profile.model, profile.device, profile.num_sms) == (model, device, num_sms):
            return profile
    return None
