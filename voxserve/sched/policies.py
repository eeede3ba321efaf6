"""The policies that the setting `policy` can name."""

from __future__ import annotations

from voxserve.sched.policy import Policy
from voxserve.sched.startup_steady import StartupSteadyPolicy
from voxserve.sched.throughput import ThroughputPolicy
from voxserve.sched.urgency import UrgencyPolicy

_BUILT_IN: dict[str, type[Policy]] = {
    policy.name: policy for policy in (UrgencyPolicy, StartupSteadyPolicy, ThroughputPolicy)
}


def make_policy(name: str) -> Policy:
    """A fresh policy by its setting's name (validated by `Settings`)."""
    return _BUILT_IN[name]()
