"""The whole engine with the bundled model on the CPU."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from waiting import assert_no_threads, voxserve_threads

from voxserve.core.request import FinishReason
from voxserve.engine.audio import audible_ttfa_s
from voxserve.engine.engine import Engine

TOLERANCE = 4  # of int16: a little more than 1e-4 of full scale
TEXTS = (
    "The kettle is boiling.",
    "A small dog barked twice.",
    "She wrote a letter to her brother.",
    "Rain fell softly on the tin roof.",
    "We will meet at noon, by the old bridge.",
    "Nobody had opened that door for years.",
)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine("vox-tiny", "cpu", name="spoken") as engine:
        yield engine
    assert_no_threads()


def assert_same(first: np.ndarray, second: np.ndarray) -> None:
    assert len(first) == len(second)
    assert np.abs(first.astype(np.int32) - second.astype(np.int32)).max() <= TOLERANCE


def test_streamed_equals_whole_alone_and_in_a_batch(engine):
    alone = [engine.say(text, seed=seed) for seed, text in enumerate(TEXTS[:4])]
    assert all(audio.finish_reason is FinishReason.END for audio in alone)
    streams = [engine.stream(text, seed=seed) for seed, text in enumerate(TEXTS[:4])]
    for audio, stream in zip(alone, streams, strict=True):
        assert_same(audio.pcm, stream.read().pcm)
    assert len({len(audio.pcm) for audio in alone}) > 1


def test_settings_do_not_change_what_is_said(engine):
    before = engine.settings
    expected = engine.say(TEXTS[0], seed=9).pcm
    engine.set(chunk_ramp=(3, 5), lane_mode="time_sharing", sm_split="none")
    try:
        assert_same(expected, engine.stream(TEXTS[0], seed=9).read().pcm)
    finally:
        engine.set(
            chunk_ramp=before.chunk_ramp, lane_mode=before.lane_mode, sm_split=before.sm_split
        )


def test_sound_starts_within_twenty_milliseconds_of_the_audio(engine):
    audio = engine.stream(TEXTS[1], seed=1).read()
    place_s = audible_ttfa_s(audio.chunks, audio.sample_rate_hz, audio.arrival_s) - audio.ttfa_s
    assert 0 <= place_s <= 0.021


def test_a_long_text_is_one_stream(engine):
    audio = engine.say(" ".join(TEXTS), seed=4)
    assert audio.finish_reason is FinishReason.END
    assert 8 < audio.duration_s < 25


def test_two_hundred_random_cancels_leave_nothing(engine):
    engine.say(TEXTS[0])
    threads, tensors = sorted(voxserve_threads()), live_tensors()
    rng = random.Random(11)
    alive = []
    for seed in range(200):
        alive.append(engine.stream(rng.choice(TEXTS), seed=seed))
        time.sleep(rng.choice((0.0, 0.0, 0.0, 0.02)))
        if len(alive) > 8:
            alive.pop(rng.randrange(8)).cancel()
    for stream in alive:
        stream.cancel()
    del alive, stream
    assert engine.wait(30)
    assert engine._service._scheduler.num_free_slots == engine.prepared.num_slots
    assert not engine._service._executor._slots
    assert not engine._service._requests._served
    assert sorted(voxserve_threads()) == threads
    assert live_tensors() == tensors
    assert engine.say(TEXTS[0]).finish_reason is FinishReason.END


def live_tensors() -> int:
    gc.collect()
    return sum(isinstance(item, torch.Tensor) for item in gc.get_objects())


def test_a_process_that_forgets_its_engine_ends_quietly():
    code = (
        "import voxserve; engine = voxserve.Engine();"
        "stream = engine.stream('A long text that is never read to its end.'); next(stream)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
