"""Workloads: what is asked for and when. Seeded, open loop, on an absolute schedule.

A workload yields utterances (words, seconds of audio, prompt tokens) and arrival times; it never
looks at how the server is doing, so a slow server does not lower the offered load.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count, cycle
from statistics import NormalDist
from typing import Protocol, runtime_checkable

import numpy as np

from voxserve.core import trace_file
from voxserve.core.errors import InvalidInput
from voxserve.core.events import Record, RequestChange
from voxserve.core.request import RequestSpec, RequestState

WORD_S = 0.417  # seconds of speech per word in LibriTTS test-clean
WORD_S_SIGMA = 0.12  # log-normal spread of it between utterances
TOKENS_PER_WORD = 1.3
PROMPT_OVERHEAD_TOKENS = 8
WARMUP_REQUESTS = 4  # uncounted, before a measured run
SWEEP_BURST = 64  # discarded burst before a sweep
MAX_BURST = 100_000
# No device comes near; beyond it, counting the arrivals would take all of the host's time.
MAX_RATE_RPS = 10_000.0
MEAN_WORDS = (2, 50)  # what `words:N` takes
MAX_WORDS = 71  # of one utterance, LibriTTS's longest


@dataclass(frozen=True, slots=True)
class Utterance:
    """What one request asks for.

    Attributes:
        num_words: Words to speak.
        audio_s: Seconds of speech.
        prompt_tokens: Backbone prompt length.
        text: The words, where the workload has them ("" otherwise).
    """

    num_words: int
    audio_s: float
    prompt_tokens: int
    text: str = ""

    def num_frames(self, frame_s: float) -> int:
        """Frames that carry the audio, at least one."""
        return max(1, math.ceil(self.audio_s / frame_s - 1e-9))

    def spec(
        self,
        request_id: int,
        arrival_s: float,
        frame_s: float,
        chunk_ramp: tuple[int, ...],
        ttfa_target_s: float = 0.2,
    ) -> RequestSpec:
        """The request as the scheduler sees it, its length fixed by the workload."""
        return RequestSpec(
            request_id=request_id,
            arrival_s=arrival_s,
            prompt_tokens=(self.prompt_tokens,),
            max_frames=self.num_frames(frame_s),
            chunk_ramp=chunk_ramp,
            ttfa_target_s=ttfa_target_s,
        )


@dataclass(frozen=True, slots=True)
class Offered:
    """One request of a load: when (seconds after its start) and what."""

    at_s: float
    utterance: Utterance


@runtime_checkable
class Workload(Protocol):
    """Endless (or, when recorded, finite) utterances and arrival times; both depend on the seed."""

    @property
    def name(self) -> str:
        """How users name it, such as "libritts" or "burst:64"."""
        ...

    def utterances(self, seed: int) -> Iterator[Utterance]:
        """Utterances in the order of this seed."""
        ...

    def arrivals(self, rate_rps: float, seed: int) -> Iterator[float]:
        """Ascending arrival times in seconds from the start of the load."""
        ...


def utterance_of_words(num_words: int, factor: float = 1.0, text: str = "") -> Utterance:
    """An utterance of `num_words` at the usual pace times `factor`."""
    return Utterance(
        num_words=num_words,
        audio_s=num_words * WORD_S * factor,
        prompt_tokens=round(TOKENS_PER_WORD * num_words) + PROMPT_OVERHEAD_TOKENS,
        text=text,
    )


def poisson_times(rate_rps: float, seed: int) -> Iterator[float]:
    """Poisson arrivals; the same seed at another rate gives the same pattern, scaled."""
    if not rate_rps > 0:
        return
    rng = np.random.default_rng([seed, 1])
    at_s = 0.0
    while True:
        for gap in rng.standard_exponential(256).tolist():
            at_s += gap / rate_rps
            yield at_s


def regular_times(rate_rps: float, seed: int) -> Iterator[float]:
    """Arrivals at equal distances; the seed sets when the first comes."""
    if not rate_rps > 0:
        return
    phase = float(np.random.default_rng([seed, 1]).random())
    yield from ((index + phase) / rate_rps for index in count())


@dataclass(frozen=True, slots=True)
class Corpus:
    """Utterances with log-normal word counts, drawn without replacement in each seed's order.

    Attributes:
        sigma: Of the logarithm of the word count.
        min_words, max_words, mean_words: Bounds, and the mean after clipping.
        size: Utterances before an order repeats with a new shuffle.
    """

    name: str
    sigma: float
    min_words: int
    max_words: int
    mean_words: float
    size: int

    def utterances(self, seed: int) -> Iterator[Utterance]:
        """The corpus in this seed's order, reshuffled for every pass."""
        rng = np.random.default_rng([seed, 2])
        corpus = _corpus(self)
        while True:
            for index in rng.permutation(len(corpus)).tolist():
                yield corpus[index]

    def arrivals(self, rate_rps: float, seed: int) -> Iterator[float]:
        """Poisson."""
        return poisson_times(rate_rps, seed)


