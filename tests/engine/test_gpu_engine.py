"""The whole engine on an NVIDIA GPU with random weights: partitions, graphs, memory."""

from __future__ import annotations

import gc
import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from voxserve.core.errors import RequestCancelled
from voxserve.core.events import LaneSpan
from voxserve.engine.engine import Engine
from voxserve.runtime import cuda, partition
from voxserve.runtime.capacity import Capacity
from voxserve.runtime.executables import Sizes

SIZES = Sizes((4, 8), prefill=(128,), codec=(4, 8), urgent=(4,), chunk_frames=(4, 10))
TEXT = "Hello there, how are you?"
LENGTH = {"min_frames": 34, "max_frames": 34}

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few executables and small pools: what is tested does not depend on how many there are."""
    monkeypatch.setattr(Sizes, "usual", classmethod(lambda _: SIZES))
    monkeypatch.setattr(cuda, "Capacity", lambda: Capacity(16, 64, 256))


def make(**settings: object) -> Engine:
    return Engine("qwen3-tts-1.7b", "cuda", weights="random", name="gpu", **settings)


def a_split() -> str:
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    return str(partition.possible_splits(sms)[3])


def samples(audio: object) -> np.ndarray:
    return np.concatenate([chunk.pcm for chunk in audio.chunks]).astype(int)


def test_streamed_speech_is_what_is_said_at_once():
    with make(sm_split=a_split(), chunk_ramp=(4, 10)) as engine:
        whole = samples(engine.say(TEXT, seed=3, **LENGTH))
        streamed = samples(engine.stream(TEXT, seed=3, **LENGTH).read())
        assert len(whole) == len(streamed) > 0
        assert np.abs(whole - streamed).max() <= 0.02 * np.abs(whole).max()
        spans = [item for item in engine.trace.records() if isinstance(item, LaneSpan)]
    assert all(0.0 < span.end_s - span.start_s < 1.0 for span in spans)
    assert all(span.queued_s <= span.start_s + 1e-3 for span in spans), "one clock for all"


def test_settings_and_splits_change_while_serving():
    with make(sm_split=a_split()) as engine:
        streams = [engine.stream(TEXT, seed=seed, **LENGTH) for seed in range(6)]
        engine.set(sm_split="none")
        sms = torch.cuda.get_device_properties(0).multi_processor_count
        engine.prepare_split(f"{sms - 16}/16")
        engine.set(sm_split=f"{sms - 16}/16")
        for mode in ("two_streams", "time_sharing", "partitioned", "partitioned_urgent"):
            engine.set(lane_mode=mode)
            streams.append(engine.stream(TEXT, seed=1, **LENGTH))
        lengths = {len(samples(stream.read())) for stream in streams}
    assert all(0 < length <= 34 * 1920 for length in lengths)


def test_cancelled_requests_leave_nothing():
    with make() as engine:
        streams = [engine.stream(TEXT, seed=seed, **LENGTH) for seed in range(12)]
        for stream in streams[::2]:
            engine.cancel(stream.request_id)
        for stream in streams[::2]:
            try:
                stream.read()
            except RequestCancelled:
                pass
        assert all(len(samples(stream.read())) for stream in streams[1::2])
        assert engine.wait(10.0)


def test_stopping_frees_all_memory():
    allocated: list[int] = []
    for _ in range(21):
        with make(sm_split=a_split()) as engine:
            engine.say(TEXT, **LENGTH)
            assert torch.cuda.memory_allocated() > 1 << 30
        del engine
        gc.collect()
        allocated.append(torch.cuda.memory_allocated())
    # What the process keeps for ever is there after the first.
    assert set(allocated) == {allocated[0]}
    assert allocated[0] < 1 << 20


def test_the_first_split_and_the_way_of_launching_are_told():
    with make() as engine:
        assert engine.start_report["launch"] == "driver"
        told = engine.start_report["sm_split"]
        assert told["chosen"] == str(engine.settings.sm_split)
        assert told["why"]


# In a process of its own: an error of the device stays for as long as its process.
_BREAK = """
import json, os
import torch
from voxserve import Engine
from voxserve.core.errors import EngineFailed
from voxserve.runtime import cuda
from voxserve.runtime.capacity import Capacity
from voxserve.runtime.executables import Sizes

sizes = Sizes((4, 8), prefill=(128,), codec=(4, 8), urgent=(4,), chunk_frames=(4, 10))
Sizes.usual = classmethod(lambda _: sizes)
cuda.Capacity = lambda: Capacity(16, 64, 512)
engine = Engine("qwen3-tts-1.7b", "cuda", weights="random", name="broken")
streams = [
    engine.stream("Hello there.", seed=i, min_frames=400, max_frames=400) for i in range(3)
]
next(streams[0])
index = torch.tensor([1 << 20], device="cuda")
torch.zeros(4, device="cuda")[index]  # out of bounds: the device asserts
told = []
for stream in streams:
    try:
        stream.read()
        told.append("read to the end")
    except EngineFailed as error:
        told.append(str(error))
try:
    engine.say("one")
    told.append("said")
except EngineFailed as error:
    told.append(str(error))
engine.stop()
print(json.dumps([engine.stats().state, *told]), flush=True)
os._exit(0)
"""


def test_a_device_error_ends_the_engine_and_is_told_to_everybody():
    done = subprocess.run(
        [sys.executable, "-c", _BREAK], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    state, *told = json.loads(done.stdout.splitlines()[-1])
    assert state.startswith("failed: ")
    assert len(told) == 4
    assert all("the device is in error" in line for line in told), told
