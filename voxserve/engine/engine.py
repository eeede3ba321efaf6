"""The public engine: speech from text, in this process, on threads of its own."""

from __future__ import annotations

import asyncio
import itertools
import threading
import weakref
from collections.abc import AsyncIterable, Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxserve.core.errors import InvalidInput
from voxserve.core.events import SettingChange, Trace
from voxserve.core.jobs import Cancel, ListenerReport, PolicyChanged
from voxserve.core.live import LiveChunks
from voxserve.core.protocols import EngineStats
from voxserve.core.settings import Settings, Split
from voxserve.core.workload import Utterance, Workload
from voxserve.engine import registry
from voxserve.engine.arguments import finite, number, seconds, whole
from voxserve.engine.audio import Audio
from voxserve.engine.build import Built, build_executor
from voxserve.engine.clock import MonotonicClock
from voxserve.engine.config import EngineConfig, engine_config
from voxserve.engine.intake import Intake
from voxserve.engine.load import BackgroundLoad
from voxserve.engine.mailbox import DeliveredChunk
from voxserve.engine.monitor import Monitor
from voxserve.engine.requests import Sink
from voxserve.engine.service import Service
from voxserve.engine.stream import AsyncStream, Stream
from voxserve.models.request import PreparedRequest
from voxserve.sched.policy import Policy
from voxserve.sched.scheduler import Scheduler

_POLL_S = 0.02


