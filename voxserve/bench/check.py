"""`voxserve check`: the figures this project promises, measured on the machine at hand."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

import numpy as np

from voxserve.bench import machine, wer
from voxserve.bench.decision import measure_decisions
from voxserve.bench.streams import Streams, first_sounds, most_streams, speeds
from voxserve.bench.tables import Figure, Results
from voxserve.bench.wer import WordErrorRate
from voxserve.core.errors import DeviceUnavailable
from voxserve.core.playback import STALL_LIMIT_S
from voxserve.engine.audio import Audio
from voxserve.engine.engine import Engine

Tell = Callable[[str], None]
PARTS = ("start", "decision", "ttfa", "speed", "streams", "wer")
STREAM_LEVELS = (6, 9, 12, 16, 20)
STREAM_SECONDS = 60.0
# Percent by kind of sentence: must, aim.
_WER_BOUNDS = {"normal": (3, 2), "number": (6, 4), "long": (4, 2.5), "short": (8, 3)}
_STREAMED_KINDS, _STREAMED_BOUNDS = ("normal", "long"), (6, 4)
_WAITING = 16  # prompts without a slot, beside the running requests
_DECISION_BOUNDS_US = {256: (100, 40), 1024: (150, 60)}
_START = """
import json, time
begin = time.perf_counter()
import torch
torch_s = time.perf_counter() - begin
import voxserve
begin = time.perf_counter()
engine = voxserve.Engine("vox-tiny", "cpu", name="check-start")
start_s = time.perf_counter() - begin
audio = engine.say("Hello there.")
first_s = time.perf_counter() - begin
engine.stop()
print(json.dumps([torch_s, start_s, first_s]))
"""


def check(
    parts: Sequence[str] = PARTS,
    *,
    stream_seconds: float = STREAM_SECONDS,
    command: str = "voxserve check",
    tell: Tell = lambda _: None,
) -> Results:
    """Measures the parts asked for with vox-tiny on the CPU.

    Args:
        parts: Some of `PARTS`.
        stream_seconds: How long each number of concurrent streams is tried.
        command: Told in the result.
        tell: Called with a line before each part.

    Returns:
        A results file's content, figures in the order of `PARTS`.
    """
    rows: list[Figure] = []
    for part in (part for part in ("start", "decision") if part in parts):
        tell(f"measuring: {_TOLD[part]}")
        rows += start_figures() if part == "start" else decision_figures()
    if set(parts) - {"start", "decision"}:
        with Engine("vox-tiny", "cpu", name="check") as engine:
            rows += _speech_figures(engine, parts, stream_seconds, tell)
    return Results(
        device=machine.cpu_name(),
        date=datetime.now(UTC).date().isoformat(),
        versions=machine.versions("torch", "numpy", "faster-whisper"),
        settings={"model": "vox-tiny", **machine.revision()},
        command=command,
        rows=tuple(rows),
    )


_TOLD = {
    "start": "engine start, in fresh processes",
    "decision": "the scheduler's own time per decision",
    "ttfa": "time to first audio",
    "speed": "speed of one stream",
    "streams": "concurrent streams, about a minute for each number",
    "wer": "word error rate, a few minutes",
}


def _speech_figures(
    engine: Engine, parts: Sequence[str], stream_seconds: float, tell: Tell
) -> list[Figure]:
    measure: dict[str, Callable[[], list[Figure]]] = {
        "ttfa": lambda: ttfa_figures(first_sounds(engine)),
        "speed": lambda: speed_figures(speeds(engine)),
        "streams": lambda: stream_figures(most_streams(engine, STREAM_LEVELS, stream_seconds)),
        "wer": lambda: wer_figures(engine),
    }
    rows: list[Figure] = []
    for part, figures in measure.items():
        if part in parts:
            tell(f"measuring: {_TOLD[part]}")
            rows += figures()
    return rows


def start_figures(repeats: int = 3) -> list[Figure]:
    """Engine start in fresh processes: the median of a few."""
    runs: list[list[float]] = []
    for _ in range(repeats):
        done = subprocess.run(
            [sys.executable, "-c", _START], capture_output=True, text=True, check=True
        )
        runs.append(json.loads(done.stdout))
    torch_s, start_s, first_s = (statistics.median(column) for column in zip(*runs, strict=True))
    return [
        Figure("engine start (load vox-tiny, torch imported)", round(start_s, 3), "s", 3, 1),
        Figure("import torch before it", round(torch_s, 3), "s"),
        Figure("engine start to the end of a first short say", round(first_s, 3), "s"),
    ]


def decision_figures() -> list[Figure]:
    """Mean and 99th percentile of one scheduler decision, and the mean while prompts wait."""
    rows: list[Figure] = []
    for running, (must, aim) in _DECISION_BOUNDS_US.items():
        times = measure_decisions(running)
        name = f"one scheduler decision, {running:,} running requests"
        rows.append(Figure(f"{name}, mean", round(times.mean_us, 1), "µs", must, aim))
        rows.append(Figure(f"{name}, 99th percentile", round(times.microseconds(99), 1), "µs"))
        times = measure_decisions(running, num_waiting=_WAITING)
        rows.append(Figure(f"{name}, {_WAITING} waiting, mean", round(times.mean_us, 1), "µs"))
    return rows


def ttfa_figures(utterances: Sequence[Audio]) -> list[Figure]:
    """First bytes and first audible sample, one request at a time."""
    heard = [audio for audio in utterances if audio.audible_ttfa_s is not None]
    audible_ms = np.array([audio.audible_ttfa_s for audio in heard]) * 1000
    first_ms = np.array([audio.ttfa_s for audio in heard]) * 1000
    stalled = sum(audio.stall_s >= STALL_LIMIT_S for audio in utterances)
    name = f"audible TTFA, one request, warm ({len(utterances)} requests)"
    return [
        Figure(f"{name}, median", round(float(np.median(audible_ms)), 1), "ms", 400, 150),
        Figure(f"{name}, 90th percentile", round(float(np.percentile(audible_ms, 90)), 1), "ms"),
        Figure("TTFA of the same, first bytes, median", round(float(np.median(first_ms)), 1), "ms"),
        Figure("stalled utterances among them", stalled, "", 0),
    ]


def speed_figures(measured: Sequence[float]) -> list[Figure]:
    """Audio seconds per second of one stream."""
    name = f"speed of one stream, nobody listening (median of {len(measured)})"
    return [Figure(name, round(statistics.median(measured), 2), "x real time", 5, 8, "higher")]


def stream_figures(tried: Sequence[Streams]) -> list[Figure]:
    """The most listeners without a stall, and how the first number too many looked."""
    clean = [streams for streams in tried if streams.is_clean]
    most = clean[-1].count if clean else 0
    rows = [Figure("concurrent streams without a stall", most, "streams", 6, 12, "higher")]
    for streams in tried:
        heard = [audio.audible_ttfa_s for audio in streams.utterances]
        audible_ms = [ttfa_s * 1000 for ttfa_s in heard if ttfa_s is not None]
        name = f"{streams.count} streams"
        rows.append(
            Figure(f"{name}: stalled of {len(streams.utterances)}", streams.num_stalled, "")
        )
        if audible_ms:
            p90 = round(float(np.percentile(audible_ms, 90)), 1)
            rows.append(Figure(f"{name}: audible TTFA, 90th percentile", p90, "ms"))
    return rows


def wer_figures(engine: Engine) -> list[Figure]:
    """Word error rate of the default voice by kind of sentence, with 95 % intervals.

    Raises:
        DeviceUnavailable: The recogniser's packages are not installed.
    """
    try:
        recogniser = wer.Recogniser(machine.num_cores())
    except ImportError as error:
        raise DeviceUnavailable(
            f'the recogniser is not installed ({error.name}); try: pip install "voxserve[test]"'
        ) from error
    texts = wer.sentences()
    whole = wer.read_aloud(
        lambda text, seed: engine.say(text, seed=seed).pcm,
        engine.sample_rate_hz,
        texts,
        recogniser,
    )
    # Codes follow the text, not when its words came: they need not be held back here.
    streamed = wer.read_aloud(
        lambda text, seed: engine.stream(_word_by_word(text), seed=seed, listener=False).read().pcm,
        engine.sample_rate_hz,
        [sentence for sentence in texts if sentence.kind in _STREAMED_KINDS],
        recogniser,
    )
    figures = [
        _wer_figure(rate, rate.kind, _WER_BOUNDS.get(rate.kind, (None, None)))
        for rate in wer.rates(whole)
    ]
    kinds = f"{' and '.join(_STREAMED_KINDS)} streamed word by word"
    return [*figures, _wer_figure(wer.rates(streamed)[-1], kinds, _STREAMED_BOUNDS)]


def _word_by_word(text: str) -> Iterator[str]:
    words = text.split(" ")
    yield from (f"{word} " for word in words[:-1])
    yield words[-1]


def _wer_figure(
    rate: WordErrorRate, kind: str, bounds: tuple[float | None, float | None]
) -> Figure:
    interval = f"95 % interval {rate.low * 100:.1f} to {rate.high * 100:.1f}"
    name = f"word error rate, {kind} ({rate.words} words, {interval})"
    return Figure(name, round(rate.rate * 100, 2), "%", *bounds)
