"""The GPU executor: three lanes of captured executables, fed without ever waiting for the device.

A launch fills a pinned buffer and queues copies and a replay; the host reads nothing but end flags
and PCM, when their copies have landed. The next decode step is launched before the flags of the
one before are read (`Prepared.lm_depth` = 2).
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from voxserve.core.clock import Clock
from voxserve.core.errors import (
    DeviceUnavailable,
    EngineFailed,
    EngineStopped,
    VoxserveError,
)
from voxserve.core.jobs import (
    CodecDone,
    CodecJob,
    DecodeJob,
    Job,
    JobFailed,
    LaneName,
    PrefillJob,
    StepDone,
)
from voxserve.core.protocols import CostModel, JobResult
from voxserve.core.settings import GPU_STEPS_PER_PREFILL, Prepared, Settings, Split
from voxserve.models.base import SpeechModel
from voxserve.models.request import PreparedRequest
from voxserve.runtime.capacity import KV_PAGE_TOKENS, Capacity, fitting
from voxserve.runtime.driver import Driver, Step
from voxserve.runtime.executables import Executables, Progress, Sizes
from voxserve.runtime.flight import Flight, FlightBuffers
from voxserve.runtime.leading_silence import LeadingSilence
from voxserve.runtime.nap import nap
from voxserve.runtime.stage_timing import measure

_POLL_S = 50e-6
_NOT_FINITE = "the codec made samples that are not finite numbers"


@dataclass(slots=True, eq=False)
class _OpenSlot:
    request: PreparedRequest
    silence: LeadingSilence | None


class CudaExecutor:
    """Runs the scheduler's jobs on a GPU (see `core.protocols.Executor`).

    Args:
        model: Loaded on the driver's device.
        driver: The device.
        clock: The engine's.
        splits: SM splits to capture; the first is the default. `Split()` is none.
        sizes: Executables to make.
        capacity: Pools to allocate; smaller where the device's memory is.
        cuts_silence: Leave out the silence before a request's first sound; off for random
            weights, whose sound means nothing.
        progress: Called while executables are captured.

    Attributes:
        start_report: What starting took, and the stage times that were measured; JSON-ready.

    Raises:
        DeviceUnavailable: The device's memory doesn't suffice; says what to lower.
    """

    start_report: dict[str, Any]

    def __init__(
        self,
        model: SpeechModel,
        driver: Driver,
        clock: Clock,
        *,
        splits: tuple[Split, ...] = (Split(),),
        sizes: Sizes | None = None,
        capacity: Capacity | None = None,
        cuts_silence: bool = True,
        progress: Progress | None = None,
    ) -> None:
        sizes = sizes or Sizes.usual()
        capacity = fitting(model, capacity or Capacity(), driver.free_bytes())
        self._model: SpeechModel | None = model
        self._driver = driver
        self._clock = clock
        self._cuts_silence = cuts_silence
        self._buffers: Any = None  # FlightBuffers while open
        self._slots: dict[int, _OpenSlot] = {}
        self._lanes: dict[LaneName, deque[Flight]] = {lane: deque() for lane in LaneName}
        self._failed: list[JobResult] = []
        self._woken = threading.Event()
        self._capturing = threading.Lock()
        self.frame_s = model.info.frame_s
        self.sample_rate_hz = model.info.sample_rate_hz
        self.prepared = prepared_for(model, splits, sizes, capacity)
        self.defaults = _defaults(self.prepared, splits[0])
        try:
            self._start(model, splits, sizes, capacity, progress)
        except torch.OutOfMemoryError as error:
            self.close()
            raise DeviceUnavailable(
                f"the GPU's memory does not hold the executables beside {capacity.num_slots} "
                f"slots and {capacity.num_kv_pages} KV pages ({error}); end other programs on it"
            ) from error
        except BaseException:
            self.close()
            raise

    def _start(
        self,
        model: SpeechModel,
        splits: tuple[Split, ...],
        sizes: Sizes,
        capacity: Capacity,
        progress: Progress | None,
    ) -> None:
        times_s = [self._clock.now_s()]
        self._state: Any = model.allocate(capacity.size())
        times_s.append(self._clock.now_s())
        with torch.inference_mode():
            made = Executables(model, self._state, capacity.num_slots, sizes, self._driver)
            self._executables = made
            for split in splits:
                made.add_split(split, progress)
            self._driver.trim()
            self._buffers = FlightBuffers(made, self._driver.is_pinned)
            times_s.append(self._clock.now_s())
            self._timings = measure(model, self._state, made, self._driver, self.prepared)
        times_s.append(self._clock.now_s())
        self.cost: CostModel = self._timings
        names = ("allocate_s", "capture_s", "timing_s")
        self.start_report = {
            "launch": self._driver.launch_path,
            **dict(zip(names, np.diff(times_s).round(3).tolist(), strict=True)),
            "num_executables": sum(1 for _ in made.items()),
            "stage_ms": self._timings.measured_ms(),
        }

    # --- requests ----------------------------------------------------------------------------

    def open_slot(self, slot: int, request_id: int, prepared_request: PreparedRequest) -> None:
        """Gives `slot` to a request; the prefill of its first prompt resets its device state."""
        silence = LeadingSilence(self.sample_rate_hz) if self._cuts_silence else None
        self._slots[slot] = _OpenSlot(prepared_request, silence)

    def close_slot(self, slot: int) -> None:
        """Forgets the slot's request."""
        del self._slots[slot]

    def append_text(self, slot: int, start: int, ids: NDArray[np.int32], is_complete: bool) -> None:
        """Queues text tokens for a slot on the LM lane, behind its first prefill."""
        assert self._model is not None, "text for a closed executor"
        with torch.inference_mode(), self._driver.on(LaneName.LM):
            self._model.append_text(self._state, slot, start, ids, is_complete)

    # --- jobs --------------------------------------------------------------------------------

    def launch(self, job: Job) -> None:
        """Queues a job on its lane.

        Raises:
            EngineFailed: The device is in error.
        """
        start_s = self._clock.now_s()
        flight = Flight(job)
        try:
            with torch.inference_mode():
                steps = self._steps(job, flight)
                flight.ticket = self._driver.launch(job.lane, steps)
        except Exception as error:  # border: one job's inputs may be at fault, or the device
            self._buffers.give_back(flight)
            self._check_device(error)
            event = JobFailed(job.job_id, _told(error), start_s, self._clock.now_s())
            self._failed.append(JobResult(event))
            return
        self._lanes[job.lane].append(flight)

    def results(self, timeout_s: float) -> list[JobResult]:
        """Results that have landed, waiting up to `timeout_s` for the first.

        Raises:
            EngineFailed: The device is in error.
        """
        until_s = self._clock.now_s() + timeout_s
        while True:
            ended, self._failed = self._failed, []
            for flights in self._lanes.values():
                while flights and (span_s := self._span_s(flights[0])):
                    ended.append(self._result(flights.popleft(), *span_s))
            left_s = until_s - self._clock.now_s()
            if ended or left_s <= 0.0 or self._woken.is_set():
                break
            # NOTE: asking three events costs microseconds; a thread that waits for each would
            # have to be handed the interpreter first, and then hand over to this one.
            if any(self._lanes.values()):
                nap(min(left_s, _POLL_S))
            else:
                nap(left_s, self._woken)
        self._woken.clear()
        return ended

    def wake(self) -> None:
        """Makes a waiting `results` return; callable from any thread."""
        self._woken.set()

    def close(self) -> None:
        """Ends the lanes and frees the device's memory, after a capture in progress."""
        with self._capturing:
            self._close()

    def _close(self) -> None:
        try:
            self._driver.wait_all()
        finally:
            for flights in self._lanes.values():
                flights.clear()
            self._slots.clear()
            if hasattr(self, "_executables"):
                self._executables.clear()
            self._state = self._model = self._buffers = None
            self._driver.close()

    def add_split(self, split: Split) -> Prepared:
        """Captures another split while serving, on the caller's thread; returns what is prepared.

        Raises:
            DeviceUnavailable: There is no memory, or the device cannot be split so.
            EngineStopped: The executor was closed meanwhile.
        """
        with self._capturing, torch.inference_mode():
            if self._model is None:
                raise EngineStopped("the engine was stopped before the split was captured")
            try:
                self._executables.add_split(split)
            except torch.OutOfMemoryError as error:
                raise DeviceUnavailable(f"no memory for the split {split}: {error}") from error
        have = dict.fromkeys((*self.prepared.splits, split))
        self.prepared = replace(self.prepared, splits=tuple(have))
        return self.prepared

    # --- launching ---------------------------------------------------------------------------

    def _steps(self, job: Job, flight: Flight) -> list[Step]:
        if isinstance(job, PrefillJob):
            return self._prefill_steps(job, flight)
        if isinstance(job, DecodeJob):
            executable, rows = self._executables.decode(job), job.slots
        else:
            executable, rows = self._executables.codec(job), job.chunks
        executable.program.fill(self._buffers.stage(flight, executable), rows)
        return [self._buffers.step(flight, executable, range(len(rows)))]

    def _prefill_steps(self, job: PrefillJob, flight: Flight) -> list[Step]:
        pieces = [
            self._slots[slot].request.pieces[number]
            for slot, number in zip(job.slots, job.pieces, strict=True)
        ]
        assert all(piece.features is None for piece in pieces), "features are not captured yet"
        tokens = [piece.num_tokens for piece in pieces]
        steps: list[Step] = []
        for rows in self._executables.prefill_parts(job, tokens):
            executable = self._executables.prefill(sum(tokens[i] for i in rows), len(rows))
            staged = self._buffers.stage(flight, executable)
            slots = [job.slots[i] for i in rows]
            opened = self._opened(job, rows)
            executable.program.fill(staged, slots, [pieces[i] for i in rows], opened)
            steps.append(self._buffers.step(flight, executable, rows))
        return steps

    def _opened(self, job: PrefillJob, rows: range) -> dict[int, NDArray[np.int32]]:
        """What opens the slots of requests that begin in these rows."""
        assert self._model is not None, "launched on a closed executor"
        begin = ((job.slots[row], job.kv_pages[row]) for row in rows if job.pieces[row] == 0)
        return {
            slot: self._model.open_row(self._state, self._slots[slot].request, pages)
            for slot, pages in begin
        }

    # --- collecting --------------------------------------------------------------------------

    def _span_s(self, flight: Flight) -> tuple[float, float] | None:
        """When a flight began and landed; None while it is out."""
        driver, ticket = self._driver, flight.ticket
        try:
            return driver.span_s(ticket) if driver.is_done(ticket) else None
        except Exception as error:  # border: the device tells its error to whoever asks next
            raise EngineFailed(f"the device is in error: {_told(error)}") from error

    def _result(self, flight: Flight, start_s: float, end_s: float) -> JobResult:
        job = flight.job
        self._timings.observe(job, end_s - start_s)
        if isinstance(job, CodecJob):
            result = self._codec_result(job, flight, start_s, end_s)
        else:
            parts = [item.buffer.array[: len(item.rows)] for item in flight.landings]
            status = np.concatenate(parts)  # a copy: the buffers are used again
            result = JobResult(StepDone(job.job_id, status, start_s, end_s))
        self._buffers.give_back(flight)
        return result

    def _codec_result(
        self, job: CodecJob, flight: Flight, start_s: float, end_s: float
    ) -> JobResult:
        assert self._model is not None, "collected from a closed executor"
        landing, info = flight.landings[0], self._model.info
        program, landed = landing.executable.program, landing.buffer.array
        is_finite = landed[: program.bucket]
        wave = landed[program.bucket : program.used(len(job.chunks))]
        wave = wave.reshape(len(job.chunks), program.samples)
        failed: dict[int, str] = {}
        pcm: list[NDArray[np.int16]] = []
        for row, chunk in enumerate(job.chunks):
            length = info.chunk_samples(chunk.first_frame, chunk.num_frames, chunk.is_last)
            samples = _copied(wave[row, :length])
            if not is_finite[row]:
                failed[row], samples = _NOT_FINITE, samples[:0]
            silence = self._slots[chunk.slot].silence
            pcm.append(samples if silence is None else silence.cut(samples, chunk.is_last))
        counts = tuple(len(samples) for samples in pcm)
        return JobResult(CodecDone(job.job_id, counts, start_s, end_s, failed), tuple(pcm))

    def _check_device(self, error: Exception) -> None:
        """A device error spares nobody: the engine must end."""
        try:
            self._driver.check()
        except Exception as found:
            raise EngineFailed(f"the device is in error: {_told(found)}") from error


