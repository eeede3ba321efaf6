"""Launches by the driver's own calls, over a library that only writes down what it is asked."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from voxserve.core.errors import EngineFailed
from voxserve.runtime import cuda_calls
from voxserve.runtime.cuda_calls import CudaCalls, load_library
from voxserve.runtime.cuda_launch import DriverLauncher, GraphReplay, TorchLauncher, make_launcher
from voxserve.runtime.driver import Executable, Step
from voxserve.runtime.pinned import PinnedBuffer

CONTEXT, STREAM = 77, 5


class FakeLibrary:
    """libcuda as far as launches go; `codes` are the calls that fail, by name."""

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*args: Any) -> int:
            self.calls.append((name, *args))
            return self.codes.get(name, 0)

        return call

    def cuCtxGetCurrent(self, out: Any) -> int:  # noqa: N802
        out._obj.value = CONTEXT
        return 0

    def cuEventElapsedTime(self, out: Any, first: int, last: int) -> int:  # noqa: N802
        out._obj.value = float(last - first)
        return self.codes.get("cuEventElapsedTime", 0)

    def cuGetErrorName(self, code: int, out: Any) -> int:  # noqa: N802
        out._obj.value = b"CUDA_ERROR_ILLEGAL_ADDRESS"
        return 0

    def cuGetErrorString(self, code: int, out: Any) -> int:  # noqa: N802
        return 1  # knows no words for it


def fake(**values: Any) -> Any:
    """An object of which only some attributes matter."""
    return SimpleNamespace(**values)


@pytest.fixture
def library() -> FakeLibrary:
    return FakeLibrary()


@pytest.fixture
def calls(library: FakeLibrary) -> CudaCalls:
    return CudaCalls(library)


def a_step(replay: Any, used: int = 3) -> Step:
    program = fake(
        inputs=torch.zeros(4, dtype=torch.int32), outputs=torch.zeros(6, dtype=torch.int16)
    )
    source = PinnedBuffer.made(8, torch.int32, is_pinned=False)
    landing = PinnedBuffer.made(6, torch.int16, is_pinned=False)
    return Step(source, Executable(program, replay), landing, used)


def test_a_launch_is_events_around_copies_and_replays(library: FakeLibrary, calls: CudaCalls):
    graph = fake(raw_cuda_graph_exec=lambda: 99, replay=lambda: pytest.fail("by torch"))
    step = a_step(GraphReplay(graph))
    start, end, stream = fake(handle=1), fake(handle=2), fake(cuda_stream=STREAM)
    DriverLauncher(calls, CONTEXT).launch(stream, start, [step, step], end)
    program = step.executable.program
    into = ("cuMemcpyHtoDAsync_v2", program.inputs.data_ptr(), step.source.address, 16, STREAM)
    replay = ("cuGraphLaunch", 99, STREAM)
    out = ("cuMemcpyDtoHAsync_v2", step.landing.address, program.outputs.data_ptr(), 6, STREAM)
    assert library.calls == [
        ("cuCtxSetCurrent", CONTEXT),  # whatever thread launches
        ("cuEventRecord", 1, STREAM),
        *(into, replay, out),
        *(into, replay, out),
        ("cuEventRecord", 2, STREAM),
    ]


def test_an_event_is_done_or_not_yet_or_tells_the_devices_error(
    library: FakeLibrary, calls: CudaCalls
):
    launcher = DriverLauncher(calls, CONTEXT)
    event = fake(handle=3)
    assert launcher.is_done(event)
    library.codes["cuEventQuery"] = 600
    assert not launcher.is_done(event)
    library.codes["cuEventQuery"] = 700
    with pytest.raises(EngineFailed, match="cuEventQuery: CUDA error 700, CUDA_ERROR_ILLEGAL"):
        launcher.is_done(event)


@pytest.mark.parametrize(
    "name", ["cuGraphLaunch", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuEventRecord"]
)
def test_every_call_of_a_launch_is_checked(library: FakeLibrary, calls: CudaCalls, name: str):
    library.codes[name] = 700
    step = a_step(fake(handle=99))
    event, stream = fake(handle=1), fake(cuda_stream=STREAM)
    with pytest.raises(EngineFailed, match=name.removesuffix("_v2")):
        DriverLauncher(calls, CONTEXT).launch(stream, event, [step], event)


def test_busy_streams_are_no_error(library: FakeLibrary, calls: CudaCalls):
    launcher, stream = DriverLauncher(calls, CONTEXT), fake(cuda_stream=STREAM)
    library.codes["cuStreamQuery"] = 600
    launcher.check(stream)
    library.codes["cuStreamQuery"] = 719
    with pytest.raises(EngineFailed, match="CUDA error 719"):
        launcher.check(stream)


def test_times_are_seconds(calls: CudaCalls):
    first, last = fake(handle=10), fake(handle=35)
    assert DriverLauncher(calls, CONTEXT).elapsed_s(first, last) == pytest.approx(0.025)
    assert calls.current_context() == CONTEXT


def test_the_driver_is_called_with_the_interpreter_held(monkeypatch: pytest.MonkeyPatch):
    """`ctypes.PyDLL` keeps the lock, `ctypes.CDLL` lets go of it at every call."""
    library = FakeLibrary()
    made = {name: fake() for name in cuda_calls._SIGNATURES}
    loaded = fake(**made)
    monkeypatch.setattr(ctypes, "PyDLL", lambda name: loaded)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    assert load_library() is loaded
    assert all(function.restype is ctypes.c_int for function in made.values())
    delattr(loaded, "cuGraphLaunch")
    assert load_library() is None, "an old driver"


def test_without_the_drivers_library_torch_launches(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cuda_calls, "_LIBRARY", "libcuda-that-is-not-there.so")
    stream: Any = None
    assert isinstance(make_launcher(stream), TorchLauncher)


def test_a_graph_whose_handle_torch_hides_is_replayed_by_torch():
    replayed: list[bool] = []
    replay = GraphReplay(fake(replay=lambda: replayed.append(True)))
    assert replay.handle == 0
    replay()
    assert replayed == [True]
