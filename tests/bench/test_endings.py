"""Readings that end too late, too early or never are told apart from good ones."""

from __future__ import annotations

import numpy as np
import pytest

from voxserve.bench.endings import fault_of, read_all, texts
from voxserve.core.chunk import ChunkRef
from voxserve.core.request import FinishReason
from voxserve.engine.audio import Audio
from voxserve.engine.engine import Engine
from voxserve.engine.mailbox import DeliveredChunk

RATE_HZ = 24_000


def audio(loud_s: float, silent_s: float = 0.0, reason: FinishReason = FinishReason.END) -> Audio:
    loud = np.full(int(loud_s * RATE_HZ), 3000, np.int16)
    silent = np.zeros(int(silent_s * RATE_HZ), np.int16)
    pcm = np.concatenate([loud, silent])
    chunk = DeliveredChunk(ChunkRef(0, 0, 0, 0, 50, True), pcm, 0.1, 0.5, 0.0)
    return Audio([chunk], RATE_HZ, request_id=0, arrival_s=0.0, finish_reason=reason)


@pytest.mark.parametrize(
    ("reading", "fault"),
    [
        (audio(4.0), ""),
        (audio(4.0, reason=FinishReason.LENGTH), "ended by length"),
        (audio(9.0), "too long"),
        (audio(1.0), "too short"),
        (audio(4.0, 1.5), "1.5 s of silence at the end"),
        (audio(4.0, 0.5), ""),
    ],
)
def test_what_is_wrong_with_an_ending(reading: Audio, fault: str):
    assert fault_of(reading, 4.0) == fault


def test_the_texts_are_many_kinds_and_the_same_every_time():
    chosen = texts(60)
    assert len(chosen) == 60
    assert chosen == texts(60)
    lengths = [len(text.split()) for text in chosen]
    assert min(lengths) <= 2
    assert max(lengths) >= 20


def test_the_bundled_voice_ends_where_its_texts_do():
    chosen = texts(1000)[330:500:85] + texts(1000)[600:1000:200]
    with Engine("vox-tiny") as engine:
        found = read_all(engine, chosen)
    assert [ending.fault for ending in found] == [""] * len(chosen)
