"""Starting, stopping, failing and being forgotten: nothing hangs and nothing is left behind."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import threading
import weakref

import pytest
from fake_model import FakeModel, expected_pcm
from waiting import assert_no_threads, voxserve_threads, wait_for

import voxserve
from voxserve.core.errors import DeviceUnavailable, EngineFailed, EngineStopped, RequestError
from voxserve.engine import engine as engine_module
from voxserve.engine.build import Built
from voxserve.engine.engine import Engine
from voxserve.runtime.cpu import CpuExecutor

LONG = "word " * 60


def test_the_same_engine_is_returned_while_it_lives(make):
    engine = make(background_batch=4)
    assert make(background_batch=4) is engine
    assert len([name for name in voxserve_threads() if name.endswith("-engine")]) == 1
    other = make(background_batch=2)
    assert other is not engine
    assert not engine.is_running
    assert other.settings.background_batch == 2
    assert voxserve.engines() == {"default": other}


def test_two_engines_serve_side_by_side(make):
    first, second = make(name="first"), make(name="second")
    a, b = first.stream(LONG, seed=1), second.stream(LONG, seed=2)
    assert (a.read().pcm == expected_pcm(LONG, seed=1)).all()
    assert (b.read().pcm == expected_pcm(LONG, seed=2)).all()
    first.stop()
    assert second.say("one").duration_s > 0


def test_stop_tells_every_reader(make):
    engine = make(FakeModel(step_s=0.01))
    streams = [engine.stream(LONG) for _ in range(3)]
    told: list[Exception] = []

    def read(stream) -> None:
        try:
            stream.read()
        except EngineStopped as error:
            told.append(error)

    readers = [threading.Thread(target=read, args=(stream,)) for stream in streams]
    for reader in readers:
        reader.start()
    engine.stop()
    for reader in readers:
        reader.join(20)
    assert len(told) == 3
    assert_no_threads()
    assert engine.stats().state == "stopped"


def test_a_stopped_engine_starts_again(make):
    engine = make()
    engine.stop()
    engine.stop()
    assert engine.start() is engine
    assert engine.say("one").request_id >= 0
    assert voxserve.engines() == {"default": engine}


def test_the_end_of_a_with_block_stops(make):
    with make() as engine:
        assert engine.is_running
    assert_no_threads()


def test_deleting_the_last_reference_leaves_no_thread_and_no_model(monkeypatch):
    models: list[weakref.ref[FakeModel]] = []

    def build(model: str, device: str, *, weights: object, clock, name: str, **_: object) -> Built:
        fake = FakeModel(step_s=0.005)
        models.append(weakref.ref(fake))
        return Built(CpuExecutor(fake, clock, name), fake)

    monkeypatch.setattr(engine_module, "build_executor", build)
    engine = Engine(name="gone")
    stream = engine.stream(LONG)
    next(stream)
    del engine, stream
    assert_no_threads()
    assert [model() for model in models] == [None]


def test_a_stream_keeps_its_engine_alive(make):
    make(name="kept").stop()  # this name's engines have the fake model from here on
    stream = Engine(name="kept").stream("one two")
    gc.collect()
    assert (stream.read().pcm == expected_pcm("one two")).all()
    del stream
    gc.collect()
    assert_no_threads()


def test_a_deleted_engine_takes_its_load_along(make):
    make(name="kept").stop()
    engine = Engine(name="kept")
    engine.load("seedtts", rate_rps=0.001)
    assert any(name.endswith("-load") for name in voxserve_threads())
    del engine
    assert_no_threads()


def test_two_hundred_random_cancels_leave_nothing(make):
    engine = make(FakeModel(step_s=0.0005))
    executor = engine._service._executor
    rng = random.Random(7)
    streams = []
    for _ in range(200):
        stream = engine.stream("word " * rng.randint(1, 40), listener=rng.random() < 0.7)
        streams.append(stream)
        if rng.random() < 0.5:
            next(stream)
        rng.choice(streams).cancel()
    for stream in streams:
        stream.cancel()
    assert engine.wait(20)
    assert not executor._slots
    scheduler = engine._service._scheduler
    assert scheduler.num_free_slots == engine.prepared.num_slots
    assert scheduler.num_jobs == 0
    assert not engine._service._requests._served
    stats = engine.stats()
    assert stats.done + stats.cancelled == 200
    assert len(voxserve_threads()) == 4
    assert (engine.say("one two").pcm == expected_pcm("one two")).all()


def test_a_crashed_executor_fails_the_engine_and_tells_everybody(make):
    engine = make(FakeModel(step_s=0.01))
    stream = engine.stream(LONG)
    next(stream)

    def crash(job: object) -> None:
        raise MemoryError("the device is gone")

    engine._service._executor.launch = crash
    with pytest.raises(EngineFailed, match="the device is gone"):
        stream.read()
    with pytest.raises(EngineFailed, match="the device is gone"):
        engine.say("one")
    assert engine.stats().state.startswith("failed: ")
    assert "the device is gone" in repr(engine)
    assert_no_threads()
    assert engine.start().say("one").duration_s > 0


def test_a_crashed_lane_fails_the_engine(make):
    engine = make()

    def crash() -> None:
        raise SystemExit

    next(iter(engine._service._executor._lanes.values())).put(crash)
    wait_for(lambda: not engine.is_running)
    with pytest.raises(EngineFailed, match="lane"):
        engine.say("one")


def test_a_failed_start_leaves_nothing(make, monkeypatch):
    model = FakeModel()
    monkeypatch.setattr(FakeModel, "codec", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        make(model)
    assert_no_threads()
    assert voxserve.engines() == {}


def test_an_unknown_device_is_told():
    with pytest.raises(DeviceUnavailable, match="no device 'abacus'"):
        Engine(device="abacus")


def test_the_interpreter_is_put_back(make):
    before = sys.getswitchinterval(), gc.isenabled(), gc.get_freeze_count()
    engine = make(FakeModel(step_s=0.005))
    stream = engine.stream(LONG)
    next(stream)
    assert sys.getswitchinterval() < before[0]
    assert not gc.isenabled()
    stream.cancel()
    assert engine.wait(20)
    wait_for(gc.isenabled)
    engine.stop()
    assert (sys.getswitchinterval(), gc.isenabled(), gc.get_freeze_count()) == before


def test_a_request_after_the_end_is_refused_not_lost(make):
    """Submissions race with a stop: each is either served or told."""
    engine = make()
    outcomes: list[str] = []

    def speak() -> None:
        try:
            while True:
                engine.say("one")
        except (EngineStopped, RequestError) as error:
            outcomes.append(type(error).__name__)

    threads = [threading.Thread(target=speak) for _ in range(4)]
    for thread in threads:
        thread.start()
    engine.stop()
    for thread in threads:
        thread.join(20)
    assert outcomes == ["EngineStopped"] * 4


def test_importing_voxserve_stays_light():
    code = (
        "import sys, voxserve; from voxserve import Engine, Settings, InvalidInput;"
        "heavy = {'torch', 'plotly', 'IPython', 'ipywidgets', 'transformers'} & set(sys.modules);"
        "print(sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
