"""The whole engine on the CPU with the tiny checkpoint: files to audio, lanes, cancel, streams."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator

import numpy as np
import pytest
from models.qwen3_tts.qwen_support import CHECKPOINT
from waiting import assert_no_threads

from voxserve.core.errors import RequestCancelled, RequestFailed
from voxserve.core.events import RequestChange
from voxserve.core.request import FinishReason, RequestState
from voxserve.engine.engine import Engine

TEXT = "Hello there, this is a test."


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine("qwen3-tts-1.7b", "cpu", weights=str(CHECKPOINT), name="qwen-test") as made:
        yield made
    assert_no_threads()


def samples(audio: object) -> np.ndarray:
    return np.concatenate([chunk.pcm for chunk in audio.chunks])


def test_files_to_audio(engine: Engine) -> None:
    audio = engine.say(TEXT, voice="ryan", language="english", seed=3, max_frames=12)
    assert audio.sample_rate_hz == 24000
    assert audio.finish_reason in (FinishReason.END, FinishReason.LENGTH)
    assert 0 < len(samples(audio)) <= 12 * 1920
    assert np.abs(samples(audio)).max() > 1000


def test_a_request_sounds_alike_alone_and_in_a_crowd(engine: Engine) -> None:
    options = {"min_frames": 15, "max_frames": 15}
    alone = samples(engine.say(TEXT, seed=5, **options))
    crowd = [engine.stream(TEXT, seed=seed, **options) for seed in (5, 6, 7, 5)]
    heard = [samples(stream.read()) for stream in crowd]
    for same in (heard[0], heard[3]):
        assert len(same) == len(alone)
        assert np.abs(same.astype(int) - alone).max() <= 2, "other chunks, the same wave"
    assert not np.array_equal(heard[1], heard[2])


def test_cancelling_one_leaves_the_others(engine: Engine) -> None:
    kept = engine.stream(TEXT, seed=1, min_frames=30, max_frames=30)
    dropped = engine.stream(TEXT, seed=2, min_frames=90, max_frames=90)
    next(dropped)
    assert engine.cancel(dropped.request_id)
    with pytest.raises(RequestCancelled):
        dropped.read()
    assert len(samples(kept.read())) > 20 * 1920
    assert engine.wait(20)
    assert engine.stats().running == 0


def test_streamed_text_sounds_like_the_text_at_once(engine: Engine) -> None:
    """However the text is cut, the same tokens reach the same frames."""
    options = {"seed": 9, "min_frames": 20, "max_frames": 20}
    once = engine.stream(iter([TEXT]), **options).read()
    letters = engine.stream(iter(TEXT), **options).read()
    assert once.text == letters.text == TEXT
    difference = samples(once).astype(int) - samples(letters)
    assert len(samples(once)) > 10 * 1920
    assert np.abs(difference).max() <= 2


def test_missing_text_pauses_only_its_request(engine: Engine) -> None:
    more = threading.Event()

    def slowly() -> Iterator[str]:
        yield "Hello there, "
        more.wait(20)
        yield "this is a test."

    starved = engine.stream(slowly(), seed=4, min_frames=30, max_frames=30)
    other = engine.say(TEXT, seed=4, min_frames=30, max_frames=30)
    assert len(samples(other)) > 20 * 1920
    assert RequestState.STARVED in states(engine, starved.request_id)
    more.set()
    audio = starved.read()
    assert audio.finish_reason is FinishReason.LENGTH
    assert len(samples(audio)) > 20 * 1920
    assert audio.text == TEXT


def states(engine: Engine, request_id: int) -> set[RequestState]:
    return {
        record.state
        for record in engine.trace
        if isinstance(record, RequestChange) and record.request_id == request_id
    }


def test_a_text_that_breaks_off_fails_only_its_request(engine: Engine) -> None:
    def broken() -> Iterator[str]:
        yield "Hello there, "
        raise KeyError("the writer went away")

    with pytest.raises(RequestFailed, match="the writer went away"):
        engine.stream(broken(), max_frames=30).read()
    assert len(samples(engine.say(TEXT, max_frames=8, min_frames=8))) > 0


def test_text_from_an_event_loop(engine: Engine) -> None:
    async def pieces() -> AsyncIterator[str]:
        for piece in ("Hello ", "there, ", "this is a test."):
            await asyncio.sleep(0)
            yield piece

    options = {"seed": 9, "min_frames": 12, "max_frames": 12}
    audio = asyncio.run(engine.asay(pieces(), **options))
    plain = engine.say(iter([TEXT]), **options)
    assert audio.text == TEXT
    assert np.abs(samples(audio).astype(int) - samples(plain)).max() <= 2