def prepared_for(
    model: SpeechModel, splits: tuple[Split, ...], sizes: Sizes, capacity: Capacity
) -> Prepared:
    """What a GPU with these executables and pools can be set to."""
    return Prepared(
        splits=splits,
        decode_buckets=sizes.decode,
        codec_buckets=sizes.codec,
        urgent_buckets=sizes.urgent,
        prefill_buckets=sizes.prefill,
        chunk_frames=sizes.chunk_frames,
        num_slots=capacity.num_slots,
        num_kv_pages=capacity.num_kv_pages,
        kv_page_tokens=KV_PAGE_TOKENS,
        max_context_tokens=model.info.max_context_tokens,
        lm_depth=2,
        max_request_frames=capacity.max_frames,
    )


def _defaults(prepared: Prepared, split: Split) -> Settings:
    usual = Settings()
    return Settings(
        sm_split=split,
        background_batch=min(usual.background_batch, prepared.codec_buckets[-1]),
        max_background_batch=_at_most(prepared.codec_buckets, usual.max_background_batch),
        max_decode_batch=prepared.decode_buckets[-1],
        urgent_batch=_at_most(prepared.urgent_buckets, usual.urgent_batch),
        chunk_ramp=(prepared.chunk_frames[-1],),
        max_running=prepared.num_slots,
        decode_steps_per_prefill=GPU_STEPS_PER_PREFILL,
    )


def _at_most(buckets: tuple[int, ...], limit: int) -> int:
    return max((bucket for bucket in buckets if bucket <= limit), default=buckets[0])


def _copied(samples: NDArray[np.int16]) -> NDArray[np.int16]:
    """A copy. numpy's own of more than 500 elements lets go of the interpreter meanwhile."""
    return np.frombuffer(bytearray(samples.data), np.int16)


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, VoxserveError) else f"{type(error).__name__}: {error}"
