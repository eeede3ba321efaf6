"""The CPU executor: every lane is a thread, every job a few eager model calls.

Owns the lanes, the model's per-slot state and the host-side data of open slots. Nothing is
captured, so a job runs with the rows it has; buckets only bound it.
"""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from voxserve.core.clock import Clock
from voxserve.core.errors import EngineFailed
from voxserve.core.jobs import (
    CodecDone,
    CodecJob,
    DecodeJob,
    Job,
    JobFailed,
    LaneName,
    PrefillJob,
    RowStatus,
    StepDone,
)
from voxserve.core.protocols import CostModel, JobResult
from voxserve.core.settings import Prepared, Settings, Split
from voxserve.models.base import SpeechModel, StateSize
from voxserve.models.request import PreparedRequest
from voxserve.runtime.cpu_timing import measure
from voxserve.runtime.lane import CpuLane, use_threads
from voxserve.runtime.leading_silence import LeadingSilence
from voxserve.runtime.pcm import to_int16

CHUNK_FRAMES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20)
# The bundled model's sound begins in its fourth or fifth frame: six give the first delivery 80 ms
# or more. Then small steps while little audio is buffered, because a chunk must be made while the
# one before plays: this ramp does not stall as long as a decode step takes no more than 40 ms.
CHUNK_RAMP = (6, 2, 2, 4, 6, 10)
ROW_BUCKETS = (1, 2, 4, 8, 16, 32)
PREFILL_TOKENS = (128, 256, 512, 1024)
NUM_SLOTS = 32
MAX_FRAMES = 4096  # of one request: five and a half minutes at 12.5 frames a second
_CLOSE_S = 10.0
_JobOutcome = tuple[Job, JobResult]


def thread_splits(cores: int) -> tuple[Split, ...]:
    """The splits of a CPU: threads of the backbone's lane and of each codec lane.

    1/1 always exists (on one core the lanes take turns); "none" gives every lane all cores.
    """
    cores = max(cores, 2)
    counts = [n for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32) if n < cores]
    pairs = (Split(lm, codec) for lm in counts for codec in counts if lm + codec <= cores)
    return (*pairs, Split())


def prepared_for(model: SpeechModel, cores: int) -> Prepared:
    """What a CPU with so many cores can be set to."""
    return Prepared(
        splits=thread_splits(cores),
        decode_buckets=ROW_BUCKETS,
        codec_buckets=ROW_BUCKETS,
        urgent_buckets=(1, 2, 4, 8),
        prefill_buckets=PREFILL_TOKENS,
        chunk_frames=CHUNK_FRAMES,
        num_slots=NUM_SLOTS,
        max_context_tokens=model.info.max_context_tokens,
        max_request_frames=MAX_FRAMES,
    )


@dataclass(slots=True)
class _OpenSlot:
    request: PreparedRequest
    silence: LeadingSilence
    context_tokens: int = 0
    text_error: Exception | None = None