@cache
def _corpus(corpus: Corpus) -> tuple[Utterance, ...]:
    """Word counts at equal quantiles (so the mean is exact) with a fixed draw of speaking pace."""
    normal = NormalDist()
    z = np.array([normal.inv_cdf((i + 0.5) / corpus.size) for i in range(corpus.size)])

    def words_at(mu: float) -> np.ndarray:
        words = np.rint(np.exp(mu + corpus.sigma * z))
        return np.clip(words, corpus.min_words, corpus.max_words)

    low, high = math.log(corpus.min_words), math.log(corpus.max_words)
    for _ in range(50):
        mu = (low + high) / 2
        low, high = (mu, high) if words_at(mu).mean() < corpus.mean_words else (low, mu)
    pace = np.exp(np.random.default_rng(0).normal(0.0, WORD_S_SIGMA, corpus.size))
    return tuple(
        utterance_of_words(int(words), float(factor))
        for words, factor in zip(words_at(high), pace, strict=True)
    )


LIBRITTS = Corpus("libritts", 0.75, 1, MAX_WORDS, 18.7, 4837)
SEEDTTS = Corpus("seedtts", 0.35, 3, 30, 11.3, 1000)


def words_corpus(mean_words: int) -> Corpus:
    """Texts of `mean_words` on average, their lengths spread like SeedTTS's.

    Raises:
        InvalidInput: Outside `MEAN_WORDS`.
    """
    low, high = MEAN_WORDS
    if not low <= mean_words <= high:
        raise InvalidInput(f"words:{mean_words}: the mean is {low} to {high} words")
    longest = min(3 * mean_words, MAX_WORDS)
    return Corpus(f"words:{mean_words}", SEEDTTS.sigma, 1, longest, float(mean_words), SEEDTTS.size)


@dataclass(frozen=True, slots=True)
class Regular:
    """Another workload's utterances, arriving at equal distances."""

    of: Workload = LIBRITTS

    @property
    def name(self) -> str:
        """Such as "libritts@regular"."""
        return f"{self.of.name}@regular"

    def utterances(self, seed: int) -> Iterator[Utterance]:
        """Those of the other."""
        return self.of.utterances(seed)

    def arrivals(self, rate_rps: float, seed: int) -> Iterator[float]:
        """One every 1 / rate."""
        return regular_times(rate_rps, seed)


@dataclass(frozen=True, slots=True)
class Burst:
    """Bursts of `size` simultaneous requests at Poisson times, the mean rate unchanged."""

    size: int = SWEEP_BURST
    of: Workload = LIBRITTS

    @property
    def name(self) -> str:
        """Such as "burst:64" (of libritts) or "seedtts@burst:8"."""
        prefix = "" if self.of == LIBRITTS else f"{self.of.name}@"
        return f"{prefix}burst:{self.size}"

    def utterances(self, seed: int) -> Iterator[Utterance]:
        """Those of the other."""
        return self.of.utterances(seed)

    def arrivals(self, rate_rps: float, seed: int) -> Iterator[float]:
        """The first burst at once, the others at Poisson times."""
        yield from (0.0 for _ in range(self.size))
        for at_s in poisson_times(rate_rps / self.size, seed):
            yield from (at_s for _ in range(self.size))


@dataclass(frozen=True, slots=True)
class Listed:
    """Given utterances: recorded ones at their recorded times, or texts at Poisson times.

    Attributes:
        times_s: Arrival of each utterance; empty when only utterances are given, which are then
            repeated for ever.
    """

    name: str
    items: tuple[Utterance, ...]
    times_s: tuple[float, ...] = ()

    def utterances(self, seed: int) -> Iterator[Utterance]:
        """In the order given (recorded), or in this seed's order."""
        if self.times_s:
            return iter(self.items)
        order: list[int] = np.random.default_rng([seed, 2]).permutation(len(self.items)).tolist()
        return cycle([self.items[index] for index in order])

    def arrivals(self, rate_rps: float, seed: int) -> Iterator[float]:
        """Recorded times, stretched to the mean rate asked for (0: as recorded)."""
        times_s = self.times_s
        if not times_s:
            return poisson_times(rate_rps, seed)
        span_s = times_s[-1] - times_s[0]
        stretch = 1.0
        if rate_rps > 0 and span_s > 0:
            stretch = (len(times_s) - 1) / span_s / rate_rps
        return iter([(at_s - times_s[0]) * stretch for at_s in times_s])


