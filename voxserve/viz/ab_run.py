"""One side of an A/B: speaks texts under the settings in force and sums up what happened."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from voxserve.core.events import RequestChange
from voxserve.core.playback import STALL_LIMIT_S
from voxserve.core.protocols import AudioChunk, SpeechEngine
from voxserve.core.request import RequestState
from voxserve.sim.rerun import SoFar, so_far

IDLE_S = 30.0  # patience for what was spoken before
PROGRESS_S = 0.25  # between two reports
SAME = 4  # int16 steps: batches of other sizes round differently


@dataclass(frozen=True, slots=True)
class Spoken:
    """One text under one setting.

    Attributes:
        ttfa_s: Request to first samples; None without audio.
        stall_s: Pauses a listener would have had, in all.
        chunks: int16 [samples] each.
        gaps_s: Silence before each chunk as a listener has it: the wait for the first, then stalls.
    """

    ttfa_s: float | None
    stall_s: float
    chunks: tuple[NDArray[np.int16], ...]
    gaps_s: tuple[float, ...]

    @property
    def pcm(self) -> NDArray[np.int16]:
        """int16 [samples], without the waits."""
        return np.concatenate(self.chunks) if self.chunks else np.zeros(0, np.int16)

    def as_heard(self, rate_hz: int) -> tuple[NDArray[np.int16], list[tuple[int, int, float]]]:
        """int16 [samples] with the waits as silence, and its parts: (chunk, samples, stall)."""
        pieces: list[NDArray[np.int16]] = []
        parts: list[tuple[int, int, float]] = []
        for index, (gap_s, chunk) in enumerate(zip(self.gaps_s, self.chunks, strict=True)):
            silence = np.zeros(round(gap_s * rate_hz), np.int16)
            pieces += [silence, chunk]
            parts += [(-1, len(silence), 0.0)] if len(silence) else []
            parts.append((index, len(chunk), gap_s if index else 0.0))
        return np.concatenate(pieces) if pieces else np.zeros(0, np.int16), parts


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of one side; `value` is None where nothing happened."""

    name: str
    value: float | None
    unit: str
    digits: int = 0
    note: str = ""

    def worded(self) -> str:
        """Such as "142 ms"."""
        if self.value is None:
            return "–"
        return f"{self.value:.{self.digits}f} {self.unit}{self.note}".strip()

    def difference(self, other: Figure) -> str:
        """How much more `other` is, with its sign."""
        if self.value is None or other.value is None:
            return ""
        change = round(other.value - self.value, self.digits)
        unit = "points" if self.unit == "%" else self.unit
        return f"{change:+.{self.digits}f} {unit}".strip() if change else "="


@dataclass(frozen=True, slots=True)
class Background:
    """What is served beside the texts.

    Attributes:
        rate_rps: 0 for none; the times are of no meaning then.
        settle_s: How long it runs before anything counts.
        measure_s: How long it is measured before the texts come: queues build up slowly.
    """

    workload: str
    rate_rps: float
    settle_s: float
    measure_s: float


@dataclass(frozen=True, slots=True)
class Side:
    """What happened under one side's settings: the listened texts, and every request.

    Attributes:
        numbers: Of all requests since the load had settled; one that still waits counts as it
            stands, or starving most of them would look like serving the rest well.
    """

    spoken: tuple[Spoken, ...]
    numbers: SoFar

    @property
    def click(self) -> float:
        """The largest step between samples at chunk borders, relative to steps elsewhere."""
        return max((boundary_step(one.chunks) for one in self.spoken), default=0.0)

    def figures(self) -> list[Figure]:
        """The numbers that are compared."""
        ttfas = [1000 * one.ttfa_s for one in self.spoken if one.ttfa_s is not None]
        stalled = sum(one.stall_s >= STALL_LIMIT_S for one in self.spoken)
        share, p90_s = self.numbers.attainment, self.numbers.ttfa_p90_s
        return [
            Figure("first audio of your texts", max(ttfas, default=None), "ms"),
            Figure("stalled texts", stalled, "", note=f"of {len(self.spoken)}"),
            Figure("silence heard", sum(one.stall_s for one in self.spoken), "s", 2),
            Figure("all requests: TTFA p90", None if p90_s is None else 1000 * p90_s, "ms"),
            Figure("all requests: stalled", self.numbers.num_stalled, ""),
            Figure(
                "all requests: SLO attainment",
                None if share is None else 100 * share,
                "%",
                note=f" of {self.numbers.num_requests}",
            ),
        ]


