"""Times every executable of a device when an engine starts, each alone on its lane.

Decode steps run over real prompts, so that attention has something to read. The slots it used are
dirty afterwards; a request that opens one resets it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from voxserve.core.chunk import ChunkRef, Chunks
from voxserve.core.jobs import LaneName
from voxserve.core.settings import Prepared
from voxserve.models.base import SpeechModel
from voxserve.models.request import PreparedRequest, SpeechOptions
from voxserve.runtime.driver import Driver, Executable, Step
from voxserve.runtime.executables import Executables, Key
from voxserve.runtime.partition_cost import PartitionCost, Place
from voxserve.runtime.pinned import PinnedBuffer

_TEXT = "The engine times itself with a short sentence."
_REPEATS = 3


def measure(
    model: SpeechModel, state: Any, executables: Executables, driver: Driver, prepared: Prepared
) -> PartitionCost:
    """Seconds of each stage by place and size, the fastest of a few replays."""
    timing = _Timing(model, state, executables, driver, prepared)
    prefill_s: dict[int, float] = {}
    decode_s: dict[Place, dict[int, float]] = {}
    codec_s: dict[Place, dict[int, dict[int, float]]] = {}
    items = sorted(executables.items(), key=lambda item: item[0].stage != "prefill")
    for key, executable in items:
        seconds = timing.seconds(key, executable)
        if key.stage == "prefill":
            prefill_s[key.bucket] = seconds
        elif key.stage == "decode":
            decode_s.setdefault(key.place, {})[key.bucket] = seconds
        else:
            by_frames = codec_s.setdefault(key.place, {}).setdefault(key.frames, {})
            # Urgent and background batches of one place are the same work.
            by_frames[key.bucket] = min(seconds, by_frames.get(key.bucket, seconds))
    return PartitionCost(decode_s, prefill_s, codec_s)


class _Timing:
    """Fills each executable with work of its size and replays it."""

    def __init__(
        self,
        model: SpeechModel,
        state: Any,
        executables: Executables,
        driver: Driver,
        prepared: Prepared,
    ) -> None:
        self._driver = driver
        self._prepared = prepared
        # The end token is ruled out: no row ends while it is timed.
        options = SpeechOptions(min_frames=prepared.max_request_frames)
        self._request: PreparedRequest = model.preprocess(_TEXT, options)
        self._tokens = self._request.pieces[0].num_tokens
        self._num_slots = min(self._most_rows(executables), prepared.num_slots)
        per_slot = -(-self._tokens // prepared.kv_page_tokens) + 1
        if prepared.num_kv_pages:
            self._num_slots = min(self._num_slots, prepared.num_kv_pages // per_slot)
        slots = range(self._num_slots)
        pages = [range(slot * per_slot, (slot + 1) * per_slot) for slot in slots]
        rows = [model.open_row(state, self._request, own) for own in pages]
        with driver.on(LaneName.LM):
            model.open_slots(
                state,
                torch.arange(self._num_slots, dtype=torch.int32, device=model.device),
                torch.tensor(np.stack(rows), device=model.device),
            )
        self._next_slot = 0

    def seconds(self, key: Key, executable: Executable) -> float:
        """The fastest of a few replays on the key's lane."""
        best_s = float("inf")
        for _ in range(_REPEATS):
            step = self._step(key, executable)
            ticket = self._driver.launch(key.lane, [step])
            self._driver.wait_all()
            assert self._driver.is_done(ticket), "everything launched has ended"
            start_s, end_s = self._driver.span_s(ticket)
            best_s = min(best_s, end_s - start_s)
        return best_s

    def _step(self, key: Key, executable: Executable) -> Step:
        program = executable.program
        is_pinned, outputs = self._driver.is_pinned, program.outputs
        staged = PinnedBuffer.made(executable.num_inputs, torch.int32, is_pinned)
        self._fill(key, program, staged.array)
        landing = PinnedBuffer.made(outputs.numel(), outputs.dtype, is_pinned)
        return Step(staged, executable, landing, outputs.numel())

    def _fill(self, key: Key, program: Any, staged: Any) -> None:
        if key.stage == "prefill":
            count = min(program.rows, key.bucket // self._tokens, self._num_slots)
            slots = [(self._next_slot + i) % self._num_slots for i in range(count)]
            self._next_slot += count
            program.fill(staged, slots, [self._request.pieces[0]] * count)
            return
        rows = min(key.bucket, self._num_slots)
        if key.stage == "decode":
            program.fill(staged, np.arange(rows, dtype=np.int32))
            return
        chunks = [ChunkRef(0, slot, 0, 0, key.frames, False) for slot in range(rows)]
        program.fill(staged, Chunks.of(chunks))

    def _most_rows(self, executables: Executables) -> int:
        sizes = executables.sizes
        return max(*sizes.decode, *sizes.codec, *sizes.urgent)
