"""The whole engine over the GPU executor, computed on the CPU with the tiny checkpoint."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from eager_driver import EagerDriver
from fake_model import BROKEN_CODEC, FakeModel, expected_pcm
from waiting import assert_no_threads, wait_for

from voxserve.core.clock import Clock
from voxserve.core.errors import (
    EngineFailed,
    EngineStopped,
    InvalidSetting,
    RequestCancelled,
    RequestFailed,
)
from voxserve.core.events import LaneSpan
from voxserve.core.settings import Split
from voxserve.engine import engine as engine_module
from voxserve.engine.build import Built, fixed_length
from voxserve.engine.engine import Engine
from voxserve.models import registry
from voxserve.models.base import SpeechModel
from voxserve.runtime.cuda import Capacity, CudaExecutor
from voxserve.runtime.executables import Sizes

CHECKPOINT = Path(__file__).parents[1] / "data" / "qwen3_tts_tiny"
SIZES = Sizes(
    decode=(1, 4, 8), prefill=(64, 256), codec=(1, 8), urgent=(1, 4), chunk_frames=(4, 10)
)
TEXT = "Hello there, how are you?"


class Rig:
    """Makes engines over the GPU executor and remembers its parts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, model: Any, pages: int) -> None:
        self.model = model
        self._pages = pages
        monkeypatch.setattr(engine_module, "build_executor", self._build)

    def _build(self, _model: str, _device: str, *, clock: Clock, **_: object) -> Built:
        self.driver = EagerDriver(clock)
        self.executor = CudaExecutor(
            self.model,
            self.driver,
            clock,
            splits=(Split(8, 4), Split()),
            sizes=SIZES,
            capacity=Capacity(8, self._pages, 256),
            cuts_silence=False,
        )
        return Built(self.executor, self.model, partial(fixed_length, self.model))

    def assert_nothing_is_held(self) -> None:
        pools = self.executor._buffers.pools
        assert all(pool.num_free == pool.num_buffers for pool in pools)
        assert not self.executor._slots


@pytest.fixture(scope="module")
def tiny() -> SpeechModel:
    return registry.load("qwen3-tts-1.7b", "cpu", str(CHECKPOINT))


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    before_s = sys.getswitchinterval()
    yield Rig(monkeypatch, FakeModel(step_s=0.001), pages=0)
    assert_no_threads()
    assert sys.getswitchinterval() == pytest.approx(before_s), "however the engines ended"


def test_streamed_speech_equals_the_cpu_engines(monkeypatch, tiny: SpeechModel):
    options = {"seed": 3, "min_frames": 34, "max_frames": 34}
    Rig(monkeypatch, tiny, pages=32)
    with Engine(name="gpu", chunk_ramp=(4, 10)) as engine:
        streamed = [engine.stream(TEXT, **options) for _ in range(3)]
        heard = [stream.read().pcm for stream in streamed]
        whole = engine.say(TEXT, **options).pcm
    monkeypatch.undo()
    with Engine("qwen3-tts-1.7b", "cpu", weights=str(CHECKPOINT), name="cpu") as engine:
        expected = engine.say(TEXT, **options).pcm
    assert len(whole) == len(expected) == 34 * 1920
    # The CPU engine leaves out leading silence; this speech has none.
    for pcm in (*heard, whole):
        assert np.abs(pcm.astype(int) - expected).max() <= 1


def test_all_lanes_serve_and_nothing_is_held_afterwards(rig: Rig):
    texts = [" ".join(["word"] * (5 + i)) for i in range(12)]
    with Engine(name="lanes", chunk_ramp=(4, 10)) as engine:
        streams = [engine.stream(text, seed=i) for i, text in enumerate(texts)]
        for i, (text, stream) in enumerate(zip(texts, streams, strict=True)):
            assert np.array_equal(stream.read().pcm, expected_pcm(text, seed=i))
        assert engine.wait(5.0)
        rig.assert_nothing_is_held()
        spans = [record for record in engine.trace.records() if isinstance(record, LaneSpan)]
    assert {span.lane.value for span in spans} == {"lm", "background", "urgent"}


