"""Profiles a model on the CPU at hand: every stage by batch, alone and beside the others.

Threads play the part of SMs: a split of 1/1 is one thread for the backbone, one for the codec.
"""

from __future__ import annotations

import itertools
import os
import platform
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from datetime import date
from queue import SimpleQueue
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from voxserve.bench import machine
from voxserve.bench.timing import Timing, stage_time
from voxserve.core.profile import HostTime, Profile, StageTime
from voxserve.models.base import SpeechModel, StateSize
from voxserve.models.request import PreparedRequest, SpeechOptions
from voxserve.runtime.cpu import prepared_for
from voxserve.runtime.lane import CpuLane, use_threads

TEXT = "The engine times itself with a sentence of a dozen plain English words."
ROWS = (1, 2, 4, 8, 16)
FRAMES = (2, 10)
NEIGHBOUR_ROWS = 4
REPEATS, PATIENCE_S = 7, 1.5  # as many repeats as fit into the patience, at least three
SPLIT = "1/1"
HAND_OVERS = 200
MAX_FRAMES = 64
MAX_STEPS = MAX_FRAMES - 4


class Stages:
    """A model's stages as callables over its own state; slots of neighbours don't overlap."""

    def __init__(self, model: SpeechModel, num_slots: int) -> None:
        self._model = model
        self._state: Any = model.allocate(StateSize(num_slots, 0, 64, max_frames=MAX_FRAMES))
        # No end token before the budget: every timed step makes a frame.
        options = SpeechOptions(min_frames=MAX_FRAMES, max_frames=MAX_FRAMES)
        self._request: PreparedRequest = model.preprocess(TEXT, options)
        for slot in range(num_slots):
            model.open_slot(self._state, slot, self._request)
        self.prompt_tokens = self._request.pieces[0].num_tokens

    def prefill(self, rows: int, first_slot: int = 0) -> Callable[[], None]:
        """A prefill of `rows` prompts; its rows can be decoded afterwards."""
        slots = tuple(range(first_slot, first_slot + rows))
        pieces = (self._request.pieces[0],) * rows
        inputs = self._model.pack_prefill(slots, pieces, torch.device("cpu"))

        def call() -> None:
            for slot in slots:  # frames start again: repeats must not fill the state
                self._model.open_slot(self._state, slot, self._request)
            self._model.prefill(self._state, inputs)

        return call

    def decode(self, rows: int, first_slot: int = 0) -> Callable[[], None]:
        """A decode step of `rows` rows; after enough steps their sequences start again."""
        slots = torch.arange(first_slot, first_slot + rows, dtype=torch.int32)
        restart = self.prefill(rows, first_slot)
        steps = itertools.count()

        def call() -> None:
            if (step := next(steps) % MAX_STEPS) == 0:
                restart()
            self._model.decode(self._state, slots, self.prompt_tokens + step + 2)

        return call

    def codec(self, rows: int, frames: int, first_slot: int = 0) -> Callable[[], None]:
        """A codec batch of first chunks."""
        slots = torch.arange(first_slot, first_slot + rows, dtype=torch.int32)
        valid = torch.full((rows,), frames, dtype=torch.int32)
        going_on = torch.zeros(rows, dtype=torch.bool)

        def call() -> None:
            self._model.codec(self._state, slots, valid * 0, valid, going_on, frames)

        return call


def profile_cpu(model: SpeechModel, name: str, progress: bool = True) -> Profile:
    """Times a model on this machine's CPU.

    Args:
        model: Loaded on the CPU.
        name: Of the profile.
        progress: Show a bar.
    """
    cores = max(2, os.cpu_count() or 2)
    stages = Stages(model, num_slots=max(ROWS) + 2 * NEIGHBOUR_ROWS)
    times: list[StageTime] = []
    with tqdm(total=_num_times(), desc="timing stages", disable=not progress) as bar:
        for time_ in _all_times(stages):
            times.append(time_)
            bar.update()
    info = model.info
    return Profile(
        name=name,
        device=machine.cpu_name(),
        model=info.name,
        num_sms=cores,
        frame_s=info.frame_s,
        sample_rate_hz=info.sample_rate_hz,
        prepared=prepared_for(model, cores),
        host=HostTime(_hand_over_s(), note="an empty job through a lane and back"),
        times=tuple(times),
        created=date.today().isoformat(),
        versions={"torch": torch.__version__, "python": platform.python_version()},
        codec_delay_samples=info.codec_delay_samples,
        lookahead_frames=info.lookahead_frames,
        context_tokens=stages.prompt_tokens + REPEATS,
        note=f"SMs are threads; {SPLIT} is one thread for each lane.",
    )


