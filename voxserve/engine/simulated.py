"""The simulated GPU in real time: measured stage times on the engine's clock, speech from a model.

A listened request is spoken by the real model on this machine's CPU before it is submitted; its
samples are then delivered chunk by chunk when the simulated GPU would have delivered them, so a
stall is heard as a stall. Background load is simulated only.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from voxserve.core.clock import Clock
from voxserve.core.jobs import CodecDone, CodecJob, Job
from voxserve.core.profile import Profile
from voxserve.core.protocols import CostModel, JobResult
from voxserve.core.settings import Prepared
from voxserve.engine.renderer import RenderedRequest
from voxserve.models.base import ModelInfo
from voxserve.runtime.nap import nap
from voxserve.sim.cost import ProfileCost
from voxserve.sim.device import default_settings
from voxserve.sim.gpu import Ended, SimulatedGpu, outcome

_log = logging.getLogger("voxserve")


class SimulatedExecutor:
    """Runs jobs on a simulated GPU as time passes (see `core.protocols.Executor`).

    Args:
        profile: Stage times.
        prepared: What the simulated device is prepared for.
        clock: The engine's.
        info: Of the model whose speech is delivered.
        on_close: Called when the engine ends.
    """

    def __init__(
        self,
        profile: Profile,
        prepared: Prepared,
        clock: Clock,
        info: ModelInfo,
        on_close: Callable[[], None],
    ) -> None:
        self.prepared = prepared
        self.defaults = default_settings(profile, prepared)
        self._stages = ProfileCost(profile, prepared)
        self._stages.on_note = lambda note: _log.warning("simulated %s: %s", profile.device, note)
        self.cost: CostModel = self._stages
        self.frame_s = info.frame_s
        self.sample_rate_hz = info.sample_rate_hz
        self._clock = clock
        self._gpu = SimulatedGpu(self._stages)
        self._frame_samples = info.frame_samples
        self._slots: dict[int, RenderedRequest] = {}
        self._ended: list[Ended] = []
        self._woken = threading.Event()
        self._on_close = on_close
        largest = prepared.chunk_frames[-1] * self._frame_samples
        self._silence = np.zeros(largest, np.int16)

    @property
    def notes(self) -> tuple[str, ...]:
        """Where the profile was continued or a default was used."""
        return self._stages.notes

    def open_slot(self, slot: int, request_id: int, prepared_request: RenderedRequest) -> None:
        """Gives `slot` to a request."""
        self._slots[slot] = prepared_request

    def close_slot(self, slot: int) -> None:
        """Forgets the slot's request."""
        del self._slots[slot]

    def launch(self, job: Job) -> None:
        """Queues a job on its simulated lane, now."""
        self._ended += self._gpu.launch(job, self._clock.now_s())

    def results(self, timeout_s: float) -> list[JobResult]:
        """Jobs that have ended by now, waiting up to `timeout_s` for the first."""
        until_s = self._clock.now_s() + timeout_s
        while True:
            now_s = self._clock.now_s()
            self._ended += self._gpu.advance(now_s)
            if self._ended or self._woken.is_set() or now_s >= until_s:
                break
            nap(min(self._gpu.next_end_s, until_s) - now_s, self._woken)
        self._woken.clear()
        ended, self._ended = self._ended, []
        return [self._result(item) for item in ended]

    def wake(self) -> None:
        """Makes a waiting `results` return; callable from any thread."""
        self._woken.set()

    def close(self) -> None:
        """Forgets everything and ends the renderer."""
        self._slots.clear()
        self._on_close()

    def _result(self, ended: Ended) -> JobResult:
        event = outcome(ended, self._frame_samples, 0)
        if not (isinstance(ended.job, CodecJob) and isinstance(event, CodecDone)):
            return JobResult(event)
        chunks = ended.job.chunks
        places = (chunks.slot, chunks.first_frame, chunks.num_frames)
        pcm = tuple(map(self._samples, *(column.tolist() for column in places)))
        return JobResult(replace(event, num_samples=tuple(len(item) for item in pcm)), pcm)

    def _samples(self, slot: int, first_frame: int, num_frames: int) -> NDArray[np.int16]:
        request = self._slots.get(slot)
        length = num_frames * self._frame_samples
        if request is None or len(request.pcm) == 0:
            return self._silence[:length]
        start = first_frame * self._frame_samples
        return request.pcm[start : start + length]