class Engine:
    """Serves one model on one device.

    Making one loads the model and starts its threads; it is ready when the call returns. A second
    call with the same name and arguments returns the running engine, one with other arguments
    stops it first. Deleting the last reference, `stop()`, the end of a `with` block and the end of
    the process all end the threads and free the memory.

    Args:
        model: A registered model's name (`voxserve models` lists them).
        device: "auto", "cpu", "cuda[:n]" or "sim:NAME".
        name: One engine per name in a process.
        policy: A policy's name or object; None is the default.
        weights: A checkpoint folder or repo id, "random", or None for the bundled ones.
        settings: Any of `Settings`, as keywords; the rest are the device's defaults.

    Attributes:
        model_name, device_name: What it serves, on what.
        model_info: The model's facts (voices, sample rate, limits).
        prepared: What the device can be set to.
        sample_rate_hz, frame_s: Of the model's audio.
        trace: What happened, since the first start.
        start_report: What starting took, where the device tells.

    Raises:
        UnknownModel, DeviceUnavailable, CheckpointError, InvalidSetting: Says what is possible.
    """

    def __new__(
        cls,
        model: str = "vox-tiny",
        device: str = "auto",
        *,
        name: str = "default",
        policy: Any = None,
        weights: str | None = None,
        **settings: Any,
    ) -> Engine:
        config = engine_config(model, device, policy, weights, settings)
        if not isinstance(name, str):
            raise InvalidInput(f"the engine's name {name!r} is not a text")
        with registry.lock:  # until it serves: two threads that ask at once get one engine
            running = registry.live(name)
            if running is not None and running._config == config:
                return running
            self = super().__new__(cls)
            self._make(config, name)
            return self

    def __init__(
        self,
        model: str = "vox-tiny",
        device: str = "auto",
        *,
        name: str = "default",
        policy: Any = None,
        weights: str | None = None,
        **settings: Any,
    ) -> None:
        """Nothing is left to do: the engine serves already. Shows the arguments."""

    def _make(self, config: EngineConfig, name: str) -> None:
        self._config = config
        self._clock = MonotonicClock()
        self._ids = itertools.count()
        self.name = name
        self.model_name = config.model
        self.device_name = config.device
        self.trace = Trace()
        self._load: BackgroundLoad | None = None
        self.start()

    # --- life --------------------------------------------------------------------------------

    def start(self) -> Engine:
        """Loads the model and starts serving; returns at once when it already does."""
        with registry.lock:
            if not self.is_running:
                self.stop()  # what a failed engine left
                registry.take_name(self.name, self)
                self._start(self._config)
        return self

    def _start(self, config: EngineConfig) -> None:
        built = build_executor(
            config.model,
            config.device,
            weights=config.weights,
            clock=self._clock,
            name=self.name,
            settings=dict(config.settings),
        )
        monitor = Monitor(self.trace)
        try:
            defaults = built.executor.defaults
            settings = defaults.changed(built.executor.prepared, **dict(config.settings))
            scheduler = _scheduler(built, settings, monitor, config.policy)
        except BaseException:
            built.executor.close()
            raise
        self.prepared = built.executor.prepared
        self.sample_rate_hz = built.executor.sample_rate_hz
        self.frame_s = built.executor.frame_s
        self.model_info = built.model.info
        self.start_report = dict(getattr(built.executor, "start_report", {}))
        service = Service(built.executor, scheduler, settings, monitor, self._clock, self.name)
        self._service = service
        self._monitor = monitor
        self._intake = Intake(
            built.model,
            service,
            self._ids,
            self._clock,
            built.prepare_load,
            built.speaks_ahead,
        )
        # Runs when the engine is deleted and at the end of the process.
        self._finalizer = weakref.finalize(self, _end, service)

    def stop(self) -> None:
        """Ends serving and frees the model; requests still active raise `EngineStopped`."""
        with registry.lock:
            if not hasattr(self, "_finalizer") or self._finalizer.detach() is None:
                return
            self._stop_load()
            self._service.stop()
            self._intake.close()

    def disown(self) -> None:
        """Ends this copy of the engine in a forked child; the parent's goes on undisturbed."""
        self._load = None
        if hasattr(self, "_finalizer") and self._finalizer.detach() is not None:
            self._service.disown()

    @property
    def is_running(self) -> bool:
        """Whether it serves."""
        return hasattr(self, "_service") and self._service.is_open

    def __enter__(self) -> Engine:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    # --- speaking ----------------------------------------------------------------------------

    def say(
        self,
        text: str | Iterable[str],
        *,
        listener: bool = False,
        on_chunk: Callable[[DeliveredChunk], object] | None = None,
        **options: Any,
    ) -> Audio:
        """Speaks a text and returns the whole utterance. Ctrl-C cancels it.

        Args:
            text: A string, or pieces of one; models that take whole texts get them joined.
            listener: Serve it as if somebody listened while it is made: first sound early, every
                chunk in time. Off, it is made as cheaply as possible.
            on_chunk: Called with each chunk as it comes.
            options: voice, language, instruct, seed, max_frames, min_frames, temperature, top_k,
                top_p, ... (see `SpeechOptions` and `Sampling`).

        Raises:
            InvalidInput: Nothing to say, unknown option or voice, too long.
            RequestError: It was cancelled, refused or failed.
            EngineStopped, EngineFailed: The engine ended.
        """
        if on_chunk is not None and not callable(on_chunk):
            raise InvalidInput(f"on_chunk {on_chunk!r} cannot be called with a chunk")
        with self.stream(text, listener=listener, **options) as stream:
            for chunk in stream:
                if on_chunk is not None:
                    on_chunk(chunk)
            return stream.audio()

    def stream(self, text: str | Iterable[str], *, listener: bool = True, **options: Any) -> Stream:
        """Speaks a text and returns its chunks as they are delivered; arguments as for `say`.

        Closing the stream, leaving its `with` block or dropping it cancels the request.
        """
        return Stream(self._open_intake(), text, options, has_listener=listener, keep_alive=self)

    def astream(
        self,
        text: str | Iterable[str] | AsyncIterable[str],
        *,
        listener: bool = True,
        **options: Any,
    ) -> AsyncStream:
        """`stream` for `async for`, in any running event loop, a notebook's included.

        The request is made at the first step; cancelling the task cancels it.
        """
        return AsyncStream(
            self._open_intake(), text, options, has_listener=listener, keep_alive=self
        )

    async def asay(self, text: str | Iterable[str] | AsyncIterable[str], **options: Any) -> Audio:
        """`say` for event loops."""
        return await self.astream(text, **{"listener": False, **options}).read()

    def cancel(self, request_id: int) -> bool:
        """Cancels a request; its reader gets `RequestCancelled`. False when it has ended.

        Raises:
            InvalidInput: Not a request's number.
        """
        request_id = whole("request_id", request_id)
        if not self._service.is_active(request_id):
            return False
        self._service.tell(Cancel(request_id))
        return True

    def report_listener(self, request_id: int, buffered_s: float) -> None:
        """Tells the scheduler how much audio a real player of a request still has to play.

        Raises:
            InvalidInput: Not numbers.
        """
        report = ListenerReport(whole("request_id", request_id), number("buffered_s", buffered_s))
        self._service.tell(report)

    # --- background load ---------------------------------------------------------------------

    def load(self, workload: Workload | str = "libritts", rate_rps: float = 0.0) -> None:
        """Sets an open-loop background load of requests that a modelled listener plays.

        Args:
            workload: "libritts", "seedtts", "words:N", "burst[:N]", "file:PATH", "replay:PATH" or
                an object; "seedtts@regular" and "seedtts@burst:8" arrive otherwise than at random.
            rate_rps: Requests per second, whatever the engine can do; 0 ends the load and cancels
                what is left of it. Another rate or workload leaves what has arrived being served.

        Raises:
            InvalidInput: Unknown workload, or a rate that is negative or beyond any device.
        """
        with registry.lock:  # one load at a time, and none that starts while the engine stops
            intake = self._open_intake()
            before = self._load_words()
            if rate_rps == 0:
                self._stop_load()
            elif self._load is not None:
                self._load.change(workload, rate_rps)
            else:
                self._load = BackgroundLoad(intake, workload, rate_rps, self.name)
            after = self._load_words()
            if before != after:
                self._service.note(SettingChange(self.now_s(), "load", before, after))

    def prepare(self, utterance: Utterance, seed: int) -> PreparedRequest:
        """A workload's utterance as a request for `submit`; its length fixed where that is so.

        Raises:
            InvalidInput: Not an utterance, or the model cannot speak a text of this length.
        """
        if not isinstance(utterance, Utterance):
            raise InvalidInput(f"{utterance!r} is not a workload's utterance")
        return self._open_intake().prepare_utterance(utterance, whole("seed", seed))

    def submit(self, request: PreparedRequest, sink: Sink, arrival_s: float) -> int:
        """Makes a prepared request; for load clients, which read many streams on one thread.

        Args:
            request: From `prepare`.
            sink: Gets every chunk and then the end, on the serving thread: it must return fast.
            arrival_s: When the request was due, engine clock.

        Returns:
            Its id.

        Raises:
            InvalidInput: Not from `prepare`, nothing that takes chunks, or no time.
        """
        if not hasattr(request, "pieces"):
            raise InvalidInput(f"{request!r} is not a request from prepare()")
        if not callable(getattr(sink, "put", None)):
            raise InvalidInput(f"{sink!r} takes no chunks: a sink has put(item)")
        return self._open_intake().submit(request, sink, finite("arrival_s", arrival_s))

    def _load_words(self) -> str:
        load = self._load
        return f"{load.workload} {load.rate_rps:g}/s" if load is not None else "none"

    def _stop_load(self) -> None:
        load, self._load = self._load, None
        if load is not None:
            load.stop()

    # --- settings and figures ----------------------------------------------------------------

    @property
    def settings(self) -> Settings:
        """In force, or about to be at the next scheduling point."""
        return self._service.settings

    def set(self, **changes: Any) -> Settings:
        """Validates and applies live settings; returns the new ones.

        `policy` may also be a policy object, such as an instance of your own subclass of
        `voxserve.sched.policy.Policy`; a policy's name puts a built-in one back.

        Raises:
            InvalidSetting: Says what is possible.
        """
        policy = changes.pop("policy", None)
        if policy is not None and not isinstance(policy, Policy):
            changes["policy"] = str(policy)
        settings = self._service.change(**changes)
        if policy is not None:
            own = policy if isinstance(policy, Policy) else None
            self._service.tell(PolicyChanged(own))
        return settings

    def prepare_split(self, sm_split: str | Split) -> None:
        """Prepares another split of a GPU while it serves; `set(sm_split=...)` takes it then.

        Raises:
            InvalidSetting: Not like "100/32", or the device's splits are fixed.
            DeviceUnavailable: The GPU cannot be split so, or has no memory for it.
        """
        self.prepared = self._service.prepare_split(Split.parse(sm_split))

    def stats(self) -> EngineStats:
        """Counters for displays; never waits for the serving thread."""
        stats, load = self._service.stats(), self._load
        if load is None:
            return stats
        return replace(stats, workload=load.workload, rate_rps=load.rate_rps)

    def live_chunks(self) -> LiveChunks:
        """The next chunk of every running request and its slack.

        Returns just after the serving thread has launched a step, or some milliseconds later when
        it launches none: what the caller does then is not in its way.
        """
        return self._service.live_chunks()

    def turns(self, last: int | None = None) -> NDArray[np.float64]:
        """How long the serving thread needed to act, for its last turns that launched jobs.

        Args:
            last: How many turns; all that are kept when None, or when there are fewer.

        Returns:
            [turns, 2]: seconds, requests that were active.
        """
        return self._monitor.turns(self._monitor.num_turns if last is None else whole("last", last))

    @property
    def num_turns(self) -> int:
        """Turns of the serving thread that launched jobs, since the start."""
        return self._monitor.num_turns

    def now_s(self) -> float:
        """Engine clock."""
        return self._clock.now_s()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until nothing is being spoken; False when `timeout_s` passed first."""
        return self._service.wait_idle(seconds("timeout_s", timeout_s))

    async def await_idle(self) -> None:
        """`wait` for event loops: the notebook stays responsive meanwhile."""
        while not self._service.wait_idle(0.0):
            await asyncio.sleep(_POLL_S)

    def _open_intake(self) -> Intake:
        self._service.check_open()
        return self._intake

    def __repr__(self) -> str:
        state = self._service.state if hasattr(self, "_service") else "stopped"
        return f"Engine({self.model_name!r}, {self.device_name!r}, name={self.name!r}): {state}"


def _scheduler(built: Built, settings: Settings, monitor: Monitor, policy: Any) -> Scheduler:
    executor, info = built.executor, built.model.info
    return Scheduler(
        executor.prepared,
        settings,
        executor.cost,
        executor.frame_s,
        executor.sample_rate_hz,
        codec_delay_samples=info.codec_delay_samples,
        lookahead_frames=info.lookahead_frames,
        record=monitor.record,
        policy=policy,
    )


def _end(service: Service) -> None:
    """Stops a service whose engine is gone.

    The collector may run this on any thread, the service's own included: only the main thread
    waits for the end, the others just ask for it.
    """
    service.stop(wait=threading.current_thread() is threading.main_thread())
