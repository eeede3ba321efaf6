"""voxserve: speech language model serving that you can see, hear and steer from a notebook.

Importing this loads neither torch nor plotly nor jupyter: each public name is imported from its
room when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from voxserve.bench.plan import plan
    from voxserve.bench.sim_capacity import find_capacity
    from voxserve.bench.sim_sweep import sweep
    from voxserve.core.errors import (
        CheckpointError,
        DeviceUnavailable,
        EngineError,
        EngineFailed,
        EngineStopped,
        InvalidInput,
        InvalidSetting,
        RequestCancelled,
        RequestError,
        RequestFailed,
        RequestRejected,
        UnknownModel,
        VoxserveError,
    )
    from voxserve.core.settings import Settings, Split
    from voxserve.engine.audio import Audio
    from voxserve.engine.engine import Engine
    from voxserve.engine.registry import engines
    from voxserve.sim.api import simulate
    from voxserve.viz.ab import AB
    from voxserve.viz.replay import Replay
    from voxserve.viz.workbench import Workbench

__version__ = "0.1.0"

__all__ = [
    "AB",
    "Audio",
    "CheckpointError",
    "DeviceUnavailable",
    "Engine",
    "EngineError",
    "EngineFailed",
    "EngineStopped",
    "InvalidInput",
    "InvalidSetting",
    "Replay",
    "RequestCancelled",
    "RequestError",
    "RequestFailed",
    "RequestRejected",
    "Settings",
    "Split",
    "UnknownModel",
    "VoxserveError",
    "Workbench",
    "engines",
    "find_capacity",
    "plan",
    "simulate",
    "sweep",
]
_HOMES = {
    "AB": "voxserve.viz.ab",
    "Audio": "voxserve.engine.audio",
    "Engine": "voxserve.engine.engine",
    "Replay": "voxserve.viz.replay",
    "Settings": "voxserve.core.settings",
    "Split": "voxserve.core.settings",
    "Workbench": "voxserve.viz.workbench",
    "engines": "voxserve.engine.registry",
    "find_capacity": "voxserve.bench.sim_capacity",
    "plan": "voxserve.bench.plan",
    "simulate": "voxserve.sim.api",
    "sweep": "voxserve.bench.sim_sweep",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'voxserve' has no attribute {name!r}")
    value = getattr(import_module(_HOMES.get(name, "voxserve.core.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
