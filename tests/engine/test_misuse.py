"""What users get wrong (types, order, threads, forks) is told in one line and harms no other."""

from __future__ import annotations

import asyncio
import os
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from fake_model import FakeModel, expected_pcm

from voxserve.core.errors import EngineStopped, InvalidInput, InvalidSetting, VoxserveError
from voxserve.core.workload import find
from voxserve.engine import engine as engine_module
from voxserve.engine.mailbox import Mailbox
from voxserve.models.request import Sampling, SpeechOptions

LONG = "word " * 60


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("seed", value) for value in (None, "1", 1.5, float("nan"), True)),
        *(("max_frames", value) for value in ("9", 1.5, float("inf"), 0, -1, True)),
        *(("min_frames", value) for value in ("9", 1.5, -1)),
        *(("instruct", value) for value in (5, b"sing")),
        ("sampling", 5),
        *((name, "hot") for name in Sampling.__slots__),
        *((name, float("nan")) for name in Sampling.__slots__),
        ("top_k", 1.5),
    ],
)
def test_an_option_of_a_wrong_type_is_refused_before_it_is_served(make, option, value):
    engine = make()
    with pytest.raises(InvalidInput, match=option):
        engine.say("one", **{option: value})
    assert engine.stats().failed == 0


def test_numbers_of_numpy_and_whole_floats_are_numbers():
    options = SpeechOptions(seed=np.int64(7), max_frames=12.0)  # type: ignore[arg-type]
    assert (options.seed, options.max_frames) == (7, 12)
    assert all(type(value) is int for value in (options.seed, options.max_frames))


@pytest.mark.parametrize("text", [b"one", bytearray(b"one"), 5, None])
def test_what_is_no_text_is_shown(make, text):
    with pytest.raises(InvalidInput, match="a string or pieces of one") as told:
        make().say(text)
    assert repr(text) in str(told.value)


def test_settings_are_the_same_however_they_are_written(make):
    engine = make(chunk_ramp=(4, 10), background_batch=4)
    for ramp in ([4, 10], "4 10", np.array([4, 10])):
        assert make(chunk_ramp=ramp, background_batch=4.0) is engine
    with pytest.raises(InvalidSetting, match="too large"):
        engine.set(background_batch=10**400)


@pytest.mark.parametrize("wrong", [{"policy": 5}, {"weights": 5}, {"name": 5}, {"no_setting": 1}])
def test_an_engine_of_wrong_arguments_is_refused_before_the_model_is_loaded(monkeypatch, wrong):
    monkeypatch.setattr(engine_module, "build_executor", lambda *a, **k: pytest.fail("loaded"))
    with pytest.raises(VoxserveError, match=str(next(iter(wrong)))):
        engine_module.Engine(**wrong)


def test_threads_that_ask_at_once_get_one_engine(make):
    made: list[object] = []
    threads = [threading.Thread(target=lambda: made.append(make())) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(engine) for engine in made}) == 1
    assert make().is_running


@pytest.mark.parametrize("rate", [-1, float("nan"), float("inf"), 1e9, "5", None, True])
def test_a_wrong_load_leaves_the_one_that_runs(make, rate):
    engine = make()
    engine.load("libritts", 0.5)
    for workload, rps in (("libritts", rate), ("seedtts", rate), (None, 1.0), ("nope", 1.0)):
        with pytest.raises(InvalidInput):
            engine.load(workload, rps)
    assert (engine.stats().workload, engine.stats().rate_rps) == ("libritts", 0.5)


def test_a_load_beyond_the_device_can_be_ended_at_once(make):
    engine = make(FakeModel(step_s=0.01))
    engine.load("libritts", 10_000.0)
    engine.load(rate_rps=0)
    assert engine.wait(20.0)


def test_a_report_that_is_no_number_stays_with_its_caller(make):
    engine = make(FakeModel(step_s=0.002))
    stream = engine.stream(LONG, seed=1)
    next(stream)
    for wrong in (None, "soon", True):
        with pytest.raises(InvalidInput, match="buffered_s"):
            engine.report_listener(stream.request_id, wrong)
        with pytest.raises(InvalidInput, match="buffered_s"):
            stream.report(wrong)
    stream.report(float("nan"))
    assert (stream.read().pcm == expected_pcm(LONG, seed=1)).all()


