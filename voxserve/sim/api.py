"""`simulate`: one load on a simulated device, by names, in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from voxserve.core import profile as profiles
from voxserve.core import workload as workloads
from voxserve.core.errors import InvalidInput, InvalidSetting
from voxserve.core.profile import Profile
from voxserve.core.settings import Settings
from voxserve.core.workload import Workload
from voxserve.sched.policy import Policy
from voxserve.sim.device import default_settings, prepared_of
from voxserve.sim.simulator import SimulationResult, simulate_load

MAX_REQUESTS = 1_000_000


def simulate(
    profile: Profile | str | Path = "h200",
    workload: Workload | str = "libritts",
    settings: Settings | None = None,
    rate_rps: float = 40.0,
    seconds: float = 60.0,
    seed: int = 0,
    *,
    trace: bool = False,
    jitter: bool = False,
    policy: Any = None,
    give_up_below: float | None = None,
    side_by_side: bool = True,
    **changes: Any,
) -> SimulationResult:
    """Offers a load to the real scheduler on a simulated device, in virtual time.

    The same arguments give the same decisions and the same trace.

    Args:
        profile: A shipped profile's name (or the start of it), a profile file, or a profile.
        workload: A name, or a workload.
        settings: To start from; the device's defaults when None.
        rate_rps: Requests per second; 0 replays a recorded workload as it was.
        seconds: Arrival window.
        seed: Of utterances, arrivals and jitter.
        trace: Keep every record (`result.trace()`).
        jitter: Vary stage times by the profile's spread.
        policy: A policy's name or object; the setting's when None.
        give_up_below: Stop once attainment is certain to end below this share.
        side_by_side: False gives every lane a device of its own (no contention).
        changes: Settings by name, like `sm_split="84/48"`.

    Raises:
        InvalidInput: Unknown profile or workload, or nothing to offer.
        InvalidSetting: Says what is possible.
    """
    if isinstance(policy, str):
        changes, policy = {**changes, "policy": policy}, None
    if not isinstance(policy, Policy | None):
        raise InvalidSetting(f"policy {policy!r} is neither a policy's name nor a Policy")
    if not isinstance(profile, Profile):
        profile = profiles.load(profile)
    prepared = prepared_of(profile)
    base = settings if settings is not None else default_settings(profile, prepared)
    in_force = base.changed(prepared, **changes)
    found = workloads.find(workload)
    if not 0 < seconds or not 0 <= rate_rps or rate_rps * seconds > MAX_REQUESTS:
        raise InvalidInput(
            f"{rate_rps:g} requests/s for {seconds:g} s: both must be positive, and at most "
            f"{MAX_REQUESTS} requests in all"
        )
    if seed < 0:
        raise InvalidInput(f"seed {seed} is negative")
    load = workloads.offered(found, rate_rps, seconds, seed)
    if not load:
        raise InvalidInput(f"{found.name} at {rate_rps:g} requests/s offers nothing in {seconds} s")
    return simulate_load(
        profile,
        prepared,
        in_force,
        load,
        rate_rps=rate_rps,
        seconds=seconds,
        seed=seed,
        workload_name=found.name,
        jitter=jitter,
        with_trace=trace,
        give_up_below=give_up_below,
        policy=policy,
        side_by_side=side_by_side,
    )
