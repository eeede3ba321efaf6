"""Counting words that were understood wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from voxserve.bench import wer
from voxserve.core.errors import InvalidInput


class _Deaf:
    """Stands for the recogniser: hears the text that the 'samples' spell."""

    def words(self, text: str) -> list[str]:
        return text.lower().split()

    def hear(self, samples: np.ndarray, sample_rate_hz: int) -> str:
        assert sample_rate_hz == 24_000
        return bytes(samples.astype(np.uint8)).decode()


@pytest.mark.parametrize(
    ("expected", "heard", "errors"),
    [
        ("a b c", "a b c", 0),
        ("a b c", "a x c", 1),
        ("a b c", "a c", 1),
        ("a b c", "a b b c", 1),
        ("a b c", "", 3),
        ("", "a b", 2),
        ("a b c d", "b c d e", 2),
    ],
)
def test_word_errors(expected: str, heard: str, errors: int) -> None:
    assert wer.word_errors(expected.split(), heard.split()) == errors


def test_rates_per_kind_and_over_all() -> None:
    texts = [wer.Sentence("short", "No", "no"), wer.Sentence("long", "a b c d", "a b c d")]
    heard = {"No": "no", "a b c d": "a b d"}
    readings = wer.read_aloud(
        lambda text, seed: np.frombuffer(heard[text].encode(), np.uint8),
        24_000,
        texts,
        _Deaf(),  # type: ignore[arg-type]
        seeds=(0, 1),
    )
    short, long, everything = wer.rates(readings)
    assert (short.kind, short.rate, short.words) == ("short", 0.0, 2)
    assert (long.kind, long.rate, long.low, long.high) == ("long", 0.25, 0.25, 0.25)
    assert everything.rate == pytest.approx(2 / 10)
    assert everything.low <= everything.rate <= everything.high
    assert everything.sentences == 2


def test_bundled_sentences() -> None:
    kinds = [sentence.kind for sentence in wer.sentences()]
    assert set(kinds) == {"short", "number", "long", "normal"}
    assert len(kinds) == 80


def test_malformed_set(tmp_path: Path) -> None:
    path = tmp_path / "set.tsv"
    path.write_text("short\tYes\n")
    with pytest.raises(InvalidInput, match="line 1"):
        wer.sentences(path)
