"""Measures a running engine in process: speed, time to first audio, streams at once.

Times are the engine's: from the request to the delivery of samples. A stall is what a player that
starts with the first chunk would have to wait, added up over an utterance (10 ms rule).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from voxserve.core.playback import STALL_LIMIT_S
from voxserve.core.workload import utterance_of_words
from voxserve.engine.audio import Audio
from voxserve.engine.engine import Engine
from voxserve.engine.sentences import text_of

SHORT_TEXT = "The kettle is boiling, and the bread is still warm."
_LONG_WORDS = 38  # at least 8 s of speech with the bundled voices
_SHORTEST_S = 8.0


def long_text(seed: int) -> str:
    """A text of at least 8 s; another for every seed."""
    return text_of(utterance_of_words(_LONG_WORDS), seed)


def speeds(engine: Engine, repeats: int = 5) -> list[float]:
    """Seconds of audio per second for one utterance at a time with nobody listening."""
    return [engine.say(long_text(seed), seed=seed).speed for seed in range(repeats)]


def first_sounds(engine: Engine, repeats: int = 20) -> list[Audio]:
    """One listened utterance at a time on an otherwise idle engine, after one to warm up."""
    engine.stream(SHORT_TEXT).read()
    return [engine.stream(SHORT_TEXT, seed=seed).read() for seed in range(repeats)]


@dataclass(slots=True)
class Streams:
    """What listeners got who played at the same time.

    Attributes:
        count: Listeners.
        utterances: Everything they heard to the end.
        errors: What went wrong, in words.
    """

    count: int
    utterances: list[Audio] = field(default_factory=lambda: [])
    errors: list[str] = field(default_factory=lambda: [])

    @property
    def num_stalled(self) -> int:
        """Utterances whose pauses add up to 10 ms or more."""
        return sum(audio.stall_s >= STALL_LIMIT_S for audio in self.utterances)

    @property
    def is_clean(self) -> bool:
        """Everything was heard, long enough and without a stall."""
        return (
            bool(self.utterances)
            and not self.errors
            and self.num_stalled == 0
            and min(audio.duration_s for audio in self.utterances) >= _SHORTEST_S
        )


def listen_together(engine: Engine, count: int, seconds: float) -> Streams:
    """Runs `count` listeners for a while: each plays long utterances one after the other.

    Starts are staggered over the first utterance. The next text is asked for when the player of
    the one before has played it to the end, as a person would.
    """
    streams = Streams(count)
    end_s = time.monotonic() + seconds
    listeners = [
        threading.Thread(target=_guarded, args=(streams, _listen, engine, streams, index, end_s))
        for index in range(count)
    ]
    for listener in listeners:
        listener.start()
    for listener in listeners:
        listener.join()
    return streams


def _guarded(streams: Streams, call: Callable[..., None], *arguments: object) -> None:
    try:
        call(*arguments)
    except Exception as error:  # told in the result; the other listeners go on
        streams.errors.append(f"{type(error).__name__}: {error}")


def _listen(engine: Engine, streams: Streams, index: int, end_s: float) -> None:
    time.sleep(index * _SHORTEST_S / streams.count)
    seed = index
    while time.monotonic() < end_s:
        audio = engine.stream(long_text(seed), seed=seed).read()
        streams.utterances.append(audio)
        seed += streams.count
        played_s = audio.duration_s + audio.stall_s
        started_s = audio.arrival_s + (audio.ttfa_s or 0.0)
        time.sleep(max(started_s + played_s - engine.now_s(), 0.0))


def most_streams(engine: Engine, levels: tuple[int, ...], seconds: float) -> list[Streams]:
    """Tries ascending numbers of listeners until one is not clean; the tries in order."""
    tried: list[Streams] = []
    for count in levels:
        tried.append(listen_together(engine, count, seconds))
        if not tried[-1].is_clean:
            break
    return tried