def test_cancelled_requests_give_everything_back(rig: Rig):
    rig.model.step_s = 0.005  # none ends before it is cancelled
    text = " ".join(["word"] * 70)
    with Engine(name="cancel") as engine:
        streams = [engine.stream(text, seed=i) for i in range(16)]
        for stream in streams[::2]:
            assert engine.cancel(stream.request_id)
        for stream in streams[::2]:
            with pytest.raises(RequestCancelled):
                stream.read()
        for stream in streams[1::2]:
            assert len(stream.read().pcm) == len(expected_pcm(text))
        assert engine.wait(5.0)
        rig.assert_nothing_is_held()


def test_a_failing_batch_fails_its_requests_alone(rig: Rig):
    with Engine(name="failing") as engine:
        with pytest.raises(RequestFailed, match=BROKEN_CODEC):
            engine.say(f"one two {BROKEN_CODEC}")
        assert len(engine.say("one two").pcm)
        assert engine.wait(5.0)
        rig.assert_nothing_is_held()


def test_a_device_error_is_told_to_every_client(rig: Rig, caplog: pytest.LogCaptureFixture):
    engine = Engine(name="broken")
    streams = [engine.stream(" ".join(["word"] * 60), seed=i) for i in range(3)]
    next(streams[0])
    rig.driver.error = RuntimeError("CUDA error: device-side assert triggered")
    for stream in streams:
        with pytest.raises(EngineFailed, match="device-side assert"):
            stream.read()
    wait_for(lambda: engine.stats().state.startswith("failed"))
    with pytest.raises(EngineFailed):
        engine.say("one")
    wait_for(lambda: rig.driver.is_closed)
    engine.stop()


def test_starting_and_stopping_again_and_again(rig: Rig):
    for _ in range(5):
        with Engine(name="again") as engine:
            assert len(engine.say("one two").pcm)
        assert rig.driver.is_closed


def test_live_settings_while_serving(rig: Rig):
    text = " ".join(["word"] * 80)
    with Engine(name="live", chunk_ramp=(4, 10)) as engine:
        streams = [engine.stream(text, seed=i) for i in range(6)]
        changes = [
            {"sm_split": "none"},
            {"lane_mode": "partitioned"},
            {"lane_mode": "time_sharing"},
            {"sm_split": "8/4", "lane_mode": "partitioned_urgent"},
            {"max_decode_batch": 4, "background_batch": 2},
            {"chunk_ramp": (10,), "urgency_margin_s": 0.0},
        ]
        for change in changes:
            next(streams[0])
            engine.set(**change)
        for i, stream in enumerate(streams):
            assert np.array_equal(stream.read().pcm, expected_pcm(text, seed=i))


def test_another_split_is_captured_while_serving(rig: Rig):
    text = " ".join(["word"] * 80)
    with Engine(name="splits") as engine:
        stream = engine.stream(text)
        with pytest.raises(InvalidSetting, match="10/2 is not prepared"):
            engine.set(sm_split="10/2")
        engine.prepare_split("10/2")
        assert Split(10, 2) in engine.prepared.splits
        assert engine.set(sm_split="10/2").sm_split == Split(10, 2)
        assert np.array_equal(stream.read().pcm, expected_pcm(text))
    with pytest.raises(EngineStopped):
        engine.prepare_split("6/6")


def test_a_cpu_has_all_its_splits_from_the_start(make):
    with pytest.raises(InvalidSetting, match="fixed at the start"):
        make().prepare_split("3/1")


def test_a_stopped_engine_holds_no_model(rig: Rig):
    engine = Engine(name="held")
    engine.load("seedtts", 20.0)
    assert len(engine.say("one two").pcm)
    engine.stop()
    model = weakref.ref(rig.model)
    del rig.model
    gc.collect()
    assert model() is None, "a stopped engine's name may live on in a notebook"
