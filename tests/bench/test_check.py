"""The figures of `voxserve check`: what counts as a clean number of streams, and its rows."""

from __future__ import annotations

import numpy as np
import pytest

from voxserve.bench import check, streams
from voxserve.bench.streams import Streams
from voxserve.bench.wer import WordErrorRate
from voxserve.core.chunk import ChunkRef
from voxserve.engine.audio import Audio
from voxserve.engine.mailbox import DeliveredChunk

RATE_HZ = 1000


def _heard(*, ttfa_s: float = 0.2, late_s: float = 0.0, seconds: float = 8.0) -> Audio:
    """Two chunks of loud audio; the second comes `late_s` after the first has run out."""
    half = np.full(round(seconds * RATE_HZ / 2), 9000, np.int16)
    first_s, second_s = ttfa_s, ttfa_s + seconds / 2 + late_s
    chunks = [
        DeliveredChunk(ChunkRef(0, 0, 0, 0, 50, False), half, first_s, 0.5, 0.0),
        DeliveredChunk(ChunkRef(0, 0, 1, 50, 50, True), half, second_s, second_s, late_s),
    ]
    return Audio(chunks, RATE_HZ, request_id=0, arrival_s=0.0)


@pytest.mark.parametrize(
    ("tried", "is_clean"),
    [
        (Streams(2, [_heard(), _heard(late_s=0.009)]), True),
        (Streams(2, [_heard(), _heard(late_s=0.011)]), False),
        (Streams(1, [_heard(seconds=7.9)]), False),
        (Streams(1, [_heard()], ["RequestFailed: no"]), False),
        (Streams(1), False),
    ],
)
def test_clean_is_everything_heard_long_enough_without_a_stall(tried, is_clean) -> None:
    assert tried.is_clean is is_clean


def test_numbers_of_streams_are_tried_until_one_is_not_clean(monkeypatch) -> None:
    results = {6: Streams(6, [_heard()]), 9: Streams(9, [_heard(late_s=0.5), _heard(ttfa_s=0.4)])}
    monkeypatch.setattr(streams, "listen_together", lambda engine, count, seconds: results[count])
    tried = streams.most_streams(None, (6, 9, 12), 1.0)  # type: ignore[arg-type]
    assert [item.count for item in tried] == [6, 9]
    rows = {row.figure: row for row in check.stream_figures(tried)}
    most = rows["concurrent streams without a stall"]
    assert (most.value, most.must, most.aim, most.verdict()) == (6, 6, 12, "must")
    assert rows["9 streams: stalled of 2"].value == 1
    assert rows["6 streams: audible TTFA, 90th percentile"].value == pytest.approx(200.0)


def test_no_clean_number_is_none() -> None:
    assert check.stream_figures([Streams(3)])[0].value == 0


def test_first_sounds_count_stalls_and_leave_out_silence() -> None:
    silent = Audio([], RATE_HZ, request_id=1, arrival_s=0.0)
    audible, p90, first, stalled = check.ttfa_figures(
        [_heard(ttfa_s=0.1), _heard(ttfa_s=0.3, late_s=0.02), silent]
    )
    assert "(3 requests)" in audible.figure
    assert (audible.value, audible.verdict()) == (200.0, "must")
    assert p90.value == pytest.approx(280.0)
    assert first.value == 200.0
    assert (stalled.value, stalled.verdict()) == (1, "missed")


def test_word_error_rates_are_judged_by_kind() -> None:
    rate = WordErrorRate("number", 0.05, 0.02, 0.09, 20, 300)
    figure = check._wer_figure(rate, "number", (6, 4))
    assert (figure.value, figure.must, figure.aim, figure.verdict()) == (5.0, 6, 4, "must")
    assert "95 % interval 2.0 to 9.0" in figure.figure
    every = WordErrorRate("all", 0.5, 0.4, 0.6, 20, 300)
    assert check._wer_figure(every, "all", (None, None)).verdict() == ""
