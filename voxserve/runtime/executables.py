"""Every executable of a device by stage, size and place, and the order they are captured in.

Owns which sizes exist and what is chosen for a job; capturing itself is the driver's.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from voxserve.core.jobs import CodecJob, DecodeJob, LaneName, Partition, PrefillJob
from voxserve.core.settings import Split
from voxserve.models.base import SpeechModel
from voxserve.runtime.driver import Driver, Executable
from voxserve.runtime.partition_cost import Place, place_of
from voxserve.runtime.programs import CodecProgram, DecodeProgram, PrefillProgram

Progress = Callable[[str, int, int], object]  # what is captured, how many are done, of how many


@dataclass(frozen=True, slots=True)
class Sizes:
    """What executables are made for.

    Attributes:
        decode: Rows of decode steps.
        prefill: Prompt tokens.
        codec: Chunks of a background batch, all of `chunk_frames[-1]` frames.
        urgent: Chunks of an urgent batch, of each of `chunk_frames`.
        chunk_frames: Frames of a chunk.
        tokens_per_prompt: A prefill holds one prompt per so many tokens; what has shorter prompts
            runs as several replays.
    """

    decode: tuple[int, ...] = (1, 2, 4, 8, 16, 32, *range(64, 513, 32))
    prefill: tuple[int, ...] = (64, 128, 192, 256, 384, 512, 640, 768, 1024, 1536, 2048)
    codec: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    urgent: tuple[int, ...] = (1, 2, 4, 8)
    chunk_frames: tuple[int, ...] = (2, 4, 10)
    tokens_per_prompt: int = 16

    @classmethod
    def usual(cls) -> Sizes:
        """The usual ones; with VOXSERVE_FEW_SIZES=1 few, which start faster and pad more."""
        if os.environ.get("VOXSERVE_FEW_SIZES", "0") != "1":
            return cls()
        return cls(
            decode=(1, 8, 32, 64, 128, 192, 256),
            prefill=(64, 256, 2048),
            codec=(1, 8, 16, 32, 64),
            urgent=(1, 4, 8),
        )

    def prompts(self, tokens: int) -> int:
        """Rows of a prefill executable."""
        return max(1, tokens // self.tokens_per_prompt)


@dataclass(frozen=True, slots=True)
class Key:
    """Names an executable: stage, rows or tokens, frames (codec), lane and place."""

    stage: str
    bucket: int
    frames: int
    lane: LaneName
    place: Place


class Executables:
    """What a device can launch.

    Args:
        model: The model.
        state: Its state, from `allocate`.
        scratch: The slot that padding rows name.
        sizes: What to make.
        driver: Captures.
    """

    def __init__(
        self, model: SpeechModel, state: Any, scratch: int, sizes: Sizes, driver: Driver
    ) -> None:
        self._model, self._state, self._scratch = model, state, scratch
        self.sizes = sizes
        self._driver = driver
        self._made: dict[Key, Executable] = {}
        self.splits: list[Split] = []

    def add_split(self, split: Split, progress: Progress | None = None) -> None:
        """Captures what a split needs that isn't there; the whole device's come with the first.

        Largest first, so that smaller executables reuse their memory.
        """
        wanted = [item for item in self._needed(split) if item[0] not in self._made]
        was_enabled = gc.isenabled()
        gc.collect()
        gc.disable()  # a collection inside a capture may free device memory, which breaks it
        try:
            for count, (key, partition) in enumerate(wanted):
                if progress is not None:
                    progress(f"{key.stage} {key.bucket}", count, len(wanted))
                program = self._program(key)
                replay = self._driver.capture(program.run, key.lane, split, partition)
                self._made[key] = Executable(program, replay)
        finally:
            if was_enabled:
                gc.enable()
        if progress is not None:
            progress("", len(wanted), len(wanted))
        if split not in self.splits:
            self.splits.append(split)

    def items(self) -> Iterator[tuple[Key, Executable]]:
        """All of them."""
        return iter(list(self._made.items()))

    def decode(self, job: DecodeJob) -> Executable:
        """Of a decode step."""
        place = place_of(job.split, job.partition)
        return self._made[Key("decode", job.bucket, 1, LaneName.LM, place)]

    def prefill(self, tokens: int, prompts: int) -> Executable:
        """The smallest that holds so many tokens in so many prompts."""
        for bucket in self.sizes.prefill:
            if tokens <= bucket and prompts <= self.sizes.prompts(bucket):
                return self._made[Key("prefill", bucket, 0, LaneName.LM, _WHOLE)]
        raise AssertionError(f"no prefill holds {tokens} tokens in {prompts} prompts")

    def codec(self, job: CodecJob) -> Executable:
        """Of a codec batch; a background batch rides on the executable of the longest chunks."""
        frames = job.num_frames
        if job.lane is LaneName.BACKGROUND:
            frames = self.sizes.chunk_frames[-1]
        return self._made[
            Key("codec", job.bucket, frames, job.lane, place_of(job.split, job.partition))
        ]

    def prefill_parts(self, job: PrefillJob, tokens: list[int]) -> Iterator[range]:
        """Rows of each replay of a prefill, in order: one, unless its prompts are very short."""
        first, total = 0, 0
        room = self.sizes.prefill[-1]
        for row, count in enumerate(tokens):
            is_full = total + count > room or row - first >= self.sizes.prompts(room)
            if is_full and row > first:
                yield range(first, row)
                first, total = row, 0
            total += count
        yield range(first, len(tokens))

    def clear(self) -> None:
        """Forgets all executables, the model and its state."""
        self._made.clear()
        del self._model, self._state

    def _needed(self, split: Split) -> list[tuple[Key, Partition]]:
        """Keys of a split and of the whole device, largest first."""
        sizes = self.sizes
        lm, background, urgent = LaneName.LM, LaneName.BACKGROUND, LaneName.URGENT
        longest = sizes.chunk_frames[-1]
        places = [(Partition.WHOLE, Partition.WHOLE)]
        if not split.is_none:
            places.append((Partition.LM, Partition.CODEC))
        keys: list[tuple[Key, Partition]] = [
            (Key("prefill", tokens, 0, lm, _WHOLE), Partition.WHOLE)
            for tokens in reversed(sizes.prefill)
        ]
        for lm_part, codec_part in places:
            lm_place, codec_place = place_of(split, lm_part), place_of(split, codec_part)
            for rows in reversed(sizes.decode):
                keys.append((Key("decode", rows, 1, lm, lm_place), lm_part))
            for rows in reversed(sizes.codec):
                key = Key("codec", rows, longest, background, codec_place)
                keys.append((key, codec_part))
        for frames in reversed(sizes.chunk_frames):
            for rows in reversed(sizes.urgent):
                keys.append((Key("codec", rows, frames, urgent, _WHOLE), Partition.WHOLE))
        return keys

    def _program(self, key: Key) -> Any:
        parts = (self._model, self._state)
        if key.stage == "decode":
            return DecodeProgram(*parts, key.bucket, self._scratch)
        if key.stage == "prefill":
            prompts = self.sizes.prompts(key.bucket)
            return PrefillProgram(*parts, key.bucket, prompts, self._scratch)
        return CodecProgram(*parts, key.bucket, key.frames, self._scratch)


_WHOLE: Place = (0, Partition.WHOLE)
