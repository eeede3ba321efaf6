"""A model's stages on one GPU as captured executables, timed alone and side by side.

Rows have a fixed context of random keys and values; sampling and the depth transformer run as in
service. Times are of the device, between events; replays queue back to back, as in a busy engine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from voxserve.bench.timing import Timing
from voxserve.core.chunk import ChunkRef, Chunks
from voxserve.core.clock import Clock
from voxserve.core.jobs import LaneName, Partition
from voxserve.core.settings import Split
from voxserve.models.base import SpeechModel, StateSize
from voxserve.models.request import Piece, PreparedRequest, SpeechOptions
from voxserve.runtime.cuda_driver import CudaDriver
from voxserve.runtime.programs import CodecProgram, DecodeProgram, PrefillProgram, Program

CONTEXT_TOKENS = 192
PROMPT_TOKENS = 40
PAGE_TOKENS = 64
_PAGES_PER_SLOT = 4
_MAX_FRAMES = 512
_FIRST_FRAME = 100  # of timed chunks: past the codec's window, so that all of it is attended to
_TEXT = "A sentence."


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """An executable with inputs of its size.

    Attributes:
        replay: Runs it on the current stream.
        lane: Whose stream it is meant for.
        run: The program, which owns the buffers that the executable reads.
        reset: Puts the state it advances back; run between samples, outside what is timed.
        capture_s: What capturing it took, warm-up included.
    """

    replay: Callable[[], None]
    lane: LaneName
    run: Callable[[], None]
    reset: Callable[[], None]
    capture_s: float


class GpuStages:
    """Captures stages of any size on any partition over one state.

    Args:
        model: Loaded on a GPU.
        clock: Any; the driver stamps with it.
        num_slots: Most rows of a stage.
    """

    def __init__(self, model: SpeechModel, clock: Clock, num_slots: int) -> None:
        self.driver = CudaDriver(model.device, clock)
        self.num_slots = num_slots
        self._model = model
        size = StateSize(num_slots, num_slots * _PAGES_PER_SLOT, PAGE_TOKENS, _MAX_FRAMES)
        options = SpeechOptions(min_frames=_MAX_FRAMES, max_frames=_MAX_FRAMES)
        request = model.preprocess(_TEXT, options)
        with torch.inference_mode():
            self._state: Any = model.allocate(size)
            self._fill_state(request)
        self._piece = _padded(request.pieces[0], PROMPT_TOKENS)
        self._stages: dict[tuple[Any, ...], Stage] = {}

    def decode(self, rows: int, split: Split, partition: Partition) -> Stage:
        """A decode step at `CONTEXT_TOKENS` tokens of context."""

        def build() -> Program:
            program = DecodeProgram(self._model, self._state, rows, self.num_slots)
            program.inputs.copy_(torch.arange(rows, dtype=torch.int32))
            return program

        key = ("decode", rows)
        return self._stage(key, build, LaneName.LM, split, partition, self._reset_context)

    def prefill(self, rows: int) -> Stage:
        """A prefill of `rows` prompts of `PROMPT_TOKENS` tokens with their first frames."""

        def build() -> Program:
            tokens = rows * PROMPT_TOKENS
            program = PrefillProgram(self._model, self._state, tokens, rows, self.num_slots)
            staged = np.zeros(program.size(), np.int32)
            program.fill(staged, range(rows), [self._piece] * rows)
            program.inputs.copy_(torch.tensor(staged))
            return program

        key = ("prefill", rows)
        return self._stage(key, build, LaneName.LM, Split(), Partition.WHOLE, self._reset_context)

    def prompt_pass(self, rows: int) -> Stage:
        """The backbone over the same prompts, without the first frames' sampling."""
        model: Any = self._model
        tokens = rows * PROMPT_TOKENS
        device = self._model.device
        slots = torch.arange(rows, dtype=torch.int32, device=device)
        slots = slots.repeat_interleave(PROMPT_TOKENS)
        positions = torch.arange(PROMPT_TOKENS, dtype=torch.int32, device=device).repeat(rows)
        x = torch.randn(tokens, model.talker.backbone.shape.hidden, device=device).bfloat16()

        def run() -> None:
            with torch.inference_mode():
                model.talker.backbone.prefill(x.clone(), self._state.cache, slots, positions)

        return self._captured(
            ("prompt", rows), run, LaneName.LM, Split(), Partition.WHOLE, _nothing
        )

    def codec(
        self, rows: int, frames: int, lane: LaneName, split: Split, partition: Partition
    ) -> Stage:
        """A codec batch of whole chunks in the middle of their requests."""

        def build() -> Program:
            program = CodecProgram(self._model, self._state, rows, frames, self.num_slots)
            staged = np.zeros(program.inputs.numel(), np.int32)
            chunks = [ChunkRef(0, i, 0, _FIRST_FRAME, frames, False) for i in range(rows)]
            program.fill(staged, Chunks.of(chunks))
            program.inputs.copy_(torch.tensor(staged))
            return program

        return self._stage(("codec", rows, frames), build, lane, split, partition, _nothing)

    def alone(self, stage: Stage, replays: int = 20) -> Timing:
        """Times replays with nothing beside them."""
        with self.driver.on(stage.lane):
            stage.reset()
            stage.replay()
            stage.reset()
            events = _replayed(stage.replay, replays)
        torch.cuda.synchronize()
        return _timing(events)

    def beside(self, stage: Stage, others: Mapping[Stage, float], replays: int = 20) -> Timing:
        """Times replays one after another while other lanes are kept busy.

        Args:
            stage: What is timed.
            others: Stages of other lanes with their seconds alone.
            replays: Samples.
        """
        alone_s = self.alone(stage, 3).median_s
        torch.cuda.synchronize()
        ends: list[torch.cuda.Event] = []
        for other, seconds in others.items():
            with self.driver.on(other.lane):
                other.reset()
                # Twice as long as the samples should take even at half speed, plus a lead.
                count = int(4 * alone_s * (replays + 2) / seconds) + 3
                for _ in range(count):
                    other.replay()
                ends.append(_event())
        with self.driver.on(stage.lane):
            stage.reset()
            stage.replay()
            events = _replayed(stage.replay, replays)
        torch.cuda.synchronize()
        # A neighbour that ran out before the last sample would flatter the figure.
        kept = [pair for pair in events if all(pair[1].elapsed_time(end) > 0 for end in ends)]
        return _timing(kept or events[:1])

    def urgent_beside(self, stage: Stage, others: list[Stage], rounds: int = 20) -> Timing:
        """Times single launches that arrive at odd moments while other lanes are busy."""
        pairs: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        for index in range(rounds):
            for other in others:
                with self.driver.on(other.lane):
                    other.reset()
                    for _ in range(3):
                        other.replay()
            time.sleep(0.001 * (1 + index % 5))
            with self.driver.on(stage.lane):
                pairs += _replayed(stage.replay, 1)
            torch.cuda.synchronize()
        return _timing(pairs)

    def close(self) -> None:
        """Frees everything."""
        self._stages.clear()
        self._state = None
        self.driver.wait_all()
        self.driver.close()

    def _fill_state(self, request: PreparedRequest) -> None:
        state = self._state
        for slot in range(self.num_slots):
            first = slot * _PAGES_PER_SLOT
            pages = range(first, first + _PAGES_PER_SLOT)
            self._model.open_slot(state, slot, request, pages)
        for pages in state.cache.pages:
            pages.normal_()
        for ring in state.codec.rings:
            ring.normal_()
        state.codec.conv.normal_()
        self._reset_context()

    def _reset_context(self) -> None:
        state, last = self._state, self.num_slots
        with torch.inference_mode():
            # Some samples' steps short, so that the middle sample has it.
            state.cache.lengths[:last] = CONTEXT_TOKENS - 10
            state.num_frames[:last] = 10
            state.sequences.piece_start[:last] = 0
            state.sequences.repeats[:last] = 0
            state.status[:last] = 0

    def _stage(
        self,
        key: tuple[Any, ...],
        build: Callable[[], Program],
        lane: LaneName,
        split: Split,
        partition: Partition,
        reset: Callable[[], None],
    ) -> Stage:
        if (*key, lane, split, partition) in self._stages:
            return self._stages[*key, lane, split, partition]
        with torch.inference_mode():
            program = build()
            torch.cuda.synchronize()
            return self._captured(key, program.run, lane, split, partition, reset)

    def _captured(
        self,
        key: tuple[Any, ...],
        run: Callable[[], None],
        lane: LaneName,
        split: Split,
        partition: Partition,
        reset: Callable[[], None],
    ) -> Stage:
        full_key = (*key, lane, split, partition)
        if full_key not in self._stages:
            reset()
            torch.cuda.synchronize()
            begun_s = time.monotonic()
            with torch.inference_mode():
                replay = self.driver.capture(run, lane, split, partition)
            took_s = time.monotonic() - begun_s
            self._stages[full_key] = Stage(replay, lane, run, reset, took_s)
        return self._stages[full_key]


def _nothing() -> None:
    """Nothing is advanced that matters to a time."""


def _event() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _replayed(
    replay: Callable[[], None], count: int
) -> list[tuple[torch.cuda.Event, torch.cuda.Event]]:
    pairs: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
    for _ in range(count):
        start = _event()
        replay()
        pairs.append((start, _event()))
    return pairs


def _timing(pairs: list[tuple[torch.cuda.Event, torch.cuda.Event]]) -> Timing:
    seconds = [start.elapsed_time(end) * 1e-3 for start, end in pairs]
    p10, median, p90 = (float(f"{value:.4g}") for value in np.percentile(seconds, (10, 50, 90)))
    return Timing(median, p10, p90, len(seconds))


def _padded(piece: Piece, tokens: int) -> Piece:
    """A piece of exactly `tokens` prompt rows: its own, again and again."""
    index = np.arange(tokens) % piece.num_tokens
    return Piece(piece.ids[index], piece.mask[index], None, piece.text)
