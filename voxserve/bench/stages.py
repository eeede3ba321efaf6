"""Stage speed of Qwen3-TTS on one GPU against what is promised, as a results file.

Command: `python -m voxserve.bench.stages --out FILE` (`voxserve check --only gpu` does the same).
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import torch

from voxserve.bench.gpu_stages import CONTEXT_TOKENS, PROMPT_TOKENS, GpuStages
from voxserve.bench.machine import revision, versions
from voxserve.bench.tables import Figure, Results, markdown_table
from voxserve.core.jobs import LaneName, Partition
from voxserve.core.settings import Split
from voxserve.engine.clock import MonotonicClock
from voxserve.models import registry
from voxserve.models.base import SpeechModel
from voxserve.runtime.cuda_driver import CudaDriver
from voxserve.runtime.executables import Executables, Sizes
from voxserve.runtime.kernel_parity import full_cases, run_case

Tell = Callable[[str], None]
MODEL = "qwen3-tts-1.7b"
WHOLE = Split()
# SMs -> split and side that has them, must and aim in ms.
_DECODE_256 = {0: (9, 6), 100: (11.5, 8), 84: (13, 9)}
_DECODE = {1: (5, 3), 64: (6, 4), 128: (7, 5), 512: (13, 9)}
_CODEC = {
    (16, 0): (4.5, 3),
    (64, 0): (14, 10),
    (16, 32): (17, 12),
    (64, 32): (56, 40),
    (16, 48): (12, 8),
    (64, 48): (40, 27),
}
_FIRST_CHUNK = {1: (1.8, 1.2), 8: (4, 2.5)}
_PREFILL = {1: (2.5, 1.5), 4: (4, 2.5), 16: (8, 5)}
_PARITY_BOUND = 1e-2


def stage_results(
    *, weights: str = "random", command: str = "", tell: Tell = lambda _: None
) -> Results:
    """Measures every stage of the promised table on the current GPU.

    Args:
        weights: As for loading a model.
        command: Told in the result.
        tell: Called with a line before each part and for each figure.

    Returns:
        A results file's content; figures without bounds are reported only.
    """
    rows: list[Figure] = []

    def add(figures: list[Figure]) -> None:
        for row in figures:
            bounds = f" (must {row.must}, aim {row.aim})" if row.must is not None else ""
            tell(f"{row.figure}: {row.value} {row.unit}{bounds} {row.verdict()}")
        rows.extend(figures)

    begun_s = time.monotonic()
    model = registry.load(MODEL, "cuda", weights)
    torch.cuda.synchronize()
    load_s = time.monotonic() - begun_s
    stages = GpuStages(model, MonotonicClock(), num_slots=512)
    tell("timing stages alone")
    add(decode_figures(stages))
    add(codec_figures(stages))
    add(prefill_figures(stages))
    tell("timing lanes side by side")
    add(side_by_side_figures(stages))
    stages.close()
    del stages
    gc.collect()
    torch.cuda.empty_cache()
    tell("capturing every executable of one split")
    add(capture_figures(model, load_s))
    del model
    gc.collect()
    torch.cuda.empty_cache()
    tell("comparing kernels with their references")
    add(parity_figures())
    return Results(
        device=torch.cuda.get_device_name(),
        date=datetime.now(UTC).date().isoformat(),
        versions=versions("torch", "triton", "cuda-bindings"),
        settings={
            "model": MODEL,
            "weights": weights,
            "context_tokens": CONTEXT_TOKENS,
            "replays": "20 per figure, median",
            **revision(),
        },
        command=command,
        rows=tuple(rows),
    )


def decode_figures(stages: GpuStages) -> list[Figure]:
    """Decode steps with sampling and the depth transformer."""
    rows: list[Figure] = []
    name = f"decode step, sampling and 15 depth codebooks, {CONTEXT_TOKENS} tokens of context"
    for sms, bounds in _DECODE_256.items():
        split = Split(sms, 132 - sms) if sms else WHOLE
        part = Partition.LM if sms else Partition.WHOLE
        timing = stages.alone(stages.decode(256, split, part))
        rows.append(_ms(f"{name}, batch 256, {_on(sms)}", timing.median_s, *bounds))
    for batch, bounds in _DECODE.items():
        timing = stages.alone(stages.decode(batch, WHOLE, Partition.WHOLE))
        rows.append(_ms(f"{name}, batch {batch}, whole GPU", timing.median_s, *bounds))
    return rows


def codec_figures(stages: GpuStages) -> list[Figure]:
    """Background batches on the whole GPU and on partitions; first chunks."""
    rows: list[Figure] = []
    for (batch, sms), bounds in _CODEC.items():
        split = Split(132 - sms, sms) if sms else WHOLE
        part = Partition.CODEC if sms else Partition.WHOLE
        stage = stages.codec(batch, 10, LaneName.BACKGROUND, split, part)
        timing = stages.alone(stage)
        rows.append(_ms(f"codec, 10 frames, batch {batch}, {_on(sms)}", timing.median_s, *bounds))
    for frames in (10, 4, 2):
        for batch, bounds in _FIRST_CHUNK.items():
            stage = stages.codec(batch, frames, LaneName.URGENT, WHOLE, Partition.WHOLE)
            limits = bounds if frames == 10 else (None, None)
            name = f"first chunk, {frames} frames, batch {batch}, whole GPU"
            rows.append(_ms(name, stages.alone(stage).median_s, *limits))
    return rows


def prefill_figures(stages: GpuStages) -> list[Figure]:
    """Prompts through the backbone; the same with each prompt's first frame."""
    rows: list[Figure] = []
    for count, bounds in _PREFILL.items():
        name = f"prefill, {count} x {PROMPT_TOKENS} tokens"
        timing = stages.alone(stages.prompt_pass(count))
        rows.append(_ms(f"{name}, backbone", timing.median_s, *bounds))
        timing = stages.alone(stages.prefill(count))
        rows.append(_ms(f"{name}, with each prompt's first frame", timing.median_s))
    return rows


