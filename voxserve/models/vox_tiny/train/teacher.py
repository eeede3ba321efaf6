"""The voice that speaks the training data: PyPI hibari-tts, driven so that it tells its timing.

Its graph predicts how long each phoneme sounds; that is made an output, so every character of a
text gets an exact time and no aligner is needed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxserve.models.vox_tiny.train.encoder import (
    FRAME_SAMPLES,
    HOP_SAMPLES,
    SAMPLE_RATE_HZ,
    VOICED_HZ,
)

MOST_PHONEMES = 400  # in one pass of the teacher
MARKS = frozenset(",.!?;:")

# The normaliser writes the letter A "ay", which the teacher's lexicon takes for "aye".
_LETTER_A, _SPOKEN_A = re.compile(r"\bay\b"), "[ay](/\u02c8A/)"

_TIMES_OUTPUT = "/CumSum_output_0"
_INT64 = 7  # ONNX's number of the type
_TIME_SAMPLES = SAMPLE_RATE_HZ // 40
_PITCH_SAMPLES = 300  # the teacher's pitch is at 80 Hz
# Kept before the first phoneme's time (sound begins up to 0.1 s earlier) and after the last letter.
_LEAD_SAMPLES = 3600
_TAIL_SAMPLES = 6720


@dataclass(frozen=True, slots=True, eq=False)
class Speech:
    """One spoken text.

    Attributes:
        samples: [frames * FRAME_SAMPLES] float32.
        pitch: [frames * BLOCKS_PER_FRAME] float32 Hz, 0 where unvoiced.
        ends: [characters] float32, when each character of the text ends, in blocks of 10 ms.
    """

    samples: NDArray[np.float32]
    pitch: NDArray[np.float32]
    ends: NDArray[np.float32]


class Teacher:
    """The teacher's text-to-phoneme rules and its acoustic model, on one thread."""

    def __init__(self) -> None:
        """Loads both.

        Raises:
            ImportError: The extra `train` is not installed.
        """
        runtime: Any = import_module("onnxruntime")
        hibari: Any = import_module("hibari")
        self._dsp: Any = import_module("hibari.dsp")
        self._voice: Any = hibari.Hibari()
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        graph = Path(self._voice.model_path).read_bytes() + _time_output()
        self._session: Any = runtime.InferenceSession(
            graph, options, providers=["CPUExecutionProvider"]
        )

    def phonemes(self, text: str) -> str:
        """What the teacher would read for a text, in its own alphabet."""
        known = self._voice.vocab
        text = _LETTER_A.sub(_SPOKEN_A, text)
        return "".join(c for c in " ".join(self._voice.phonemize(text)) if c in known)

    def speak(self, text: str, phonemes: str, seed: int) -> Speech | None:
        """Speaks a text.

        Args:
            text: As it will stand in a prompt; words separated by single spaces.
            phonemes: Of the same words.
            seed: Of the noise in the voice.

        Returns:
            The speech, cut to a short silence before and after, or None where the words of text
            and phonemes do not correspond, so that no character has a time.
        """
        spans = letter_spans(text, phonemes)
        if spans is None:
            return None
        ids = [0, *(self._voice.vocab[c] for c in phonemes), 0]
        inputs = {"ids": np.array([ids], np.int64), "speed": np.ones(1, np.float32)}
        *parts, pitch, times = (o[0] if o.ndim > 1 else o for o in self._session.run(None, inputs))
        rng = np.random.default_rng(seed)
        samples = self._dsp.synth(*parts, pitch, rng)
        # Phoneme p lies between ends[p] and ends[p + 1] (the first id is padding).
        ends = times.reshape(-1).astype(np.float64) * _TIME_SAMPLES
        starts_at = max(0, int(ends[0]) - _LEAD_SAMPLES)
        characters = character_ends(text, spans, ends)
        last_letter = max(i for i, c in enumerate(text) if c not in MARKS)
        stops_at = int(characters[last_letter]) + _TAIL_SAMPLES
        frames = -(-(stops_at - starts_at) // FRAME_SAMPLES)
        window = starts_at, starts_at + frames * FRAME_SAMPLES
        return Speech(
            _cut(samples.astype(np.float32), *window),
            _cut(_sampled_pitch(pitch), *window)[HOP_SAMPLES - 1 :: HOP_SAMPLES],
            ((characters - starts_at) / HOP_SAMPLES).astype(np.float32),
        )


def letter_spans(text: str, phonemes: str) -> list[tuple[int, int, int]] | None:
    """For every word: its first phoneme, the end of its letters' phonemes, and its end.

    Returns None where the words do not correspond one to one.
    """
    written, spoken = text.split(" "), phonemes.split(" ")
    if len(written) != len(spoken) or not all(written) or not all(spoken):
        return None
    spans, place = [], 0
    for word in spoken:
        letters = len(word.rstrip("".join(MARKS)))
        if letters == 0:
            return None
        spans.append((place, place + letters, place + len(word)))
        place += len(word) + 1
    return spans


def character_ends(
    text: str, spans: list[tuple[int, int, int]], ends: NDArray[np.float64]
) -> NDArray[np.float64]:
    """When each character ends: letters share their word's time equally, marks the pause's.

    Args:
        text: Words separated by single spaces.
        spans: From `letter_spans`.
        ends: [phonemes + 2] end of each id, padding first; in any unit.

    Returns:
        [characters], in the same unit; a space ends where the next word begins.
    """
    out: list[float] = []
    for word, (first, letters_end, end) in zip(text.split(" "), spans, strict=True):
        if out:
            out.append(float(ends[first]))
        letters = len(word.rstrip("".join(MARKS))) or len(word)
        out += np.linspace(ends[first], ends[letters_end], letters + 1)[1:].tolist()
        marks = len(word) - letters
        out += np.linspace(ends[letters_end], ends[end], marks + 1)[1:].tolist()
    return np.array(out)


def _sampled_pitch(pitch: NDArray[Any]) -> NDArray[np.float32]:
    """The teacher's pitch at every sample, interpolated as its own pulse train does."""
    centres = (np.arange(len(pitch)) + 0.5) * _PITCH_SAMPLES - 0.5
    curve = np.interp(np.arange(len(pitch) * _PITCH_SAMPLES), centres, pitch)
    return np.where(curve > VOICED_HZ, curve, 0.0).astype(np.float32)


def _cut(signal: NDArray[np.float32], start: int, stop: int) -> NDArray[np.float32]:
    part = signal[start:stop]
    return np.pad(part, (0, stop - start - len(part)))


def _time_output() -> bytes:
    """ONNX bytes that add the phonemes' end times to a graph's outputs.

    Protocol buffers merge a message that is given twice, so a graph with only this output,
    appended to the file, adds it: no ONNX library is needed.
    """

    def message(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2, len(content)]) + content

    kind = message(2, message(1, bytes([1 << 3, _INT64])))
    return message(7, message(12, message(1, _TIMES_OUTPUT.encode()) + kind))
