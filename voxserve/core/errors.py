"""Every error voxserve raises on purpose.

VoxserveError
├── InvalidInput          text or request parameters that cannot be served (also a ValueError)
├── InvalidSetting        a setting's name, type, bound or unprepared value (also a ValueError)
├── UnknownModel          no such model name or checkpoint folder
├── CheckpointError       files of a checkpoint are missing, unexpected or malformed
├── DeviceUnavailable     the device, its memory or an audio device is not there
├── EngineError
│   ├── EngineStopped     the engine was stopped; start it or make a new one
│   └── EngineFailed      the engine ended because of an internal or device error
└── RequestError
    ├── RequestCancelled  the request was cancelled
    ├── RequestRejected   refused at arrival (overload, too long for the pools)
    └── RequestFailed     this request's work failed; others go on
"""

from __future__ import annotations


class VoxserveError(Exception):
    """Base of all errors raised on purpose."""


class InvalidInput(VoxserveError, ValueError):
    """Text or request parameters that cannot be served."""


class InvalidSetting(VoxserveError, ValueError):
    """A setting's name, type, bound or unprepared value."""


class UnknownModel(VoxserveError, ValueError):
    """No such model name or checkpoint folder."""


class CheckpointError(VoxserveError):
    """Files of a checkpoint are missing, unexpected or malformed."""


class DeviceUnavailable(VoxserveError):
    """The device, its memory or an audio device is not there."""


class EngineError(VoxserveError):
    """The engine cannot serve."""


class EngineStopped(EngineError):
    """The engine was stopped."""


class EngineFailed(EngineError):
    """The engine ended because of an internal or device error."""


class RequestError(VoxserveError):
    """One request did not complete."""


class RequestCancelled(RequestError):
    """The request was cancelled."""


class RequestRejected(RequestError):
    """The request was refused at arrival."""


class RequestFailed(RequestError):
    """This request's work failed; others go on."""