class CpuExecutor:
    """Runs the scheduler's jobs on this machine's cores (see `core.protocols.Executor`).

    Args:
        model: A model loaded on the CPU.
        clock: Stamps the start and end of jobs; the engine's.
        name: In the names of the threads.
    """

    def __init__(self, model: SpeechModel, clock: Clock, name: str = "default") -> None:
        self._cores = os.cpu_count() or 1
        self.prepared = prepared_for(model, self._cores)
        self.defaults = Settings(
            sm_split=Split(1, 1),
            chunk_ramp=CHUNK_RAMP,
            ttfa_target_s=0.5,
            max_background_batch=ROW_BUCKETS[-1],
            max_decode_batch=ROW_BUCKETS[-1],
            max_running=NUM_SLOTS,
        )
        self.frame_s = model.info.frame_s
        self.sample_rate_hz = model.info.sample_rate_hz
        self._model = model
        self._clock = clock
        size = StateSize(NUM_SLOTS, num_kv_pages=0, kv_page_tokens=64, max_frames=MAX_FRAMES)
        self._state: Any = model.allocate(size)
        self._slots: dict[int, _OpenSlot] = {}
        self._results: queue.SimpleQueue[_JobOutcome | BaseException | None] = queue.SimpleQueue()
        self._lanes = {
            lane: CpuLane(f"voxserve-{name}-{lane}", self._results.put) for lane in LaneName
        }
        try:
            self._timings = measure(model, self._state, self._lanes, clock)
        except BaseException:
            self.close()
            raise
        self.cost: CostModel = self._timings

    def open_slot(self, slot: int, request_id: int, prepared_request: PreparedRequest) -> None:
        """Gives `slot` to a request; its device state is reset by the job of its first prompt."""
        self._slots[slot] = _OpenSlot(prepared_request, LeadingSilence(self.sample_rate_hz))

    def close_slot(self, slot: int) -> None:
        """Forgets the slot's request."""
        del self._slots[slot]

    def launch(self, job: Job) -> None:
        """Queues a job on its lane."""
        self._lanes[job.lane].put(partial(self._run, job))

    def append_text(self, slot: int, start: int, ids: NDArray[np.int32], is_complete: bool) -> None:
        """Queues text tokens for a slot on the LM lane, behind its first prefill."""
        add = partial(self._model.append_text, self._state, slot, start, ids, is_complete)
        opened = self._slots[slot]

        def work() -> None:
            try:
                add()
            except Exception as error:  # told by the request's next step
                opened.text_error = error

        self._lanes[LaneName.LM].put(work)

    def results(self, timeout_s: float) -> list[JobResult]:
        """Results that are there, waiting up to `timeout_s` for the first.

        Raises:
            EngineFailed: A lane ended because of an error outside its jobs.
        """
        ended: list[JobResult] = []
        try:
            item = self._results.get(timeout=max(timeout_s, 0.0))
            while True:
                if isinstance(item, BaseException):
                    raise EngineFailed(f"a lane of the CPU executor ended: {item!r}") from item
                if item is not None:
                    job, result = item
                    self._timings.observe(job, result.event.end_s - result.event.start_s)
                    ended.append(result)
                item = self._results.get_nowait()
        except queue.Empty:
            return ended

    def wake(self) -> None:
        """Makes a waiting `results` return; callable from any thread."""
        self._results.put(None)

    def close(self) -> None:
        """Ends the lanes and drops the state.

        Raises:
            EngineFailed: A job did not end within 10 s; its daemon thread is left behind.
        """
        stuck = [lane for lane, worker in self._lanes.items() if not worker.close(_CLOSE_S)]
        self._lanes.clear()
        self._slots.clear()
        self._state = None
        del self._model
        if stuck:
            raise EngineFailed(f"the {', '.join(stuck)} lane did not end within {_CLOSE_S:.0f} s")

    def _run(self, job: Job) -> None:
        use_threads(self._threads(job))
        start_s, start_cpu_s = self._clock.now_s(), time.thread_time()
        try:
            if isinstance(job, CodecJob):
                result = self._codec_result(job, start_s)
            else:
                result = self._step_result(job, start_s)
        except Exception as error:  # the border between a job and the engine: see JobFailed
            event = JobFailed(job.job_id, _told(error), start_s, self._clock.now_s())
            result = JobResult(event)
        idle_s = result.event.end_s - start_s - (time.thread_time() - start_cpu_s)
        # Lanes that share cores take them from each other: that is no fault of the host.
        stolen_s = 0.0 if self._shares_cores(job.split) else max(0.0, idle_s)
        self._results.put((job, replace(result, stolen_s=stolen_s)))

    def _shares_cores(self, split: Split) -> bool:
        return split.is_none or split.lm_sms + split.codec_sms > self._cores

    def _threads(self, job: Job) -> int:
        if job.split.is_none:
            return self._cores
        return job.split.lm_sms if job.lane is LaneName.LM else job.split.codec_sms

    def _step_result(self, job: PrefillJob | DecodeJob, start_s: float) -> JobResult:
        slots = np.asarray(job.slots, np.int32)
        compute = self._prefill_rows if isinstance(job, PrefillJob) else self._decode_rows
        failed = _run_rows(partial(compute, job), len(slots))
        status = self._state.status[torch.from_numpy(slots).long()].numpy().astype(np.int8)
        status[list(failed)] = RowStatus.END
        return JobResult(StepDone(job.job_id, status, start_s, self._clock.now_s(), failed))

    def _prefill_rows(self, job: PrefillJob, rows: list[int]) -> None:
        slots = tuple(job.slots[row] for row in rows)
        pieces = []
        for row, slot in zip(rows, slots, strict=True):
            opened = self._slots[slot]
            if job.pieces[row] == 0:
                self._model.open_slot(self._state, slot, opened.request)
            pieces.append(opened.request.pieces[job.pieces[row]])
            opened.context_tokens = pieces[-1].num_tokens
        inputs = self._model.pack_prefill(slots, tuple(pieces), torch.device("cpu"))
        self._model.prefill(self._state, inputs)

    def _decode_rows(self, job: DecodeJob, rows: list[int]) -> None:
        slots = job.slots[rows]
        opened = [self._slots[slot] for slot in slots.tolist()]
        for slot in opened:
            if slot.text_error is not None:
                raise slot.text_error
        longest = max(slot.context_tokens for slot in opened) + 1
        self._model.decode(self._state, torch.from_numpy(slots), longest)
        for slot in opened:
            slot.context_tokens += 1

    def _codec_result(self, job: CodecJob, start_s: float) -> JobResult:
        decoded: dict[int, torch.Tensor] = {}
        failed = _run_rows(partial(self._codec_rows, job, decoded), len(job.chunks))
        pcm = [np.zeros(0, np.int16)] * len(job.chunks)
        for row, samples in decoded.items():
            if bool(torch.isfinite(samples).all()):
                chunk = job.chunks[row]
                silence = self._slots[chunk.slot].silence
                pcm[row] = silence.cut(to_int16(samples), chunk.is_last)
            else:
                failed[row] = "the codec made samples that are not finite numbers"
        counts = tuple(len(samples) for samples in pcm)
        event = CodecDone(job.job_id, counts, start_s, self._clock.now_s(), failed)
        return JobResult(event, tuple(pcm))

    def _codec_rows(self, job: CodecJob, decoded: dict[int, torch.Tensor], rows: list[int]) -> None:
        chunks = [job.chunks[row] for row in rows]
        out = self._model.codec(
            self._state,
            _int32([chunk.slot for chunk in chunks]),
            _int32([chunk.first_frame for chunk in chunks]),
            _int32([chunk.num_frames for chunk in chunks]),
            torch.tensor([chunk.is_last for chunk in chunks]),
            max(1, max(chunk.num_frames for chunk in chunks)),
        )
        for row, chunk, samples in zip(rows, chunks, out, strict=True):
            length = self._model.info.chunk_samples(
                chunk.first_frame, chunk.num_frames, chunk.is_last
            )
            decoded[row] = samples[:length]


def _run_rows(compute: Callable[[list[int]], None], num_rows: int) -> dict[int, str]:
    """Computes all rows as one batch; if that raises, each row alone, so that only the guilty fail.

    Stages change a slot's state only when they succeed, so a row can be computed again.
    """
    try:
        compute(list(range(num_rows)))
        return {}
    except Exception as error:  # any model code may be behind it
        if num_rows == 1:
            return {0: _told(error)}
    failed: dict[int, str] = {}
    for row in range(num_rows):
        try:
            compute([row])
        except Exception as error:
            failed[row] = _told(error)
    return failed


def _int32(values: list[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