def _num_times() -> int:
    return 2 * len(ROWS) + 3 + 2 * len(ROWS) * len(FRAMES) + 5


def _all_times(stages: Stages) -> Iterator[StageTime]:
    for threads in (1, 0):
        for rows in ROWS:
            yield stage_time("decode", rows, _repeat(stages.decode(rows), threads), threads)
            for frames in FRAMES:
                timing = _repeat(stages.codec(rows, frames), threads)
                yield stage_time("codec", rows, timing, threads, frames=frames)
    for rows in (1, 2, 4):
        timing = _repeat(stages.prefill(rows), 1)
        yield stage_time("prefill", rows, timing, 0, tokens=rows * stages.prompt_tokens)
    yield from _beside_times(stages)


def _beside_times(stages: Stages) -> Iterator[StageTime]:
    """Each lane's work while the others are kept busy, on one thread each."""
    rows, first = NEIGHBOUR_ROWS, max(ROWS)
    busy = {
        "decode": stages.decode(rows, first),
        "background": stages.codec(rows, FRAMES[-1], first + rows),
    }

    def timed(call: Callable[[], None], *names: str) -> Timing:
        with ExitStack() as stack:
            for name in names:
                stack.enter_context(_kept_busy(busy[name]))
            return _repeat(call, 1)

    def beside(stage: str, lane: str, rows: int, timing: Timing, *names: str, **sizes: int):
        return stage_time(stage, rows, timing, beside=names, lane=lane, split=SPLIT, **sizes)

    codec = stages.codec(rows, FRAMES[-1])
    alone = {"sms": 1}
    timing = timed(stages.decode(rows), "background")
    yield beside("decode", "lm", rows, timing, "background", **alone)
    timing = timed(codec, "decode")
    yield beside("codec", "background", rows, timing, "decode", frames=FRAMES[-1], **alone)
    tokens = stages.prompt_tokens
    timing = timed(stages.prefill(1), "background")
    yield beside("prefill", "lm", 1, timing, "background", tokens=tokens)
    for frames in FRAMES:
        timing = timed(stages.codec(1, frames), "decode", "background")
        yield beside("codec", "urgent", 1, timing, "decode", "background", frames=frames)


def _repeat(call: Callable[[], None], threads: int) -> Timing:
    """Times a call on a thread of its own with `threads` intra-op threads (0: all cores)."""
    box: list[Timing] = []

    def work() -> None:
        use_threads(threads or max(2, os.cpu_count() or 2))
        with torch.inference_mode():
            box.append(_timed(call))

    thread = threading.Thread(target=work, name="voxserve-profile")
    thread.start()
    thread.join()
    return box[0]


def _timed(call: Callable[[], None]) -> Timing:
    call()  # warm-up; a decode step's prefill happens here
    seconds: list[float] = []
    begun_s = time.perf_counter()
    while len(seconds) < REPEATS:
        start_s = time.perf_counter()
        call()
        end_s = time.perf_counter()
        seconds.append(end_s - start_s)
        if end_s - begun_s > PATIENCE_S and len(seconds) >= 3:
            break
    p10, median, p90 = (float(value) for value in np.percentile(seconds, (10, 50, 90)))
    return Timing(_digits(median), _digits(p10), _digits(p90), len(seconds))


def _digits(seconds: float) -> float:
    return float(f"{seconds:.4g}")


@contextmanager
def _kept_busy(call: Callable[[], None]) -> Generator[None]:
    """Calls in a loop on another thread until the block ends."""
    stop = threading.Event()

    def work() -> None:
        use_threads(1)
        with torch.inference_mode():
            while not stop.is_set():
                call()

    thread = threading.Thread(target=work, name="voxserve-neighbour")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _hand_over_s() -> float:
    """Median time of an empty job through a lane and back to the thread that asked."""
    answers: SimpleQueue[None] = SimpleQueue()
    lane = CpuLane("voxserve-hand-over", lambda error: answers.put(None))
    seconds: list[float] = []
    for _ in range(HAND_OVERS):
        start_s = time.perf_counter()
        lane.put(lambda: answers.put(None))
        answers.get()
        seconds.append(time.perf_counter() - start_s)
    lane.close(1.0)
    return _digits(float(np.median(seconds)))
