"""The serving thread: takes requests in, lets the scheduler decide, launches, collects, publishes.

Owns the executor, the scheduler and every request's life from submission to its end. Nothing here
touches torch; other threads reach it through an inbox, and read counters and snapshots.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxserve.core.clock import Clock
from voxserve.core.errors import EngineError, EngineFailed, EngineStopped, InvalidSetting
from voxserve.core.events import SettingChange
from voxserve.core.jobs import (
    Arrival,
    Cancel,
    Event,
    SettingsChanged,
    TextArrived,
)
from voxserve.core.live import LiveChunks, no_chunks
from voxserve.core.protocols import (
    EngineStats,
    Executor,
    JobResult,
    SplittingExecutor,
)
from voxserve.core.request import RequestSpec, RequestState
from voxserve.core.settings import START_ONLY, Prepared, Settings, Split
from voxserve.engine.glimpse import Glimpse
from voxserve.engine.host import tuning
from voxserve.engine.monitor import Monitor
from voxserve.engine.requests import ServedRequests, Sink, TextPart
from voxserve.sched.scheduler import Scheduler

_log = logging.getLogger("voxserve")
_LONGEST_WAIT_S = 1.0
_STOP_PATIENCE_S = 30.0


class Service:
    """Serves requests on a thread of its own until stopped or failed.

    Args:
        executor: Runs jobs; closed by the serving thread when it ends.
        scheduler: Decides; used by the serving thread alone.
        settings: In force at the start.
        monitor: What `scheduler` records into.
        clock: Engine time.
        name: In the thread's name and in messages.
    """

    def __init__(
        self,
        executor: Executor,
        scheduler: Scheduler,
        settings: Settings,
        monitor: Monitor,
        clock: Clock,
        name: str,
    ) -> None:
        self.prepared = executor.prepared
        self._executor = executor
        self._scheduler = scheduler
        self._settings = settings
        self._monitor = monitor
        self._clock = clock
        self._name = name
        self._gate = threading.Lock()  # submission, settings and the end
        self._inbox: deque[Event | TextPart | SettingChange] = deque()
        self._requests = ServedRequests(executor, self._cancel_unread)
        self._idle = threading.Event()
        self._idle.set()
        self._is_busy = False
        self._is_stopping = False
        self._error: EngineError | None = None
        self._wakeup_s = math.inf
        self._glimpse = Glimpse(executor.wake)
        self._thread = threading.Thread(
            target=self._serve, name=f"voxserve-{name}-engine", daemon=True
        )
        tuning.enter_serving()
        self._thread.start()

    # --- called by other threads -------------------------------------------------------------

    @property
    def settings(self) -> Settings:
        """In force, or about to be at the next scheduling point."""
        return self._settings

    @property
    def state(self) -> str:
        """ "running", "stopped" or "failed: why"."""
        if self._error is None:
            return "running"
        return f"failed: {self._error}" if isinstance(self._error, EngineFailed) else "stopped"

    def submit(self, spec: RequestSpec, prepared: Any, sink: Sink | None) -> None:
        """Takes a request in; its chunks and its end go to `sink`.

        Raises:
            EngineStopped, EngineFailed: The engine no longer serves.
        """
        with self._gate:
            self.check_open()
            self._requests.add(spec.request_id, prepared, sink)
            self._idle.clear()
            self._inbox.append(Arrival(spec))
        self._executor.wake()

    def tell(self, event: Event) -> None:
        """Passes an event to the scheduler; nothing happens once the engine has ended."""
        if self._error is None:
            self._inbox.append(event)
            self._executor.wake()

    def note(self, change: SettingChange) -> None:
        """Records a change that is not the scheduler's, on the thread that writes the trace."""
        self._inbox.append(change)
        self._executor.wake()

    def add_text(self, request_id: int, ids: NDArray[np.int32], is_complete: bool) -> None:
        """Adds text tokens to a request whose text is streamed; ignored once it has ended."""
        self._inbox.append(TextPart(request_id, ids, is_complete))
        self._executor.wake()

    def is_active(self, request_id: int) -> bool:
        """Whether the request has not ended."""
        return request_id in self._requests

    def change(self, **changes: Any) -> Settings:
        """Validates and applies live settings at the next scheduling point.

        Raises:
            InvalidSetting: Says what is possible.
            EngineStopped, EngineFailed: The engine no longer serves.
        """
        for name in START_ONLY & changes.keys():
            raise InvalidSetting(f"{name} is fixed at start: Engine(..., {name}={changes[name]!r})")
        with self._gate:
            self.check_open()
            self._settings = self._settings.changed(self.prepared, **changes)
            self._inbox.append(SettingsChanged(self._settings))
            settings = self._settings
        self._executor.wake()
        return settings

    def prepare_split(self, split: Split) -> Prepared:
        """Prepares another split on the caller's thread while serving goes on.

        Raises:
            InvalidSetting: The device prepares all its splits at the start.
            DeviceUnavailable: It cannot be split so, or has no memory for it.
            EngineStopped, EngineFailed: The engine no longer serves.
        """
        self.check_open()
        if not isinstance(self._executor, SplittingExecutor):
            listed = ", ".join(map(str, self.prepared.splits))
            raise InvalidSetting(f"this device's splits are fixed at the start: {listed}")
        prepared = self._executor.add_split(split)
        with self._gate:
            self.prepared = prepared
        return prepared

    def stats(self) -> EngineStats:
        """Counters, without waiting for the serving thread."""
        active, ended = self._monitor.active, self._monitor.ended
        running = (RequestState.PREFILLING, RequestState.RUNNING, RequestState.STARVED)
        return EngineStats(
            state=self.state,
            now_s=self._clock.now_s(),
            waiting=active[RequestState.WAITING],
            running=sum(active[state] for state in running),
            draining=active[RequestState.DRAINING],
            done=ended[RequestState.DONE],
            cancelled=ended[RequestState.CANCELLED],
            failed=ended[RequestState.FAILED],
            rejected=ended[RequestState.REJECTED],
            ready_chunks=self._scheduler.num_ready_chunks,
            kernel_delay_s=self._monitor.delay_s,
        )

    def live_chunks(self) -> LiveChunks:
        """A snapshot of just after the next step's launch; returns within two `PATIENCE_S`."""
        return no_chunks(self._clock.now_s()) if self._idle.is_set() else self._glimpse.look()

    def wait_idle(self, timeout_s: float | None = None) -> bool:
        """Waits until no request is active and no slot is in use; False on time-out."""
        return self._idle.wait(timeout_s)

    def stop(self, wait: bool = True) -> None:
        """Ends serving; every waiting reader is told. May be called again and from any thread.

        Raises:
            EngineFailed: The serving thread did not end in time.
        """
        self._is_stopping = True
        self._executor.wake()
        if not wait or threading.current_thread() is self._thread:
            return
        self._thread.join(_STOP_PATIENCE_S)
        if self._thread.is_alive():
            raise EngineFailed(f"engine {self._name!r} did not stop in {_STOP_PATIENCE_S:.0f} s")

    def disown(self) -> None:
        """In a forked child: there is no serving thread here, and its locks may be held."""
        self._error = EngineStopped(
            f"engine {self._name!r} serves in the process this one was forked from; "
            "make a new Engine here"
        )
        self._requests.forget()
        self._gate = threading.Lock()
        self._idle = threading.Event()
        self._idle.set()

    @property
    def is_open(self) -> bool:
        """Whether it takes requests."""
        return self._error is None and not self._is_stopping

    def check_not_ended(self) -> None:
        """Raises what ended the service, if something did; a stop under way is no end yet.

        Raises:
            EngineStopped, EngineFailed: The engine has ended.
        """
        if self._error is not None:
            raise type(self._error)(str(self._error))

    def check_open(self) -> None:
        """Raises what ended the service, if something did.

        Raises:
            EngineStopped, EngineFailed: The engine no longer serves.
        """
        self.check_not_ended()
        if self._is_stopping:
            raise EngineStopped(f"engine {self._name!r} is stopping")

    # --- the serving thread ------------------------------------------------------------------

    def _serve(self) -> None:
        error: EngineError = EngineStopped(
            f"engine {self._name!r} was stopped; call start() or make a new Engine"
        )
        try:
            while not self._is_stopping:
                self._turn()
        except BaseException as cause:  # border: whatever ended the thread, clients must hear it
            _log.exception("engine %r failed", self._name)
            error = EngineFailed(f"engine {self._name!r} failed: {type(cause).__name__}: {cause}")
        self._end(error)

    def _turn(self) -> None:
        wait_s = min(self._wakeup_s - self._clock.now_s(), _LONGEST_WAIT_S)
        results = self._executor.results(max(wait_s, 0.0))
        now_s = self._clock.now_s()
        self._note_delay(now_s, results)
        while self._inbox:
            item = self._inbox.popleft()
            if isinstance(item, TextPart):
                self._take_text(now_s, item)
            elif isinstance(item, SettingChange):
                self._monitor.record(item)
            else:
                self._scheduler.on_event(now_s, item)
        for result in results:
            self._requests.take_samples(result)
            self._scheduler.on_event(now_s, result.event)
        jobs = self._scheduler.next_jobs(now_s)
        notices = self._scheduler.take_notices()
        # A slot may be handed on in the same turn: close it for its old request first.
        self._requests.close_slots(notices)
        for job in jobs:
            self._requests.launch(job)
        if jobs:
            self._monitor.turn(self._clock.now_s() - now_s, len(self._requests))
        self._wakeup_s = _or_never(self._scheduler.wakeup_s())
        for notice in notices:
            self._requests.publish(now_s, notice)
        self._set_busy(now_s)
        self._glimpse.take(self._scheduler.board, now_s, jobs)

    def _take_text(self, now_s: float, text: TextPart) -> None:
        """Sends text to the slot before the scheduler may launch the steps that read it."""
        if self._requests.add_text(text):
            event = TextArrived(text.request_id, len(text.ids), text.is_complete)
            self._scheduler.on_event(now_s, event)

    def _note_delay(self, now_s: float, results: list[JobResult]) -> None:
        due_s = min([self._wakeup_s, *(result.event.end_s for result in results)])
        stolen_s = max((result.stolen_s for result in results), default=0.0)
        self._monitor.host_delay(now_s, max(now_s - due_s, stolen_s, 0.0))

    def _cancel_unread(self, request_id: int) -> None:
        self._inbox.append(Cancel(request_id))
        self._executor.wake()

    def _set_busy(self, now_s: float) -> None:
        if not (len(self._requests) or self._requests.num_open_slots):
            with self._gate:  # a submission must not be overlooked between the look and the flag
                is_busy = len(self._requests) > 0
                if not is_busy:
                    self._idle.set()
        else:  # the usual case, without waiting for whoever holds the gate
            is_busy = True
        if is_busy and not self._is_busy:
            tuning.enter_busy(now_s)
        elif self._is_busy and not is_busy:
            tuning.leave_busy()
        elif is_busy:
            tuning.collect_young(now_s)
        self._is_busy = is_busy

    def _end(self, error: EngineError) -> None:
        with self._gate:
            self._error = error
        self._requests.end_all(error)
        if self._is_busy:
            tuning.leave_busy()
        tuning.leave_serving()
        self._monitor.active.clear()
        try:
            self._executor.close()
        except Exception:  # border: the engine has ended; the reason is in the log
            _log.exception("engine %r: the executor did not close cleanly", self._name)
        self._idle.set()


def _or_never(time_s: float | None) -> float:
    return math.inf if time_s is None else time_s
