"""Profiles a model on the GPU at hand: every executable on every split, alone and side by side."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch

from voxserve.bench.gpu_stages import CONTEXT_TOKENS, PROMPT_TOKENS, GpuStages, Stage
from voxserve.bench.machine import versions
from voxserve.bench.timing import Timing, stage_time
from voxserve.core.jobs import LaneName, Partition
from voxserve.core.profile import HostTime, Profile, StageTime
from voxserve.core.settings import Split
from voxserve.engine.clock import MonotonicClock
from voxserve.models.base import SpeechModel
from voxserve.runtime.capacity import Capacity
from voxserve.runtime.cuda import prepared_for
from voxserve.runtime.executables import Sizes
from voxserve.runtime.partition import possible_splits

Progress = Callable[[str], None]
CODEC_SMS = range(16, 97, 8)
REPLAYS = 10
_BESIDE_DECODE, _BESIDE_CODEC = (64, 256), (16, 64)
_BESIDE_URGENT, _BESIDE_PROMPTS = 1, 4


def profile_gpu(
    model: SpeechModel,
    name: str,
    sizes: Sizes | None = None,
    progress: Progress = lambda _: None,
) -> Profile:
    """Times a model's executables on the whole GPU and on every split.

    Args:
        model: Loaded on a GPU, weights may be random.
        name: Of the profile.
        sizes: Executables to time; those that an engine makes if None.
        progress: Called with a line before each part.
    """
    sizes = sizes or Sizes()
    cuda: Any = torch.cuda
    num_sms = int(cuda.get_device_properties(model.device).multi_processor_count)
    splits = [split for split in possible_splits(num_sms) if split.codec_sms in CODEC_SMS]
    times: list[StageTime] = []
    host: HostTime | None = None
    for split in [Split(), *splits]:
        progress(f"{name}: split {split}")
        stages = GpuStages(model, MonotonicClock(), num_slots=sizes.decode[-1])
        if split.is_none:
            times += _whole_times(stages, sizes)
            host = _host_time(stages)
        times += _split_times(stages, sizes, split)
        times += _beside_times(stages, sizes, split)
        stages.close()
        del stages
        gc.collect()
        torch.cuda.empty_cache()
    assert host is not None, "the whole GPU comes first"
    info = model.info
    return Profile(
        name=name,
        device=torch.cuda.get_device_name(model.device),
        model=info.name,
        num_sms=num_sms,
        frame_s=info.frame_s,
        sample_rate_hz=info.sample_rate_hz,
        prepared=prepared_for(model, (Split(), *splits), sizes, Capacity()),
        host=host,
        times=tuple(times),
        created=datetime.now(UTC).date().isoformat(),
        versions=versions("torch", "triton", "cuda-bindings"),
        codec_delay_samples=info.codec_delay_samples,
        lookahead_frames=info.lookahead_frames,
        context_tokens=CONTEXT_TOKENS,
        note="Captured executables, medians of replays; a prefill includes its first frames.",
    )


def _whole_times(stages: GpuStages, sizes: Sizes) -> Iterator[StageTime]:
    """What runs on the whole GPU whatever the split: prefills and urgent batches."""
    for tokens in sizes.prefill:
        rows = tokens // PROMPT_TOKENS
        if rows == 0:
            continue
        timing = stages.alone(stages.prefill(rows), REPLAYS)
        yield stage_time("prefill", rows, timing, tokens=rows * PROMPT_TOKENS)
    for frames in sizes.chunk_frames:
        for rows in sizes.urgent:
            timing = stages.alone(_urgent(stages, rows, frames), REPLAYS)
            yield stage_time("codec", rows, timing, frames=frames)


def _split_times(stages: GpuStages, sizes: Sizes, split: Split) -> Iterator[StageTime]:
    longest = sizes.chunk_frames[-1]
    for rows in reversed(sizes.decode):
        timing = stages.alone(_decode(stages, rows, split), REPLAYS)
        yield stage_time("decode", rows, timing, split.lm_sms)
    done = sizes.urgent if split.is_none else ()
    for rows in reversed([rows for rows in sizes.codec if rows not in done]):
        timing = stages.alone(_background(stages, rows, longest, split), REPLAYS)
        yield stage_time("codec", rows, timing, split.codec_sms, frames=longest)


def _beside_times(stages: GpuStages, sizes: Sizes, split: Split) -> Iterator[StageTime]:
    """Each lane's work while the others are busy."""
    longest = sizes.chunk_frames[-1]
    step = _decode(stages, _BESIDE_DECODE[-1], split)
    batch = _background(stages, _BESIDE_CODEC[-1], longest, split)
    first = _urgent(stages, _BESIDE_URGENT, longest)
    prompts = stages.prefill(_BESIDE_PROMPTS)
    alone = {item: stages.alone(item, 3).median_s for item in (step, batch, first, prompts)}

    def beside(stage: Stage, other: Stage, replays: int = REPLAYS) -> Timing:
        return stages.beside(stage, {other: alone[other]}, replays)

    def decode(rows: int, other: Stage, name: str) -> StageTime:
        timing = beside(_decode(stages, rows, split), other)
        return stage_time("decode", rows, timing, split.lm_sms, **_where("lm", split, name))

    def background(rows: int, other: Stage, name: str) -> StageTime:
        timing = beside(_background(stages, rows, longest, split), other, 5)
        where = _where("background", split, name)
        return stage_time("codec", rows, timing, split.codec_sms, frames=longest, **where)

    def urgent(rows: int, timing: Timing, *names: str) -> StageTime:
        where = _where("urgent", split, *names)
        return stage_time("codec", rows, timing, frames=longest, **where)

    def prefill(other: Stage, name: str) -> StageTime:
        timing, tokens = beside(prompts, other), _BESIDE_PROMPTS * PROMPT_TOKENS
        where = _where("lm", split, name)
        return stage_time("prefill", _BESIDE_PROMPTS, timing, tokens=tokens, **where)

    for rows in _BESIDE_DECODE:
        yield decode(rows, batch, "background")
    yield decode(_BESIDE_DECODE[-1], first, "urgent")
    for rows in _BESIDE_CODEC:
        yield background(rows, step, "decode")
    yield background(_BESIDE_CODEC[-1], first, "urgent")
    yield background(_BESIDE_CODEC[-1], prompts, "prefill")
    yield prefill(batch, "background")
    yield prefill(first, "urgent")
    for other, name in ((step, "decode"), (batch, "background"), (prompts, "prefill")):
        timing = stages.urgent_beside(first, [other], REPLAYS)
        yield urgent(_BESIDE_URGENT, timing, name)
    for rows in sorted({sizes.urgent[0], sizes.urgent[-1]}):
        stage = _urgent(stages, rows, longest)
        timing = stages.urgent_beside(stage, [step, batch], REPLAYS)
        yield urgent(rows, timing, "decode", "background")


