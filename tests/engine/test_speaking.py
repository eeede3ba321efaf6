"""What users get back: whole utterances, streams, errors, in threads and event loops."""

from __future__ import annotations

import asyncio
import gc
import threading
import wave
from itertools import pairwise

import numpy as np
import pytest
from fake_model import (
    BROKEN_CODEC,
    BROKEN_PROMPT,
    BROKEN_STEP,
    FRAME_SAMPLES,
    NOT_A_NUMBER,
    SAMPLE_RATE_HZ,
    FakeModel,
    expected_pcm,
)
from waiting import wait_for

from voxserve.core.errors import (
    EngineStopped,
    InvalidInput,
    InvalidSetting,
    RequestCancelled,
    RequestFailed,
)
from voxserve.core.events import ChunkLife, LaneSpan, RequestChange, SettingChange
from voxserve.core.protocols import SpeechEngine
from voxserve.core.request import FinishReason, RequestState

TEXT = "one two three four five. six seven eight nine"
LONG = "word " * 60


def test_an_engine_is_what_displays_and_load_clients_expect(make):
    engine = make()
    assert isinstance(engine, SpeechEngine)
    assert engine.stats().state == "running"
    engine.stream(TEXT)
    engine.stop()
    assert engine.stats().running == 0


def test_say_returns_the_whole_utterance(make):
    audio = make().say(TEXT, seed=3)
    assert np.array_equal(audio.pcm, expected_pcm(TEXT, seed=3))
    assert audio.sample_rate_hz == SAMPLE_RATE_HZ
    assert audio.finish_reason in (FinishReason.END, FinishReason.LENGTH)
    assert audio.ttfa_s is not None
    assert audio.seed == 3


@pytest.mark.parametrize("ramp", [(1,), (2, 4, 10), (10,), (20,)])
def test_streamed_audio_equals_the_whole(make, ramp):
    engine = make(chunk_ramp=ramp)
    chunks = list(engine.stream(TEXT, seed=5))
    frames = [chunk.ref.num_frames for chunk in chunks]
    assert frames[: len(ramp)] == list(ramp[: len(frames)])
    assert np.array_equal(np.concatenate([c.pcm for c in chunks]), expected_pcm(TEXT, seed=5))
    assert [chunk.ref.index for chunk in chunks] == list(range(len(chunks)))


