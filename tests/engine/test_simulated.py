"""The simulated GPU behind the public engine: speech delivered when the simulation says so."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace

import numpy as np
import pytest
from fake_model import FRAME_SAMPLES, SAMPLE_RATE_HZ, FakeModel
from sim_profiles import round_profile
from waiting import assert_no_threads, voxserve_threads, wait_for

from voxserve.core import profile as profiles
from voxserve.core.errors import DeviceUnavailable, EngineStopped, InvalidInput
from voxserve.core.request import FinishReason
from voxserve.engine.build import resolve_device
from voxserve.engine.engine import Engine
from voxserve.models import registry

FRAME_S = FRAME_SAMPLES / SAMPLE_RATE_HZ
TEXT = "one two three four five six seven eight."


def write(path, speed: float = 0.05, **changes) -> str:
    """A profile of the fake model's frames, `speed` times as slow as the round one."""
    profile = round_profile()
    times = tuple(replace(time, seconds=speed * time.seconds) for time in profile.times)
    profiles.save(replace(profile, frame_s=FRAME_S, times=times, **changes), path)
    return f"sim:{path}"


@pytest.fixture
def engine(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "load", lambda *_: FakeModel())
    with Engine(device=write(tmp_path / "p.json"), ttfa_target_s=0.5) as engine:
        yield engine
    assert_no_threads()


def test_the_model_speaks_and_the_simulation_delivers(engine):
    audio = engine.say(TEXT, listener=True)
    spoken = Engine(name="plain", device="cpu")
    try:
        assert np.array_equal(audio.pcm, spoken.say(TEXT).pcm)
    finally:
        spoken.stop()
    assert len(audio.chunks) > 1
    assert audio.ttfa_s > 10 * 0.05 * 0.010  # ten simulated steps before the first chunk
    assert any("delivered as simulated" in note for note in audio.notes)


def test_a_text_is_spoken_once(engine):
    first, second = (engine.say(TEXT, listener=True) for _ in range(2))
    assert first.notes == second.notes
    assert np.array_equal(first.pcm, second.pcm)


def test_texts_that_wait_to_be_spoken_end_with_the_engine(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "load", lambda *_: FakeModel(step_s=0.05))
    engine = Engine(device=write(tmp_path / "p.json"), name="sim")
    told: list[str] = []

    def say(seed: int) -> None:
        with pytest.raises(EngineStopped) as error:
            engine.say(TEXT * 20, seed=seed)
        told.append(str(error.value))

    readers = [threading.Thread(target=say, args=(seed,)) for seed in range(3)]
    for reader in readers:
        reader.start()
    wait_for(lambda: "voxserve-sim-voice-engine" in voxserve_threads())
    engine.stop()
    for reader in readers:
        reader.join(20.0)
    assert set(told) == {"engine 'sim' was stopped; call start() or make a new Engine"}
    assert_no_threads()


def test_texts_end_as_the_model_ended_them(engine):
    assert engine.say(TEXT, max_frames=100).finish_reason is FinishReason.END
    assert engine.say(TEXT, max_frames=5).finish_reason is FinishReason.LENGTH


def test_a_cancelled_task_stops_speaking_ahead(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "load", lambda *_: FakeModel(step_s=0.05))

    async def leave(engine: Engine) -> None:
        first, second = (asyncio.create_task(engine.asay(TEXT * 50, seed=i)) for i in range(2))
        while "voxserve-sim-voice-engine" not in voxserve_threads():
            await asyncio.sleep(0.01)
        first.cancel()
        second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)

    with Engine(device=write(tmp_path / "p.json"), name="sim") as engine:
        asyncio.run(leave(engine))
        voice = engine._intake.model._intake.service
        assert voice.wait_idle(5.0), "50 sentences take much longer"
        assert len(engine.say("one two").pcm)


def test_a_stream_that_was_left_stops_nothing_else_in_its_task(engine):
    async def leave_and_say() -> float:
        async with engine.astream(TEXT) as stream:
            await anext(stream)
        return engine.say("one two").duration_s

    assert asyncio.run(leave_and_say()) > 0.0


def test_a_stall_of_the_simulation_is_heard(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "load", lambda *_: FakeModel())
    device = write(tmp_path / "slow.json", speed=1.3 * FRAME_S / 0.010)  # slower than speech
    with Engine(device=device, chunk_ramp=(4,)) as engine:
        audio = engine.say("one two three four.", listener=True)
    assert audio.stalls > 0
    assert audio.stall_s > 0.01


def test_background_load_is_silent_and_simulated(engine):
    engine.load("libritts", 200.0)
    before = engine.stats()
    while engine.stats().done < 3:
        assert engine.stats().now_s - before.now_s < 20.0, "no request of the load ended"
        engine.wait(0.05)
    engine.load("libritts", 0.0)
    assert engine.wait(20.0)
    assert engine.stats().failed == 0


def test_every_split_can_be_chosen_and_one_outside_the_profile_is_told(engine, caplog):
    assert len(engine.prepared.splits) == 16
    engine.say(TEXT)
    assert not caplog.records
    assert str(engine.set(sm_split="124/8").sm_split) == "124/8"
    assert engine.say(TEXT).duration_s > 0
    assert any("outside the profile" in record.message for record in caplog.records)


def test_a_profile_of_other_frames_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "load", lambda *_: FakeModel())
    path = tmp_path / "other.json"
    profiles.save(round_profile(), path)
    with pytest.raises(DeviceUnavailable, match="80 ms frames"):
        Engine(device=f"sim:{path}")


def test_names(tmp_path):
    assert resolve_device("sim:h200") == "sim:h200-qwen3-tts-1.7b"
    assert resolve_device(f"sim:{tmp_path}/A.json") == f"sim:{tmp_path}/A.json"
    with pytest.raises(InvalidInput, match="no profile"):
        resolve_device("sim:b300")
    (tmp_path / "bad.json").write_text(json.dumps({"format": "other"}))
    with pytest.raises(InvalidInput, match="format"):
        Engine(device=f"sim:{tmp_path}/bad.json")


def test_chunks_under_way_are_shown_and_an_idle_engine_shows_none(engine) -> None:
    stream = engine.stream(TEXT)
    wait_for(lambda: len(engine.live_chunks()) == 1)
    live = engine.live_chunks()
    assert live.request_id.tolist() == [stream.request_id]
    assert sum(1 for _ in stream) > 1
    wait_for(lambda: len(engine.live_chunks()) == 0)
