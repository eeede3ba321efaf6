"""The few CUDA driver calls of a launch, made without letting go of the interpreter.

torch's own calls each release the interpreter lock and take it back. Beside a thread that computes
in pure Python that costs up to one switch interval a call, which is more than the call by three
orders of magnitude. None of the calls here waits for the device, so holding the lock is right.
"""

from __future__ import annotations

import ctypes
from typing import Any

from voxserve.core.errors import EngineFailed

_LIBRARY = "libcuda.so.1"
_SUCCESS, _NOT_READY = 0, 600
_Handle, _Address, _Size = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuCtxGetCurrent": (ctypes.POINTER(_Handle),),
    "cuCtxSetCurrent": (_Handle,),
    "cuEventElapsedTime": (ctypes.POINTER(ctypes.c_float), _Handle, _Handle),
    "cuEventQuery": (_Handle,),
    "cuEventRecord": (_Handle, _Handle),
    "cuGetErrorName": (ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)),
    "cuGetErrorString": (ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)),
    "cuGraphLaunch": (_Handle, _Handle),
    "cuMemcpyDtoHAsync_v2": (_Address, _Address, _Size, _Handle),
    "cuMemcpyHtoDAsync_v2": (_Address, _Address, _Size, _Handle),
    "cuStreamQuery": (_Handle,),
}


def load_library() -> Any:
    """The driver's library with its signatures; None where there is none that has them all."""
    try:
        library = ctypes.PyDLL(_LIBRARY)
        for name, arguments in _SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, ctypes.c_int
    except (OSError, AttributeError):
        return None
    return library


class CudaCalls:
    """Checked calls on handles and addresses, which are plain numbers.

    Args:
        library: From `load_library`.

    Every method raises `EngineFailed`, with the device's own words, when the device is in error.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        self._launch, self._record = library.cuGraphLaunch, library.cuEventRecord
        self._to_device = library.cuMemcpyHtoDAsync_v2
        self._to_host = library.cuMemcpyDtoHAsync_v2
        self._event_query = library.cuEventQuery
        self._milliseconds = ctypes.c_float()

    def current_context(self) -> int:
        """The calling thread's context, 0 for none."""
        context = _Handle()
        self._check("cuCtxGetCurrent", self._library.cuCtxGetCurrent(ctypes.byref(context)))
        return context.value or 0

    def make_current(self, context: int) -> None:
        """Makes a context the calling thread's."""
        self._check("cuCtxSetCurrent", self._library.cuCtxSetCurrent(context))

    def launch(self, graph: int, stream: int) -> None:
        """Queues an instantiated graph."""
        code = self._launch(graph, stream)
        if code:
            self._check("cuGraphLaunch", code)

    def copy_to_device(self, target: int, source: int, num_bytes: int, stream: int) -> None:
        """Queues a copy from page-locked memory."""
        code = self._to_device(target, source, num_bytes, stream)
        if code:
            self._check("cuMemcpyHtoDAsync", code)

    def copy_to_host(self, target: int, source: int, num_bytes: int, stream: int) -> None:
        """Queues a copy into page-locked memory."""
        code = self._to_host(target, source, num_bytes, stream)
        if code:
            self._check("cuMemcpyDtoHAsync", code)

    def record(self, event: int, stream: int) -> None:
        """Queues an event."""
        code = self._record(event, stream)
        if code:
            self._check("cuEventRecord", code)

    def is_done(self, event: int) -> bool:
        """Whether an event has been reached."""
        code = self._event_query(event)
        if code and code != _NOT_READY:
            self._check("cuEventQuery", code)
        return code == _SUCCESS

    def elapsed_s(self, first: int, last: int) -> float:
        """Seconds between two events that have been reached."""
        result = ctypes.byref(self._milliseconds)
        self._check("cuEventElapsedTime", self._library.cuEventElapsedTime(result, first, last))
        return self._milliseconds.value * 1e-3

    def check(self, stream: int) -> None:
        """Asks a stream whether the device is in error."""
        code = self._library.cuStreamQuery(stream)
        if code != _NOT_READY:
            self._check("cuStreamQuery", code)

    def _check(self, name: str, code: int) -> None:
        if code == _SUCCESS:
            return
        told = self._told("cuGetErrorName", code), self._told("cuGetErrorString", code)
        raise EngineFailed(f"{name}: CUDA error {code}, {': '.join(filter(None, told))}")

    def _told(self, name: str, code: int) -> str:
        text = ctypes.c_char_p()
        failed = getattr(self._library, name)(code, ctypes.byref(text))
        return "" if failed or text.value is None else text.value.decode(errors="replace")