def test_streams_of_many_threads_do_not_mix(make):
    engine = make()
    results: dict[int, np.ndarray] = {}

    def speak(seed: int) -> None:
        results[seed] = engine.stream(TEXT, seed=seed).read().pcm

    threads = [threading.Thread(target=speak, args=(seed,)) for seed in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == list(range(12))
    for seed, pcm in results.items():
        assert np.array_equal(pcm, expected_pcm(TEXT, seed=seed))


def test_a_listened_stream_has_deadlines_and_a_file_has_none(make):
    engine = make()
    assert all(chunk.deadline_s is not None for chunk in engine.stream(TEXT))
    seen = []
    engine.say(TEXT, on_chunk=seen.append)
    assert [chunk.deadline_s for chunk in seen] == [None] * len(seen)
    assert [chunk.slack_s for chunk in seen] == [None] * len(seen)


def test_text_in_pieces_is_collected_and_says_so(make):
    audio = make().say(iter(["one two ", "three"]))
    assert np.array_equal(audio.pcm, expected_pcm("one two three"))
    assert any("collected" in note for note in audio.notes)


@pytest.mark.parametrize(
    ("text", "options", "told"),
    [
        ("  ", {}, "nothing to say"),
        (None, {}, "a string or pieces of one"),
        (["one", 2], {}, "not a string"),
        ("one", {"sped": 2}, "no option 'sped'"),
        ("one", {"temperature": 9.0}, "temperature 9.0 is outside"),
        ("one", {"max_frames": 10**7}, "split it"),
    ],
)
def test_bad_requests_are_refused_with_the_limit(make, text, options, told):
    engine = make()
    with pytest.raises(InvalidInput, match=told):
        engine.say(text, **options)
    assert engine.stats().done == 0


@pytest.mark.parametrize("poison", [BROKEN_PROMPT, BROKEN_STEP, BROKEN_CODEC, NOT_A_NUMBER])
def test_a_failing_request_disturbs_no_other(make, poison):
    engine = make(FakeModel(step_s=0.001))
    good = [engine.stream(LONG, seed=seed) for seed in range(3)]
    with pytest.raises(RequestFailed, match=r"poison|finite"):
        engine.say(f"one {poison} three")
    for seed, stream in enumerate(good):
        assert np.array_equal(stream.read().pcm, expected_pcm(LONG, seed=seed))
    assert engine.stats().failed == 1
    assert engine.is_running


def test_cancel_is_told_and_nothing_follows(make):
    engine = make(FakeModel(step_s=0.005))
    stream = engine.stream(LONG)
    next(stream)
    assert engine.cancel(stream.request_id)
    with pytest.raises(RequestCancelled):
        stream.read()
    assert engine.wait(20)
    assert not engine.cancel(stream.request_id)
    assert engine.stats().cancelled == 1
    assert engine.say("one two").duration_s > 0


@pytest.mark.parametrize("leave", ["close", "break", "drop", "with"])
def test_leaving_a_stream_cancels_its_request(make, leave):
    engine = make(FakeModel(step_s=0.005))
    stream = engine.stream(LONG)
    if leave == "with":
        with stream:
            next(stream)
    else:
        for _ in stream:
            break
    if leave == "close":
        stream.close()
        assert list(stream) == []
    del stream
    gc.collect()
    assert engine.wait(20)
    assert engine.stats().cancelled == 1


def test_an_interrupt_cancels_what_is_being_said(make):
    engine = make(FakeModel(step_s=0.005))

    def interrupt(chunk: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.say(LONG, on_chunk=interrupt)
    assert engine.wait(20)
    assert engine.stats().cancelled == 1
    assert engine.is_running


def test_async_streams_share_a_loop(make):
    engine = make()

    async def both() -> list[np.ndarray]:
        async def read(seed: int) -> np.ndarray:
            return np.concatenate([c.pcm async for c in engine.astream(TEXT, seed=seed)])

        return await asyncio.gather(*(read(seed) for seed in range(4)))

    for seed, pcm in enumerate(asyncio.run(both())):
        assert np.array_equal(pcm, expected_pcm(TEXT, seed=seed))


def test_async_text_and_whole_utterance(make):
    engine = make()

    async def pieces():
        yield "one "
        yield "two"

    audio = asyncio.run(engine.asay(pieces()))
    assert np.array_equal(audio.pcm, expected_pcm("one two"))


def test_cancelling_a_task_cancels_its_request(make):
    engine = make(FakeModel(step_s=0.005))

    async def main() -> None:
        async def listen() -> None:
            async for _ in engine.astream(LONG):
                started.set()

        started = asyncio.Event()
        task = asyncio.create_task(listen())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(engine.await_idle(), 20)

    asyncio.run(main())
    assert engine.stats().cancelled == 1


def test_a_dead_event_loop_ends_only_its_own_request(make):
    engine = make(FakeModel(step_s=0.005))
    loop = asyncio.new_event_loop()
    stream = engine.astream(LONG)
    loop.run_until_complete(anext(stream))
    loop.close()
    other = engine.say(TEXT)
    assert np.array_equal(other.pcm, expected_pcm(TEXT))
    assert engine.wait(20)
    assert engine.stats().cancelled == 1
    stream.cancel()


def test_settings_change_while_speaking(make):
    engine = make(FakeModel(step_s=0.002))
    stream = engine.stream(LONG)
    next(stream)
    engine.set(urgency_margin_s=0.3, background_batch=2, sm_split="none")
    assert engine.settings.background_batch == 2
    with pytest.raises(InvalidSetting, match="urgent_batch is fixed at start"):
        engine.set(urgent_batch=4)
    with pytest.raises(InvalidSetting, match="sm_split: 7/9 is not prepared"):
        engine.set(sm_split="7/9")
    assert np.array_equal(stream.read().pcm, expected_pcm(LONG)[-len(stream.audio().pcm) :])
    changed = {r.name for r in engine.trace if isinstance(r, SettingChange)}
    assert changed == {"urgency_margin_s", "background_batch", "sm_split"}


def test_the_trace_tells_the_request_and_its_chunks(make):
    engine = make()
    stream = engine.stream(TEXT)
    stream.read()
    records = engine.trace.records()
    states = [r.state for r in records if isinstance(r, RequestChange)]
    assert states[0] is RequestState.WAITING
    assert states[-1] is RequestState.DONE
    chunks = [r for r in records if isinstance(r, ChunkLife)]
    assert sum(r.num_frames for r in chunks) * FRAME_SAMPLES == len(stream.audio().pcm)
    assert {r.kind for r in records if isinstance(r, LaneSpan)} == {"prefill", "decode", "codec"}


def test_audio_saves_shows_and_describes_itself(make, tmp_path):
    audio = make().say(TEXT)
    with wave.open(str(audio.save(tmp_path / "x.wav"))) as file:
        assert file.getframerate() == SAMPLE_RATE_HZ
        assert file.getnframes() == len(audio.pcm)
    assert "<audio" in audio._repr_html_()
    assert "TTFA" in repr(audio)
    assert audio.audible_ttfa_s == pytest.approx(audio.ttfa_s, abs=1e-6)


def test_load_adds_requests_and_stops(make):
    engine = make()
    engine.load("seedtts", rate_rps=200.0)
    wait_for(lambda: engine.stats().done >= 5)
    engine.load("seedtts", rate_rps=50.0)
    engine.load(rate_rps=0)
    assert engine.wait(20)
    stats = engine.stats()
    assert stats.waiting == stats.running == stats.draining == 0
    with pytest.raises(InvalidInput, match="no workload"):
        engine.load("podcasts", rate_rps=1.0)
    with pytest.raises(InvalidInput, match="-1"):
        engine.load(rate_rps=-1)


def test_another_load_leaves_what_has_arrived_being_served_and_is_recorded(make):
    engine = make()
    engine.load("seedtts", rate_rps=200.0)
    wait_for(lambda: engine.stats().running >= 2)
    engine.load("words:4@regular", rate_rps=100.0)
    done = engine.stats().done
    wait_for(lambda: engine.stats().done >= done + 10)
    assert engine.stats().cancelled == 0
    assert (engine.stats().workload, engine.stats().rate_rps) == ("words:4@regular", 100.0)
    engine.load(rate_rps=0)
    assert engine.wait(20)
    changes = [(r.old, r.new) for r in engine.trace if isinstance(r, SettingChange)]
    names = ["none", "seedtts 200/s", "words:4@regular 100/s", "none"]
    assert changes == list(pairwise(names))


def test_a_stopped_engine_says_so(make):
    engine = make()
    engine.stop()
    with pytest.raises(EngineStopped, match="start"):
        engine.say(TEXT)
    with pytest.raises(EngineStopped):
        engine.set(background_batch=2)