def replay(records: Sequence[Record], frame_s: float, name: str = "replay") -> Listed:
    """The arrivals of a recorded trace, each with the frames it turned out to have.

    Args:
        records: Of a trace; requests without an end in it are left out.
        frame_s: Seconds per frame of the recorded model.
        name: What to call the workload.

    Raises:
        InvalidInput: No request in the trace ended.
    """
    arrived: dict[int, float] = {}
    frames: dict[int, int] = {}
    for record in records:
        if isinstance(record, RequestChange):
            if record.state is RequestState.WAITING:
                arrived.setdefault(record.request_id, record.time_s)
            elif record.state is RequestState.DONE:
                frames[record.request_id] = record.num_frames
    order = sorted((arrived[r], r) for r in frames if r in arrived and frames[r] > 0)
    if not order:
        raise InvalidInput("replay: no request of this trace both arrived and ended in it")
    items: list[Utterance] = []
    for _, request_id in order:
        audio_s = frames[request_id] * frame_s
        words = max(1, round(audio_s / WORD_S))
        items.append(utterance_of_words(words, audio_s / (words * WORD_S)))
    return Listed(name, tuple(items), tuple(at_s for at_s, _ in order))


def from_lines(lines: Sequence[str], name: str = "file") -> Listed:
    """Texts, one a line; a line that starts with seconds and a tab arrives at that time.

    Raises:
        InvalidInput: No text, or only some lines have times.
    """
    items: list[Utterance] = []
    times_s: list[float] = []
    for line in (line.strip() for line in lines):
        if not line or line.startswith("#"):
            continue
        head, tab, text = line.partition("\t")
        if tab:
            try:
                times_s.append(float(head))
            except ValueError:
                raise InvalidInput(f"{name}: {head!r} before the tab is not seconds") from None
        else:
            text = line
        items.append(utterance_of_words(max(1, len(text.split())), text=text.strip()))
    if not items:
        raise InvalidInput(f"{name}: no text in it; one utterance a line is needed")
    if times_s and len(times_s) != len(items):
        raise InvalidInput(f"{name}: either every line or no line starts with seconds and a tab")
    if not all(math.isfinite(at_s) for at_s in times_s):
        raise InvalidInput(f"{name}: an arrival time is not finite")
    if times_s != sorted(times_s):
        raise InvalidInput(f"{name}: the arrival times do not ascend")
    return Listed(name, tuple(items), tuple(times_s))


def offered(workload: Workload, rate_rps: float, seconds: float, seed: int) -> list[Offered]:
    """The load of one run: every arrival before `seconds`, with its utterance."""
    load: list[Offered] = []
    pairs = zip(workload.arrivals(rate_rps, seed), workload.utterances(seed), strict=False)
    for at_s, utterance in pairs:
        if at_s >= seconds:
            break
        load.append(Offered(at_s, utterance))
    return load


def find(workload: Workload | str) -> Workload:
    """A workload by name (see the error for the names); workloads pass through.

    Raises:
        InvalidInput: No such name; lists what there is.
    """
    if isinstance(workload, Workload):
        return workload
    if not isinstance(workload, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"{workload!r} is neither a workload nor the name of one")
    base, _, pattern = workload.rpartition("@")
    if base and (pattern == "regular" or _is_burst(pattern)):  # a path may hold an @, too
        return Regular(find(base)) if pattern == "regular" else _burst(pattern, find(base))
    if _is_burst(workload):
        return _burst(workload, LIBRITTS)
    name, _, argument = workload.partition(":")
    if name == "words" and argument.isdecimal():
        return words_corpus(int(argument[:9]))
    if name == "replay" and argument:
        recorded = trace_file.load(argument)
        return replay(recorded.records, recorded.frame_s, workload)
    if name == "file" and argument:
        try:
            with open(argument, encoding="utf-8") as file:
                return from_lines(file.read().splitlines(), workload)
        except OSError as error:
            raise InvalidInput(f"workload {argument}: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise InvalidInput(f"workload {argument}: not a text in UTF-8") from None
    for corpus in (LIBRITTS, SEEDTTS):
        if workload == corpus.name:
            return corpus
    raise InvalidInput(
        f"no workload {workload!r}; there are libritts, seedtts, words:N (on average), burst, "
        "burst:N, file:PATH and replay:PATH (a saved trace); @regular or @burst:N after a name "
        "changes when its texts arrive"
    )


def _is_burst(text: str) -> bool:
    name, _, size = text.partition(":")
    return text == "burst" or (name == "burst" and size.isdecimal())


def _burst(text: str, of: Workload) -> Burst:
    digits = text.partition(":")[2]
    size = int(digits[:9] or SWEEP_BURST)  # nine digits are too many already
    if not 1 <= size <= MAX_BURST:
        raise InvalidInput(f"{text}: a burst has 1 to {MAX_BURST:,} requests")
    return Burst(size, of)
