"""The GPU executor: three lanes of captured executables, fed without ever waiting for the device.

A launch fills a pinned buffer and queues copies and a replay; the host reads nothing but end flags
and PCM, when their copies have landed. The next decode step is launched before the flags of the
one before are read (`Prepared.lm_depth` = 2).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from voxserve.core.clock import Clock
from voxserve.core.errors import DeviceUnavailable, EngineFailed
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
from voxserve.core.settings import Prepared, Settings, Split
from voxserve.models.base import Piece, PreparedRequest, SpeechModel
from voxserve.runtime.capacity import KV_PAGE_TOKENS, Capacity, fitting
from voxserve.runtime.driver import Driver, Step
from voxserve.runtime.executables import Executable, Executables, Progress, Sizes
from voxserve.runtime.leading_silence import LeadingSilence
from voxserve.runtime.pinned import PinnedBuffer, PinnedPool
from voxserve.runtime.stage_timing import measure

_POLL_S = 50e-6
_NOT_FINITE = "the codec made samples that are not finite numbers"


@dataclass(slots=True, eq=False)
class _InFlight:
    job: Job
    ticket: Any
    staged: list[PinnedBuffer]
    landed: list[tuple[PinnedBuffer, Executable, range]]


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
        self._slots: dict[int, _OpenSlot] = {}
        self._lanes: dict[LaneName, deque[_InFlight]] = {lane: deque() for lane in LaneName}
        self._failed: list[JobResult] = []
        self._woken = threading.Event()
        self.frame_s = model.info.frame_s
        self.sample_rate_hz = model.info.sample_rate_hz
        self.prepared = _prepared(model, splits, sizes, capacity)
        self.defaults = _defaults(self.prepared, splits[0])
        self._has_pages = capacity.num_kv_pages > 0
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
            self._make_pools(made)
            times_s.append(self._clock.now_s())
            self._timings = measure(model, self._state, made, self._driver, self.prepared)
        times_s.append(self._clock.now_s())
        self.cost: CostModel = self._timings
        names = ("allocate_s", "capture_s", "timing_s")
        self.start_report = {
            **dict(zip(names, np.diff(times_s).round(3).tolist(), strict=True)),
            "num_executables": sum(1 for _ in made.items()),
            "stage_ms": self._timings.measured_ms(),
        }

    def _make_pools(self, made: Executables) -> None:
        is_pinned = self._driver.is_pinned
        by_stage: dict[str, list[Executable]] = {"prefill": [], "decode": [], "codec": []}
        for key, executable in made.items():
            by_stage[key.stage].append(executable)
        # Inputs of a launch are read by a copy that may start long after: two jobs per LM lane
        # and one per codec lane, and one to fill.
        self._staging = {
            stage: PinnedPool(_largest(items, "inputs"), torch.int32, is_pinned, count=3)
            for stage, items in by_stage.items()
        }
        steps = by_stage["prefill"] + by_stage["decode"]
        self._flags = PinnedPool(_largest(steps, "outputs"), torch.int8, is_pinned, count=3)
        self._pcm = PinnedPool(
            _largest(by_stage["codec"], "outputs"), torch.int16, is_pinned, count=2
        )

    # --- requests ----------------------------------------------------------------------------

    def open_slot(self, slot: int, request_id: int, prepared_request: PreparedRequest) -> None:
        """Gives `slot` to a request; its device state is reset by the job of its first prompt."""
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
        flight = _InFlight(job, None, [], [])
        try:
            with torch.inference_mode():
                steps = self._steps(job, flight)
                flight.ticket = self._driver.launch(job.lane, steps)
        except Exception as error:  # border: one job's inputs may be at fault, or the device
            self._give_back(flight)
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
                while flights and self._is_done(flights[0]):
                    ended.append(self._result(flights.popleft()))
            left_s = until_s - self._clock.now_s()
            if ended or left_s <= 0.0 or self._woken.is_set():
                break
            # NOTE: asking three events costs microseconds; a thread that waits for each would
            # have to be handed the interpreter first, and then hand over to this one.
            is_idle = not any(self._lanes.values())
            self._woken.wait(left_s if is_idle else min(left_s, _POLL_S))
        self._woken.clear()
        return ended

    def wake(self) -> None:
        """Makes a waiting `results` return; callable from any thread."""
        self._woken.set()

    def close(self) -> None:
        """Ends the lanes and frees the device's memory."""
        try:
            self._driver.wait_all()
        finally:
            for flights in self._lanes.values():
                flights.clear()
            self._slots.clear()
            if hasattr(self, "_executables"):
                self._executables.clear()
            for name in ("_staging", "_flags", "_pcm"):
                if hasattr(self, name):
                    delattr(self, name)
            self._state = self._model = None
            self._driver.close()

    def add_split(self, split: Split, progress: Progress | None = None) -> Prepared:
        """Captures another split while serving, on the caller's thread; returns what is prepared.

        Raises:
            DeviceUnavailable: There is no memory, or the device cannot be split so.
        """
        try:
            with torch.inference_mode():
                self._executables.add_split(split, progress)
        except torch.OutOfMemoryError as error:
            raise DeviceUnavailable(f"no memory for the split {split}: {error}") from error
        have = dict.fromkeys((*self.prepared.splits, split))
        self.prepared = replace(self.prepared, splits=tuple(have))
        return self.prepared

    # --- launching ---------------------------------------------------------------------------

    def _steps(self, job: Job, flight: _InFlight) -> list[Step]:
        if isinstance(job, DecodeJob):
            executable = self._executables.decode(job)
            rows = range(len(job.slots))
            staged = self._staged("decode", flight)
            executable.program.fill(self._input(staged, executable), job.slots)
            return [self._step(flight, executable, staged, self._flags, rows)]
        if isinstance(job, CodecJob):
            executable = self._executables.codec(job)
            rows = range(len(job.chunks))
            staged = self._staged("codec", flight)
            executable.program.fill(self._input(staged, executable), job.chunks)
            return [self._step(flight, executable, staged, self._pcm, rows)]
        return self._prefill_steps(job, flight)

    def _prefill_steps(self, job: PrefillJob, flight: _InFlight) -> list[Step]:
        pieces = self._opened(job)
        tokens = [piece.num_tokens for piece in pieces]
        steps: list[Step] = []
        for rows in self._executables.prefill_parts(job, tokens):
            executable = self._executables.prefill(sum(tokens[i] for i in rows), len(rows))
            staged = self._staged("prefill", flight)
            slots = [job.slots[i] for i in rows]
            part = [pieces[i] for i in rows]
            executable.program.fill(self._input(staged, executable), slots, part)
            steps.append(self._step(flight, executable, staged, self._flags, rows))
        return steps

    def _opened(self, job: PrefillJob) -> list[Piece]:
        """The prompts; resets the device state of requests that begin, in the lane's order."""
        assert self._model is not None, "launched on a closed executor"
        pieces: list[Piece] = []
        with self._driver.on(LaneName.LM):
            for slot, number, pages in zip(job.slots, job.pieces, job.kv_pages, strict=True):
                request = self._slots[slot].request
                if number == 0:
                    if self._has_pages:
                        self._model.assign_pages(self._state, slot, pages)
                    self._model.open_slot(self._state, slot, request)
                piece = request.pieces[number]
                assert piece.features is None, "prompts with features are not captured yet"
                pieces.append(piece)
        return pieces

    def _staged(self, stage: str, flight: _InFlight) -> PinnedBuffer:
        buffer = self._staging[stage].take()
        flight.staged.append(buffer)
        return buffer

    def _input(self, staged: PinnedBuffer, executable: Executable) -> NDArray[np.int32]:
        return staged.array[: executable.program.inputs.numel()]

    def _step(
        self,
        flight: _InFlight,
        executable: Executable,
        staged: PinnedBuffer,
        pool: PinnedPool,
        rows: range,
    ) -> Step:
        program = executable.program
        landing = pool.take()
        flight.landed.append((landing, executable, rows))
        used = program.used(len(rows)) if pool is self._pcm else len(rows)
        return Step(
            source=staged.tensor[: program.inputs.numel()],
            inputs=program.inputs,
            replay=executable.replay,
            outputs=program.outputs[:used],
            landing=landing.tensor[:used],
        )

    # --- collecting --------------------------------------------------------------------------

    def _is_done(self, flight: _InFlight) -> bool:
        try:
            return self._driver.is_done(flight.ticket)
        except Exception as error:  # border: the device tells its error to whoever asks next
            raise EngineFailed(f"the device is in error: {_told(error)}") from error

    def _result(self, flight: _InFlight) -> JobResult:
        job = flight.job
        start_s, end_s = self._driver.span_s(flight.ticket)
        self._timings.observe(job, end_s - start_s)
        if isinstance(job, CodecJob):
            result = self._codec_result(job, flight, start_s, end_s)
        else:
            parts = [landing.array[: len(rows)] for landing, _, rows in flight.landed]
            status = np.concatenate(parts)  # a copy: the buffers are used again
            result = JobResult(StepDone(job.job_id, status, start_s, end_s))
        self._give_back(flight)
        return result

    def _codec_result(
        self, job: CodecJob, flight: _InFlight, start_s: float, end_s: float
    ) -> JobResult:
        assert self._model is not None, "collected from a closed executor"
        landing, executable, _ = flight.landed[0]
        program, info = executable.program, self._model.info
        is_finite = landing.array[: program.bucket]
        wave = landing.array[program.bucket : program.used(len(job.chunks))]
        wave = wave.reshape(len(job.chunks), program.samples)
        failed: dict[int, str] = {}
        pcm: list[NDArray[np.int16]] = []
        for row, chunk in enumerate(job.chunks):
            length = info.chunk_samples(chunk.first_frame, chunk.num_frames, chunk.is_last)
            samples = wave[row, :length].copy()
            if not is_finite[row]:
                failed[row], samples = _NOT_FINITE, samples[:0]
            silence = self._slots[chunk.slot].silence
            pcm.append(samples if silence is None else silence.cut(samples, chunk.is_last))
        counts = tuple(len(samples) for samples in pcm)
        return JobResult(CodecDone(job.job_id, counts, start_s, end_s, failed), tuple(pcm))

    def _give_back(self, flight: _InFlight) -> None:
        stage = flight.job.kind.value
        for buffer in flight.staged:
            self._staging[stage].give_back(buffer)
        pool = self._pcm if isinstance(flight.job, CodecJob) else self._flags
        for landing, _, _ in flight.landed:
            pool.give_back(landing)

    def _check_device(self, error: Exception) -> None:
        """A device error spares nobody: the engine must end."""
        try:
            self._driver.check()
        except Exception as found:
            raise EngineFailed(f"the device is in error: {_told(found)}") from error


def _prepared(
    model: SpeechModel, splits: tuple[Split, ...], sizes: Sizes, capacity: Capacity
) -> Prepared:
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
    )


def _at_most(buckets: tuple[int, ...], limit: int) -> int:
    return max((bucket for bucket in buckets if bucket <= limit), default=buckets[0])


def _largest(executables: Iterable[Executable], name: str) -> int:
    return max(getattr(item.program, name).numel() for item in executables)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