def _where(lane: str, split: Split, *beside: str) -> dict[str, Any]:
    return {"lane": lane, "split": str(split), "beside": beside}


def _decode(stages: GpuStages, rows: int, split: Split) -> Stage:
    return stages.decode(rows, split, Partition.WHOLE if split.is_none else Partition.LM)


def _background(stages: GpuStages, rows: int, frames: int, split: Split) -> Stage:
    part = Partition.WHOLE if split.is_none else Partition.CODEC
    return stages.codec(rows, frames, LaneName.BACKGROUND, split, part)


def _urgent(stages: GpuStages, rows: int, frames: int) -> Stage:
    return stages.codec(rows, frames, LaneName.URGENT, Split(), Partition.WHOLE)


def _host_time(stages: GpuStages, launches: int = 30) -> HostTime:
    """What launching a decode step costs the host."""
    stage = stages.decode(256, Split(), Partition.WHOLE)
    seconds: list[float] = []
    with stages.driver.on(stage.lane):
        for _ in range(launches):
            torch.cuda.synchronize()
            begun_s = time.perf_counter()
            stage.replay()
            seconds.append(time.perf_counter() - begun_s)
    torch.cuda.synchronize()
    median, p90 = (float(f"{value:.3g}") for value in np.percentile(seconds, (50, 90)))
    return HostTime(median, p90, note="launching a decode step of 256 rows")
