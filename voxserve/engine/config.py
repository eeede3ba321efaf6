"""What an engine is made of, in a form that can be compared: equal arguments are one engine."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import Any

from voxserve.core.errors import InvalidInput, InvalidSetting
from voxserve.core.settings import normalised
from voxserve.engine.build import resolve_device
from voxserve.sched.policy import Policy


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What makes two engines of one name the same."""

    model: str
    device: str
    weights: str | None
    policy: Any
    settings: tuple[tuple[str, Any], ...]


def engine_config(
    model: str, device: str, policy: Any, weights: str | None, settings: dict[str, Any]
) -> EngineConfig:
    """Arguments of an engine, checked as far as they can be before anything is loaded.

    Raises:
        InvalidInput, InvalidSetting: An argument of a wrong type.
        UnknownModel, DeviceUnavailable: Says what is possible.
    """
    if isinstance(policy, str):
        settings, policy = {**settings, "policy": policy}, None
    if not isinstance(policy, Policy | None):
        raise InvalidSetting(f"policy {policy!r} is neither a policy's name nor a Policy")
    if isinstance(weights, PathLike):
        weights = str(weights)
    if not isinstance(weights, str | None):
        raise InvalidInput(f"weights {weights!r} is neither a folder nor a repo id")
    device = resolve_device(device, model)
    return EngineConfig(model, device, weights, policy, tuple(sorted(normalised(settings).items())))
