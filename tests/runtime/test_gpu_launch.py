"""The driver's own calls on a GPU: they do what torch's do."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest
import torch

from voxserve.core.errors import EngineFailed
from voxserve.core.jobs import LaneName, Partition
from voxserve.core.settings import Split
from voxserve.engine.clock import MonotonicClock
from voxserve.runtime.cuda_calls import CudaCalls, load_library
from voxserve.runtime.cuda_driver import CudaDriver
from voxserve.runtime.cuda_launch import DriverLauncher, GraphReplay, TorchLauncher
from voxserve.runtime.driver import Executable, Step
from voxserve.runtime.pinned import PinnedBuffer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

SIZE = 4096


class Doubling:
    """A program: twice its inputs, and one more."""

    def __init__(self) -> None:
        self.inputs = torch.zeros(SIZE, dtype=torch.int32, device="cuda")
        self.outputs = torch.zeros(SIZE, dtype=torch.int32, device="cuda")

    def run(self) -> None:
        torch.mul(self.inputs, 2, out=self.outputs)
        self.outputs.add_(1)


@pytest.fixture
def driver():
    made = CudaDriver(torch.device("cuda"), MonotonicClock())
    yield made
    made.wait_all()
    made.close()


def a_step(driver: CudaDriver, numbers: np.ndarray) -> Step:
    program = Doubling()
    replay = driver.capture(program.run, LaneName.LM, Split(), Partition.WHOLE)
    source, landing = (PinnedBuffer.made(SIZE, torch.int32, is_pinned=True) for _ in range(2))
    source.array[:] = numbers
    return Step(source, Executable(program, replay), landing, SIZE // 2)


def test_the_driver_launches_here(driver: CudaDriver):
    assert driver.launch_path == "driver"
    step = a_step(driver, np.arange(SIZE))
    replay = step.executable.replay
    assert isinstance(replay, GraphReplay)
    assert replay.handle, "torch tells the instantiated graph"


@pytest.mark.parametrize("way", ["driver", "torch"])
def test_both_ways_give_the_same(driver: CudaDriver, way: str):
    if way == "torch":
        driver._launcher = TorchLauncher()
    step = a_step(driver, np.arange(SIZE))
    before_s = driver._clock.now_s()
    ticket = driver.launch(LaneName.URGENT, [step, step])
    driver.wait_all()
    assert driver.is_done(ticket)
    start_s, end_s = driver.span_s(ticket)
    assert before_s - 1e-3 <= start_s <= end_s <= driver._clock.now_s() + 1e-3
    half = SIZE // 2
    assert np.array_equal(step.landing.array[:half], 2 * np.arange(half) + 1)
    assert not step.landing.array[half:].any(), "what nobody wants is not copied"


def test_any_thread_may_launch(driver: CudaDriver):
    step = a_step(driver, np.full(SIZE, 3))
    found: list[object] = []

    def work() -> None:
        try:
            ticket = driver.launch(LaneName.LM, [step])
            while not driver.is_done(ticket):
                pass
            driver.check()
            found.append(int(step.landing.array[0]))
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [7]


def test_errors_are_told_in_the_drivers_words(driver: CudaDriver):
    calls = CudaCalls(load_library())
    stream = driver._streams[LaneName.LM].cuda_stream
    with pytest.raises(EngineFailed, match=r"cuMemcpyHtoDAsync: CUDA error \d+, CUDA_ERROR_"):
        calls.copy_to_device(0, 0, 16, stream)
    assert isinstance(driver._launcher, DriverLauncher)
    driver.check()  # a wrong argument harms nobody else


def test_the_library_keeps_the_interpreter():
    assert type(load_library()) is ctypes.PyDLL