def test_a_stream_made_before_the_engine_stopped_says_so(make):
    engine = make()
    first, second = engine.astream("one"), engine.astream("one")
    engine.stop()
    with pytest.raises(EngineStopped):
        asyncio.run(first.read())
    engine.start()
    with pytest.raises(EngineStopped):
        asyncio.run(second.read())
    assert engine.say("one").duration_s > 0


def test_a_second_event_loop_needs_a_stream_of_its_own(make):
    engine = make(FakeModel(step_s=0.002))
    stream = engine.astream(LONG, seed=1)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(anext(stream))
    for _ in range(2):  # the first loop's request is not harmed by it
        with pytest.raises(InvalidInput, match="make a stream in this one"):
            asyncio.run(stream.read())
    audio = loop.run_until_complete(stream.read())
    loop.close()
    assert (audio.pcm == expected_pcm(LONG, seed=1)).all()
    assert asyncio.run(stream.read()).duration_s == audio.duration_s  # all of it is here


def test_a_reader_whose_event_loop_is_gone_is_told_in_one_line(make, caplog):
    engine = make(FakeModel(step_s=0.002))

    async def leave():
        stream = engine.astream(LONG)
        await anext(stream)
        return stream

    stream = asyncio.run(leave())
    assert engine.wait(20.0)
    assert "Event loop is closed" in caplog.text
    assert "Traceback" not in caplog.text
    assert stream.request_id >= 0
    assert engine.stats().cancelled == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_is_told_and_its_parent_goes_on(make):
    engine = make(FakeModel(step_s=0.005))
    stream = engine.stream(LONG, seed=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: forking with threads
        child = os.fork()
    if child == 0:
        os._exit(_told_in_the_child(engine, stream))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert (stream.read().pcm == expected_pcm(LONG, seed=3)).all()


def _told_in_the_child(engine, stream) -> int:
    told = 0
    for number, act in ((1, stream.read), (2, lambda: engine.say("one")), (4, engine.load)):
        try:
            act()
        except EngineStopped:
            told += number
    engine.stop()
    stream.close()
    return told if engine.wait(1.0) and not engine.is_running else 0


@pytest.mark.parametrize("wrong", ["x", [], {}, True, object()])
def test_an_argument_that_is_no_number_stays_with_its_caller(make, wrong):
    engine = make()
    request = engine.prepare(next(find("words:5").utterances(0)), np.int64(1))
    for act in (
        lambda: engine.cancel(wrong),
        lambda: engine.wait(wrong),
        lambda: engine.turns(wrong),
        lambda: engine.report_listener(wrong, 0.1),
        lambda: engine.prepare(wrong, 1),
        lambda: engine.prepare(next(find("words:5").utterances(0)), wrong),
        lambda: engine.submit(request, Mailbox(), wrong),
        lambda: engine.submit(request, wrong, 0.0),
        lambda: engine.submit(wrong, Mailbox(), 0.0),
        lambda: engine.say("one", on_chunk=wrong or "x"),
    ):
        with pytest.raises(InvalidInput):
            act()
    assert engine.submit(request, Mailbox(), np.float32(engine.now_s())) >= 0
    assert engine.wait(20.0)
    assert engine.wait(float("inf"))
    assert engine.wait(-1)
    assert engine.stats().state == "running"


def test_a_second_reader_is_told_and_the_first_loses_nothing(make):
    engine = make(FakeModel(step_s=0.002))

    async def read_twice():
        stream = engine.astream(LONG, seed=5)
        return await asyncio.gather(stream.read(), stream.read(), return_exceptions=True)

    audio, told = asyncio.run(read_twice())
    assert isinstance(told, InvalidInput)
    assert "stream for each reader" in str(told)
    assert (audio.pcm == expected_pcm(LONG, seed=5)).all()

    stream = engine.stream(LONG, seed=5)
    with ThreadPoolExecutor() as pool:
        reads = [pool.submit(stream.read) for _ in range(2)]
    ends = [read.exception() or read.result() for read in reads]
    assert any(isinstance(end, InvalidInput) for end in ends)
    assert (stream.audio().pcm == expected_pcm(LONG, seed=5)).all()


def test_asynchronous_text_is_sent_to_astream():
    async def words():
        yield "Hello."

    with engine_module.Engine("vox-tiny") as engine:
        with pytest.raises(InvalidInput, match="astream"):
            engine.stream(words())
        with pytest.raises(InvalidInput, match="astream"):
            engine.say(words())
