"""The open-loop load client: sends every request at its time and accounts what each one heard.

One thread sends; chunks are accounted where they arrive, a few microseconds each. All SLO figures
come from here, by the client's own uncorrected clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxserve.bench.target import Target
from voxserve.core.errors import EngineError, InvalidInput
from voxserve.core.events import Record
from voxserve.core.playback import AUDIBLE_LEVEL, Playback
from voxserve.core.request import RequestState
from voxserve.core.slo import Outcome
from voxserve.core.workload import Offered

TIMEOUT_S = 900.0  # after the arrival window; what has not ended by then is a miss
HOPELESS_TTFA_S = 1.0  # fewer than half within it: the server is far past capacity
_TICK_S = 0.1
_PART_SAMPLES = 480
_LOOK_S = 0.5  # between readings of the server's trace, whose ring holds about a minute


class Listener:
    """One request's ear: a modelled player that starts with the first samples.

    Args:
        arrival_s: When the request was due, whenever it was really sent.
        now_s: The client's clock.
        sample_rate_hz: Of what is heard.
    """

    __slots__ = (
        *("_now_s", "_playback", "_rate_hz", "_start_s"),
        *("arrival_s", "audible_ttfa_s", "end_s", "num_chunks", "request_id", "sent_s", "state"),
    )

    def __init__(self, arrival_s: float, now_s: Callable[[], float], sample_rate_hz: int) -> None:
        self._now_s = now_s
        self._rate_hz = sample_rate_hz
        self._playback = Playback(deadline_s=arrival_s)
        self.arrival_s = arrival_s
        self.sent_s = arrival_s
        self.request_id = -1
        self.num_chunks = 0
        self.audible_ttfa_s: float | None = None
        self.end_s: float | None = None
        self.state = "unfinished"

    def heard(self, pcm: NDArray[np.int16]) -> None:
        """Accounts the next samples."""
        now_s = self._now_s()
        playback = self._playback
        self.num_chunks += 1
        if self.audible_ttfa_s is None:
            starts_s = max(now_s, playback.deadline_s) if playback.is_playing else now_s
            self._find_audible(pcm, starts_s)
        playback.deliver(now_s, len(pcm) / self._rate_hz)

    def ended(self, state: str) -> None:
        """Accounts the end."""
        self.state = state
        self.end_s = self._now_s()

    def has_missed(self, now_s: float, ttfa_target_s: float) -> bool:
        """Whether it can no longer meet the SLO."""
        if self.end_s is not None and self.state != RequestState.DONE:
            return True
        first_s = self._playback.first_audio_s
        heard_s = (now_s if first_s is None else first_s) - self.arrival_s
        return heard_s > ttfa_target_s or self._playback.has_stalled

    @property
    def ttfa_s(self) -> float | None:
        """Due to first samples."""
        first_s = self._playback.first_audio_s
        return None if first_s is None else first_s - self.arrival_s

    def outcome(self, start_s: float) -> Outcome:
        """What it experienced, times relative to the start of the load."""
        playback = self._playback
        return Outcome(
            arrival_s=self.arrival_s - start_s,
            is_done=self.state == RequestState.DONE,
            ttfa_s=self.ttfa_s,
            stall_s=playback.stall_s,
            num_late=playback.num_late,
            num_chunks=self.num_chunks,
            audio_s=playback.audio_s,
            end_s=None if self.end_s is None else self.end_s - start_s,
            state=self.state,
            audible_ttfa_s=self.audible_ttfa_s,
        )

    def _find_audible(self, pcm: NDArray[np.int16], starts_s: float) -> None:
        """The first audible sample is heard when the player gets to it."""
        # In small parts: numpy hands the interpreter over for arrays of more than 500 elements and
        # in argmax, which beside a busy thread costs the serving thread a switch interval.
        for start in range(0, len(pcm), _PART_SAMPLES):
            part = pcm[start : start + _PART_SAMPLES]
            is_audible = (part > AUDIBLE_LEVEL) | (part < -AUDIBLE_LEVEL)
            first = is_audible.tobytes().find(1)
            if first >= 0:
                self.audible_ttfa_s = starts_s + (start + first) / self._rate_hz - self.arrival_s
                return


@dataclass(frozen=True, slots=True)
class LoadRun:
    """What one offered load came to.

    Attributes:
        start_s: When it began, client's clock; outcomes are relative to it.
        outcomes: Of every counted request, in order of arrival.
        records: The server's trace of the run, where it can be seen.
        turns: [turns, 2], see `Target.new_turns`.
        sent_late_s: How late the client sent each request (it is accounted as due).
        stopped: Why it was given up, or "".
    """

    start_s: float
    seconds: float
    outcomes: tuple[Outcome, ...]
    records: tuple[Record, ...]
    turns: NDArray[np.float64]
    sent_late_s: NDArray[np.float64]
    stopped: str


Progress = Callable[[float, Sequence[Listener]], object]
Hopeless = Callable[[Sequence[Listener], int], str]


class Client:
    """Offers loads to one target, one after the other.

    Args:
        target: Where the requests go.
        timeout_s: How long after the arrival window a request may still end.
        sleep: Waits so many seconds of the target's clock.
    """

    def __init__(
        self,
        target: Target,
        timeout_s: float = TIMEOUT_S,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._target = target
        self._timeout_s = timeout_s
        self._sleep = sleep
        self._next_look_s = 0.0

    def run(
        self,
        load: Sequence[Offered],
        seconds: float,
        seed: int,
        *,
        gives_up: bool = True,
        hopeless: Hopeless | None = None,
        progress: Progress | None = None,
    ) -> LoadRun:
        """Offers a load and waits for every request's end.

        Args:
            load: Ascending arrivals, seconds after the start.
            seconds: Length of the arrival window.
            seed: Of the requests.
            gives_up: Stop after the window when fewer than half got audio within a second.
            hopeless: Called now and then during the window with what was sent and the size of the
                load; the reason to stop at once, or "".
            progress: Called now and then with the seconds since the start and what was sent.

        Raises:
            InvalidInput: A request of the load cannot be served at all.
        """
        requests = self._prepared(load, seed)
        self._target.new_records()
        self._target.new_turns()
        records: list[Record] = []
        listeners: list[Listener] = []
        start_s = self._target.now_s() + 0.05

        def look() -> str:
            records.extend(self._target.new_records())
            if progress is not None:
                progress(self._target.now_s() - start_s, listeners)
            return "" if hopeless is None else hopeless(listeners, len(load))

        stopped = ""
        for offered, request in zip(load, requests, strict=True):
            if stopped := self._wait_until(start_s + offered.at_s, look):
                break
            listeners.append(self._send(request, start_s + offered.at_s))
        stopped = stopped or self._wait_until(start_s + seconds, look)
        if gives_up and not stopped:
            stopped = self._hopeless(listeners)
        until_s = start_s + seconds + (0.0 if stopped else self._timeout_s)
        self._wait_for_all(listeners, until_s, look)
        outcomes = tuple(listener.outcome(start_s) for listener in listeners)
        self._abandon(listeners)
        records.extend(self._target.new_records())
        late_s = np.array([listener.sent_s - listener.arrival_s for listener in listeners])
        turns = self._target.new_turns()
        return LoadRun(start_s, seconds, outcomes, tuple(records), turns, late_s, stopped)

    def _prepared(self, load: Sequence[Offered], seed: int) -> list[Any]:
        """Everything that can be made before the clock runs, so that sending is cheap."""
        requests: list[Any] = []
        for index, offered in enumerate(load):
            try:
                request = self._target.prepare(offered.utterance, 100_003 * seed + index)
            except InvalidInput as error:
                raise InvalidInput(
                    f"request {index} of the load ({offered.utterance.num_words} words): {error}"
                ) from None
            requests.append(request)
        return requests

    def _send(self, request: Any, arrival_s: float) -> Listener:
        target = self._target
        listener = Listener(arrival_s, target.now_s, target.sample_rate_hz)
        listener.sent_s = target.now_s()
        try:
            listener.request_id = target.submit(request, listener, arrival_s)
        except EngineError:
            listener.ended(RequestState.FAILED.value)
        return listener

    def _wait_until(self, time_s: float, look: Callable[[], str]) -> str:
        """Looks now and then meanwhile, however short the waits are; a look's reason ends it."""
        while True:
            now_s = self._target.now_s()
            if now_s >= self._next_look_s:
                self._next_look_s = now_s + _LOOK_S
                if reason := look():
                    return reason
            left_s = time_s - self._target.now_s()
            if left_s <= 0.0:
                return ""
            self._sleep(min(left_s, _TICK_S))

    def _wait_for_all(
        self, listeners: Sequence[Listener], until_s: float, look: Callable[[], object]
    ) -> None:
        waiting = list(listeners)
        while self._target.now_s() < until_s:
            waiting = [listener for listener in waiting if listener.end_s is None]
            if not waiting:
                return
            if self._target.now_s() >= self._next_look_s:
                self._next_look_s = self._target.now_s() + _LOOK_S
                look()
            self._sleep(_TICK_S / 2)

    def _hopeless(self, listeners: Sequence[Listener]) -> str:
        """Whether fewer than half of those that had the time got audio within a second."""
        now_s = self._target.now_s()
        due = [item for item in listeners if now_s - item.arrival_s > HOPELESS_TTFA_S]
        soon = sum(item.ttfa_s is not None and item.ttfa_s <= HOPELESS_TTFA_S for item in due)
        if due and soon < 0.5 * len(due):
            return f"{soon} of {len(due)} requests had audio within {HOPELESS_TTFA_S:g} s"
        return ""

    def _abandon(self, listeners: Sequence[Listener]) -> None:
        """Cancels what has not ended, so that the next run starts on an idle server."""
        for listener in listeners:
            if listener.end_s is None:
                self._target.cancel(listener.request_id)
        self._target.settle(self._timeout_s)
