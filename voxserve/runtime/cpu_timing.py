"""Times a model's stages on the CPU lanes when an engine starts, which also warms them up.

The backbone and the codec are timed at the same moment, each on its own lane, because that is how
they will run: on two cores a stage alone would look faster than it ever is while serving.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import torch

from voxserve.core.clock import Clock
from voxserve.core.jobs import LaneName
from voxserve.models.base import SpeechModel
from voxserve.models.request import PreparedRequest, SpeechOptions
from voxserve.runtime.lane import CpuLane, use_threads
from voxserve.runtime.measured_cost import MeasuredCost

_TEXT = "The engine times itself with a short sentence."
_ROWS = (1, 4)
_PROMPTS = (1, 2)
_SPOKEN_TOKENS = 64  # context of a decode row beyond its prompt, about the middle of a sentence
_FRAMES = (2, 10)
_REPEATS = 2
_PATIENCE_S = 60.0


def measure(
    model: SpeechModel, state: Any, lanes: Mapping[LaneName, CpuLane], clock: Clock
) -> MeasuredCost:
    """Times prefill, decode and codec at a few sizes; the slots it used are dirty afterwards.

    Raises:
        TimeoutError: A stage took more than a minute.
    """
    stages = _Stages(model, state, clock)
    backbone = _on(lanes[LaneName.LM], stages.backbone)
    codec = _on(lanes[LaneName.BACKGROUND], stages.codec)
    prefill_s, decode_s = backbone.result(_PATIENCE_S)
    return MeasuredCost(prefill_s=prefill_s, decode_s=decode_s, codec_s=codec.result(_PATIENCE_S))


class _Stages:
    """The model's stages on slots 0 to 3, timed."""

    def __init__(self, model: SpeechModel, state: Any, clock: Clock) -> None:
        self._model = model
        self._state = state
        self._clock = clock
        self._request: PreparedRequest = model.preprocess(_TEXT, SpeechOptions())
        for slot in range(max(_ROWS)):
            model.open_slot(state, slot, self._request)

    def backbone(self) -> tuple[dict[int, float], dict[int, float]]:
        """Seconds of a prefill by tokens, and of a decode step by rows."""
        piece = self._request.pieces[0]
        prefill_s = {n * piece.num_tokens: self._time(self._prefill, n) for n in _PROMPTS}
        return prefill_s, {rows: self._time(self._decode, rows) for rows in _ROWS}

    def codec(self) -> dict[int, dict[int, float]]:
        """Seconds of a codec batch, by frames and rows."""
        return {
            frames: {rows: self._time(self._codec, rows, frames) for rows in _ROWS}
            for frames in _FRAMES
        }

    def _prefill(self, rows: int) -> None:
        pieces = (self._request.pieces[0],) * rows
        inputs = self._model.pack_prefill(tuple(range(rows)), pieces, torch.device("cpu"))
        self._model.prefill(self._state, inputs)

    def _decode(self, rows: int) -> None:
        slots = torch.arange(rows, dtype=torch.int32)
        tokens = self._request.pieces[0].num_tokens + _SPOKEN_TOKENS
        self._model.decode(self._state, slots, min(tokens, self._model.info.max_context_tokens))

    def _codec(self, rows: int, frames: int) -> None:
        slots = torch.arange(rows, dtype=torch.int32)
        valid = torch.full((rows,), frames, dtype=torch.int32)
        going_on = torch.zeros(rows, dtype=torch.bool)
        self._model.codec(self._state, slots, valid * 0, valid, going_on, frames)

    def _time(self, stage: Callable[..., None], *sizes: int) -> float:
        """The fastest of a few calls; slower ones were interrupted or the first of their kind."""
        best_s = float("inf")
        for _ in range(_REPEATS):
            start_s = self._clock.now_s()
            stage(*sizes)
            best_s = min(best_s, self._clock.now_s() - start_s)
        return best_s


def _on(lane: CpuLane, call: Callable[[], Any]) -> Future[Any]:
    """Runs a call on a lane with one thread, as lanes start out."""
    future: Future[Any] = Future()

    def work() -> None:
        use_threads(1)
        try:
            future.set_result(call())
        except Exception as error:  # handed to the thread that starts the engine
            future.set_exception(error)

    lane.put(work)
    return future