def side_by_side_figures(stages: GpuStages) -> list[Figure]:
    """How much lanes slow each other down at 100/32."""
    split = Split(100, 32)
    step = stages.decode(256, split, Partition.LM)
    batch = stages.codec(64, 10, LaneName.BACKGROUND, split, Partition.CODEC)
    urgent = stages.codec(1, 10, LaneName.URGENT, WHOLE, Partition.WHOLE)
    step_s, batch_s = stages.alone(step).median_s, stages.alone(batch).median_s
    urgent_s = stages.alone(urgent).median_s
    beside_s = stages.beside(step, {batch: batch_s}).median_s
    codec_beside_s = stages.beside(batch, {step: step_s}, 6).median_s
    hurried = stages.urgent_beside(urgent, [step, batch])
    return [
        _times(
            "decode batch 256 on 100 SMs beside codec batch 64 on 32", beside_s / step_s, 1.1, 1.03
        ),
        _times("codec batch 64 on 32 SMs beside decode batch 256 on 100", codec_beside_s / batch_s),
        _times(
            "urgent chunk beside both, over its time alone", hurried.median_s / urgent_s, 2, 1.5
        ),
        _ms("urgent chunk beside both, 90th percentile", hurried.p90_s),
    ]


def capture_figures(model: SpeechModel, load_s: float) -> list[Figure]:
    """Loading random weights and capturing everything a split needs, kernels compiled before."""
    from voxserve.models.base import StateSize

    state = model.allocate(StateSize(512, 4096, 64, 2048))
    driver = CudaDriver(model.device, MonotonicClock())
    before = torch.cuda.memory_reserved()
    begun_s = time.monotonic()
    with torch.inference_mode():
        made = Executables(model, state, 512, Sizes(), driver)
        made.add_split(Split(100, 32))
    torch.cuda.synchronize()
    took_s = time.monotonic() - begun_s
    count = sum(1 for _ in made.items())
    memory_gb = (torch.cuda.memory_reserved() - before) / 1e9
    made.clear()
    driver.close()
    return [
        Figure(
            f"random weights ({load_s:.1f} s) and capture of the {count} executables of 100/32",
            round(load_s + took_s, 1),
            "s",
            90,
            45,
        ),
        Figure("GPU memory of those executables", round(memory_gb, 2), "GB"),
    ]


def parity_figures(seed: int = 20261129) -> list[Figure]:
    """The largest error of each op in bfloat16 against float64, over all its full-size cases."""
    worst: dict[str, float] = {}
    for case in full_cases():
        error = run_case(case, "cuda", torch.bfloat16, seed).relative_error
        op = case.name.partition("[")[0]
        worst[op] = max(error, worst.get(op, 0.0))
    return [
        Figure(f"error of {op}, bfloat16 against float64", float(f"{error:.3g}"), "", _PARITY_BOUND)
        for op, error in worst.items()
    ]


def _on(sms: int) -> str:
    return f"{sms} SMs" if sms else "whole GPU"


def _ms(name: str, seconds: float, must: float | None = None, aim: float | None = None) -> Figure:
    return Figure(name, float(f"{seconds * 1e3:.4g}"), "ms", must, aim)


def _times(name: str, ratio: float, must: float | None = None, aim: float | None = None) -> Figure:
    return Figure(name, round(ratio, 3), "x", must, aim)


def main(arguments: list[str] | None = None) -> int:
    """Measures, prints the table, writes the file; 1 where a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--weights", default="random")
    options = parser.parse_args(arguments)
    results = stage_results(
        weights=options.weights,
        command="python -m voxserve.bench.stages",
        tell=lambda line: (sys.stderr.write(f"{line}\n"), None)[1],
    )
    if options.out is not None:
        results.save(options.out)
    sys.stdout.write(markdown_table(results))
    missed = [row for row in results.rows if row.must is not None and row.verdict() == "missed"]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