def run_side(
    engine: SpeechEngine,
    texts: list[str],
    seed: int,
    background: Background,
    progress: Callable[[float], None] = lambda share: None,
) -> Side:
    """Ends what the engine serves, then serves the load, measures it and speaks all texts at once.

    A load that starts anew asks for the same texts at the same times. `progress` is told the share
    done, 0 to 1, of what comes before the texts.
    """
    engine.load(rate_rps=0.0)
    _wait_idle(engine)
    _, position = engine.trace.since(engine.trace.total)
    target_s = engine.settings.ttfa_target_s
    if background.rate_rps:
        engine.load(background.workload, rate_rps=background.rate_rps)
        before_s = background.settle_s + background.measure_s
        _pass(background.settle_s, lambda passed_s: progress(passed_s / before_s))
        start_s = engine.now_s()
        _pass(
            background.measure_s,
            lambda passed_s: progress((background.settle_s + passed_s) / before_s),
        )
        spoken = _speak_all(engine, texts, seed)
        end_s = engine.now_s()
    else:
        start_s = engine.now_s()
        spoken = _speak_all(engine, texts, seed)
        end_s = engine.now_s() + target_s  # nothing is left that could still miss it
    numbers = so_far(engine.trace.since(position)[0], start_s, end_s, target_s)
    engine.load(rate_rps=0.0)
    return Side(tuple(spoken), numbers)


def _pass(seconds: float, tell: Callable[[float], None]) -> None:
    """Lets time go by; `tell` hears how much of it."""
    begun_s = time.monotonic()
    while (passed_s := time.monotonic() - begun_s) < seconds:
        tell(passed_s)
        time.sleep(min(PROGRESS_S, seconds - passed_s))


def warm_up(engine: SpeechEngine, texts: list[str], seed: int) -> None:
    """Speaks the texts once: the first side must not pay for what is made only once."""
    engine.load(rate_rps=0.0)
    _speak_all(engine, texts, seed)


def boundary_step(chunks: tuple[NDArray[np.int16], ...]) -> float:
    """The largest step between samples at chunk borders over the 99th percentile of all steps."""
    if len(chunks) < 2:
        return 0.0
    steps = np.abs(np.diff(np.concatenate(chunks).astype(np.int32)))
    borders = np.cumsum([len(chunk) for chunk in chunks])[:-1] - 1
    usual = max(float(np.percentile(steps, 99)), 1.0)
    return float(steps[borders].max()) / usual


def is_same(first: Side, second: Side) -> bool:
    """Whether the sides differ in time only, not in what is said."""
    pairs = [(a.pcm, b.pcm) for a, b in zip(first.spoken, second.spoken, strict=True)]
    return all(
        len(a) == len(b) and np.abs(a.astype(np.int32) - b).max(initial=0) <= SAME for a, b in pairs
    )


def _wait_idle(engine: SpeechEngine) -> None:
    end_s = time.monotonic() + IDLE_S
    while time.monotonic() < end_s:
        stats = engine.stats()
        if not stats.waiting + stats.running + stats.draining:
            return
        time.sleep(0.02)


def _speak_all(engine: SpeechEngine, texts: list[str], seed: int) -> list[Spoken]:
    """All texts at once; each is read on a thread of its own, as listeners do."""
    spoken: dict[int, Spoken] = {}
    errors: list[Exception] = []

    def listen(index: int, text: str) -> None:
        try:
            stream = engine.stream(text, seed=seed)
            chunks = list(stream)
            spoken[index] = _spoken(chunks, _arrival_s(engine, stream.request_id), rate_hz)
        except Exception as error:  # handed over to the caller's thread
            errors.append(error)

    rate_hz = engine.sample_rate_hz
    threads = [
        threading.Thread(target=listen, args=pair, name=f"voxserve-ab-{pair[0]}", daemon=True)
        for pair in enumerate(texts)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [spoken[index] for index in range(len(texts))]


def _arrival_s(engine: SpeechEngine, request_id: int) -> float:
    """By the trace: what prepares a request before it arrives is not waiting."""
    return next(
        record.time_s
        for record in reversed(engine.trace.records())
        if isinstance(record, RequestChange)
        and (record.request_id, record.state) == (request_id, RequestState.WAITING)
    )


def _spoken(chunks: list[AudioChunk], arrival_s: float, rate_hz: int) -> Spoken:
    chunks = [chunk for chunk in chunks if len(chunk.pcm)]
    gaps_s: list[float] = []
    runs_out_s = arrival_s
    for chunk in chunks:
        gaps_s.append(max(0.0, chunk.delivered_s - runs_out_s))
        runs_out_s = max(runs_out_s, chunk.delivered_s) + len(chunk.pcm) / rate_hz
    ttfa_s = chunks[0].delivered_s - arrival_s if chunks else None
    pcm = tuple(chunk.pcm for chunk in chunks)
    return Spoken(ttfa_s, sum(gaps_s[1:]), pcm, tuple(gaps_s))
