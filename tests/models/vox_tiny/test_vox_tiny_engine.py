"""The whole engine with a small model: text that comes while it speaks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import numpy as np
import pytest
from models.vox_tiny import streaming
from waiting import assert_no_threads

from voxserve.core.errors import VoxserveError
from voxserve.core.request import FinishReason
from voxserve.engine.engine import Engine

TEXT = "It rains, and nobody knows why. We will meet at 10:30, by the old bridge."
TOLERANCE = 4  # of int16: a little more than 1e-4 of full scale


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    snapshot = streaming.make_snapshot(tmp_path_factory.mktemp("second") / "snapshot")
    streaming.load_packed(snapshot)
    weights = str(snapshot.with_suffix(".safetensors"))
    with Engine("vox-tiny", "cpu", weights=weights, name="words") as engine:
        yield engine
    assert_no_threads()


def _assert_same(first: np.ndarray, second: np.ndarray) -> None:
    assert len(first) == len(second)
    assert np.abs(first.astype(np.int32) - second.astype(np.int32)).max() <= TOLERANCE


def _slowly(text: str) -> Iterator[str]:
    for word in text.split(" "):
        yield f"{word} "
        time.sleep(0.02)


def test_a_text_sounds_the_same_however_it_comes(engine: Engine) -> None:
    once = engine.stream(iter([TEXT]), seed=3).read()
    assert once.duration_s > 1
    for parts in (iter(TEXT), _slowly(TEXT)):
        _assert_same(engine.stream(parts, seed=3).read().pcm, once.pcm)


def test_streams_side_by_side_sound_as_alone(engine: Engine) -> None:
    alone = [engine.stream(_slowly(TEXT), seed=seed).read() for seed in range(3)]
    crowd = [engine.stream(_slowly(TEXT), seed=seed) for seed in range(3)]
    whole = engine.say(TEXT, seed=1)
    for audio, stream in zip(alone, crowd, strict=True):
        _assert_same(stream.read().pcm, audio.pcm)
    _assert_same(engine.say(TEXT, seed=1).pcm, whole.pcm)


def test_a_stream_can_be_cancelled_while_it_waits_for_words(engine: Engine) -> None:
    def stuck() -> Iterator[str]:
        yield "It rains and nobody knows why the old "
        while not is_cancelled:
            time.sleep(0.01)
        yield "bridge."

    is_cancelled = False
    stream = engine.stream(stuck(), seed=1)
    next(stream)
    stream.cancel()
    is_cancelled = True
    assert engine.wait(10)
    assert engine._service._scheduler.num_free_slots == engine.prepared.num_slots
    assert engine.say(TEXT, seed=1).duration_s > 0.3


def test_a_text_of_one_word(engine: Engine) -> None:
    audio = engine.stream(iter(["Hel", "lo"]), seed=1).read()
    assert audio.finish_reason is not FinishReason.NO_AUDIO
    assert audio.duration_s > 0


@pytest.mark.parametrize("is_dropped", [True, False])
def test_a_text_is_read_no_further_than_its_request_lives(engine: Engine, is_dropped: bool) -> None:
    has_stopped = asyncio.Event()

    async def endless() -> AsyncIterator[str]:
        try:
            while True:
                yield "It rains and nobody knows why. "
                await asyncio.sleep(0.001)
        finally:
            has_stopped.set()

    async def main() -> None:
        stream = engine.astream(endless(), seed=1, max_frames=20)
        if is_dropped:
            await anext(stream)
            del stream
        else:
            await stream.read()
        await asyncio.wait_for(has_stopped.wait(), 20)

    asyncio.run(main())
    assert engine.wait(10)


@pytest.mark.parametrize("piece", ["word ", "x", " "])
def test_a_text_without_an_end_is_refused_where_whole_texts_are(engine: Engine, piece: str) -> None:
    def endless() -> Iterator[str]:
        while True:
            yield piece * 100

    with pytest.raises(VoxserveError, match="at most 20,000 are spoken in one request"):
        engine.stream(endless()).read()
