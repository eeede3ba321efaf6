"""Speaks a whole text before it is "served": the voice of the simulated GPU."""

from __future__ import annotations

import math
import sys
import threading
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import count

import numpy as np
from numpy.typing import NDArray

from voxserve.core.clock import Clock
from voxserve.core.errors import EngineStopped, InvalidInput, RequestCancelled, RequestFailed
from voxserve.core.events import Trace
from voxserve.core.jobs import Cancel, RequestEnded
from voxserve.core.request import FinishReason, RequestState
from voxserve.core.workload import Utterance, utterance_of_words
from voxserve.engine.abandon import is_abandoned
from voxserve.engine.intake import Intake
from voxserve.engine.mailbox import DeliveredChunk, Mailbox
from voxserve.engine.monitor import Monitor
from voxserve.engine.service import Service
from voxserve.models.base import SpeechModel
from voxserve.models.request import Piece, PreparedRequest, SpeechOptions
from voxserve.sched.scheduler import Scheduler

_KEPT = 32  # utterances kept, so that comparing two settings speaks a text once
_NOTE_AFTER_S = 0.5  # speaking that takes less needs no note
_SLICE_S = 0.1
_OPTIONS = SpeechOptions()


def _no_samples() -> NDArray[np.int16]:
    return np.zeros(0, np.int16)


@dataclass(frozen=True, slots=True, eq=False)
class RenderedRequest(PreparedRequest):
    """A request whose samples exist already.

    Attributes:
        pcm: [samples] int16 of the whole utterance; empty for background load.
    """

    pcm: NDArray[np.int16] = field(default_factory=_no_samples)


class Renderer:
    """Stands in for the model at the engine's border: `preprocess` speaks the whole text.

    The real model speaks through the real CPU lanes, started with the first text. The engine sees
    a request of one piece whose length is known.

    Args:
        model: A model loaded on the CPU.
        clock: The engine's.
        name: The engine's, for thread names.

    Attributes:
        info: The model's facts, for an engine that delivers finished samples.
    """

    def __init__(self, model: SpeechModel, clock: Clock, name: str) -> None:
        self._model = model
        self._clock = clock
        self._name = f"{name}-voice"
        self._stopped = f"engine {name!r} was stopped; call start() or make a new Engine"
        self._lock = threading.Lock()
        self._gate = threading.Lock()  # the start of the lanes and their end
        self._is_closed = False
        self._intake: Intake | None = None
        self._spoken: OrderedDict[tuple[str, SpeechOptions], RenderedRequest] = OrderedDict()
        self.info = replace(
            model.info, codec_delay_samples=0, lookahead_frames=0, accepts_streamed_text=False
        )

    def preprocess(self, text: str, options: SpeechOptions) -> RenderedRequest:
        """Speaks a text, or finds it spoken before; takes as long as the model needs.

        Raises:
            InvalidInput: As the model says, or it made no sound.
        """
        key = (text, options)
        with self._lock:  # one at a time: they would share the same cores
            _check_wanted()
            if key not in self._spoken:
                self._spoken[key] = self._speak(text, options)
                while len(self._spoken) > _KEPT:
                    self._spoken.popitem(last=False)
            self._spoken.move_to_end(key)
            return self._spoken[key]

    def prepare_load(self, utterance: Utterance, seed: int) -> RenderedRequest:
        """A request of the utterance's lengths, without sound."""
        piece = _piece(utterance.prompt_tokens)
        return RenderedRequest((piece,), utterance.num_frames(self.info.frame_s), _OPTIONS)

    def close(self) -> None:
        """Ends the lanes that speak; a text being spoken ends with an error."""
        with self._gate:
            self._is_closed = True  # a text that waited for its turn must not start them again
            intake, self._intake = self._intake, None
        if intake is not None:
            intake.service.stop()
        self._spoken.clear()

    def _speak(self, text: str, options: SpeechOptions) -> RenderedRequest:
        prepared = self._model.preprocess(text, options)
        try:
            intake = self._voice()
            start_s = self._clock.now_s()
            pcm, reason = self._read(intake, prepared, start_s)
        except EngineStopped:  # of the lanes here, which users do not know
            raise EngineStopped(self._stopped) from None
        if len(pcm) == 0:
            raise InvalidInput(f"{self.info.name} made no sound of {text!r}")
        seconds = self._clock.now_s() - start_s
        spoken = " ".join(piece.text for piece in prepared.pieces)
        tokens = utterance_of_words(max(1, len(spoken.split()))).prompt_tokens
        note = f"spoken by {self.info.name} in {seconds:.1f} s, then delivered as simulated"
        return RenderedRequest(
            pieces=(replace(_piece(tokens), text=spoken),),
            max_frames=math.ceil(len(pcm) / self.info.frame_samples),
            options=options,
            notes=(*prepared.notes, note),
            finish_reason=reason,
            pcm=pcm,
        )

    def _voice(self) -> Intake:
        """The lanes that speak, started with the first text."""
        with self._gate:
            if self._is_closed:
                raise EngineStopped(self._stopped)
            if self._intake is None:
                self._intake = _cpu_intake(self._model, self._clock, self._name)
            return self._intake

    def _read(
        self, intake: Intake, prepared: PreparedRequest, start_s: float
    ) -> tuple[NDArray[np.int16], FinishReason | None]:
        """All samples of a request served on the CPU and how it ended; tells when it takes long."""
        mailbox = Mailbox()
        request_id = intake.submit(prepared, mailbox, start_s, has_listener=False)
        chunks: list[NDArray[np.int16]] = []
        is_noted = False
        try:
            while not isinstance(item := mailbox.take(), RequestEnded):
                if isinstance(item, DeliveredChunk):
                    chunks.append(item.pcm)
                elif isinstance(item, Exception):
                    raise item
                else:
                    mailbox.wait(_SLICE_S)
                _check_wanted()
                if not is_noted and self._clock.now_s() - start_s > _NOTE_AFTER_S:
                    is_noted = True
                    sys.stderr.write(f"{self.info.name} speaks the text first ...\n")
        except BaseException:  # neither an interrupt nor a cancelled task leaves it speaking
            intake.service.tell(Cancel(request_id))
            raise
        if item.state is not RequestState.DONE:
            raise RequestFailed(f"{self.info.name} could not speak the text: {item.error}")
        return np.concatenate(chunks) if chunks else _no_samples(), item.reason


def _check_wanted() -> None:
    if is_abandoned():
        raise RequestCancelled("the text was cancelled before it was spoken")


def _cpu_intake(model: SpeechModel, clock: Clock, name: str) -> Intake:
    """The real model behind the real lanes of this machine's CPU."""
    from voxserve.runtime.cpu import CpuExecutor

    executor = CpuExecutor(model, clock, name)
    monitor = Monitor(Trace(capacity=1000))
    scheduler = Scheduler(
        executor.prepared,
        executor.defaults,
        executor.cost,
        executor.frame_s,
        executor.sample_rate_hz,
        codec_delay_samples=model.info.codec_delay_samples,
        lookahead_frames=model.info.lookahead_frames,
        record=monitor.record,
    )
    service = Service(executor, scheduler, executor.defaults, monitor, clock, name)
    return Intake(model, service, count(), clock)


@lru_cache(maxsize=256)
def _piece(num_tokens: int) -> Piece:
    """A prompt of a given length and no content."""
    return Piece(np.zeros((num_tokens, 1), np.int32), np.zeros((num_tokens, 1), np.bool_))
