"""Profiles that were not measured by the profiler: built from published and provisional figures.

`python -m voxserve.bench.inferred_profiles` writes them. Every number says whether it was stated,
inferred (and from what) or is provisional.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from voxserve.core import profile as profiles
from voxserve.core.profile import HostTime, Profile, Source, StageTime
from voxserve.core.settings import Prepared, Split

NUM_SMS = 132
FRAME_S, SAMPLE_RATE_HZ, CHUNK_FRAMES = 0.08, 24000, 10

# One H200, plain kernels (unfused step without sampling, cuDNN codec), milliseconds by batch.
PLAIN_DECODE_MS = {1: 7.0, 64: 7.4, 256: 10.5, 512: 15.5}
PLAIN_DECODE_100_SMS_MS = {64: 8.5, 256: 14.0}
PLAIN_CODEC_MS = {1: 2.2, 16: 10.9, 64: 38.0}
PLAIN_CODEC_32_SMS_MS = {16: 46.0}
PLAIN_PREFILL_MS = {160: 8.0, 1024: 16.0, 2048: 30.0}
# A chunk of f frames takes 0.4 + 0.06 f of a 10-frame chunk.
FRAME_SHARE = {2: 0.52, 4: 0.64}

# VoxServe section 2.3, H100, milliseconds.
PAPER_CODEC_MS = {1: 1.9, 16: 10.0}
PAPER_CODEC_24_SMS_BESIDE_MS = {1: 5.0, 16: 49.0}
PAPER_LM_SPEED_108_SMS = {1: 0.99, 64: 0.93}
# Step of 64 rows on the whole H100, milliseconds: fitted so that the complete system's capacity is
# the 48 requests/s that section 4.2 states.
PAPER_DECODE_64_MS = 7.0
# Slowdowns on shared SMs, fitted so that the capacity without a split is the 42 requests/s that
# section 4.7 states: a codec's large kernels crowd out a step's small ones. Nothing else is fitted.
PAPER_DECODE_SHARED, PAPER_CODEC_SHARED = 2.7, 1.2
# An H200's slowdown of a codec batch beside a decode step on the other partition, 46 to 50 ms.
PAPER_BESIDE = 50.0 / 46.0

SMS_GRID = (16, 24, 32, 40, 48, 64, 88, 108, 124)


def h200_provisional() -> Profile:
    """Qwen3-TTS 1.7B on an H200 with plain kernels, until it is measured."""
    times: list[StageTime] = []
    note = "plain kernels, no sampling"
    for rows, value in PLAIN_DECODE_MS.items():
        times.append(_time("decode", rows, value, Source.PROVISIONAL, note))
        slope = _slope(rows, PLAIN_DECODE_MS, PLAIN_DECODE_100_SMS_MS, 100)
        for sms in (16, 24, 44, 68, 84, 92, 100, 108, 116, 124):
            scaled = value * (NUM_SMS / sms) ** slope
            how = note if rows in PLAIN_DECODE_100_SMS_MS and sms == 100 else _how(slope)
            times.append(_time("decode", rows, scaled, Source.PROVISIONAL, how, sms=sms))
    for rows, value in PLAIN_CODEC_MS.items():
        times.append(_codec(rows, value, Source.PROVISIONAL, "plain cuDNN"))
        # A single chunk leaves most SMs idle; its slope is the paper's.
        slope = 0.52 if rows == 1 else _slope(16, PLAIN_CODEC_MS, PLAIN_CODEC_32_SMS_MS, 32)
        for sms in SMS_GRID:
            scaled = value * (NUM_SMS / sms) ** slope
            how = "plain cuDNN" if (rows, sms) == (16, 32) else _how(slope)
            times.append(_codec(rows, scaled, Source.PROVISIONAL, how, sms=sms))
        for frames, share in FRAME_SHARE.items():
            how = f"{share} of a 10-frame chunk"
            times.append(_codec(rows, value * share, Source.PROVISIONAL, how, frames=frames))
    for tokens, value in PLAIN_PREFILL_MS.items():
        rows = tokens // 40
        times.append(_time("prefill", rows, value, Source.PROVISIONAL, "guess", tokens=tokens))
    times += [
        StageTime(
            "decode",
            256,
            14.0e-3 * 4.31 / 4.24,
            sms=100,
            beside=("background",),
            lane="lm",
            split="100/32",
            source=Source.PROVISIONAL,
            note="slowdown of a stand-in step, 4.24 to 4.31 ms",
        ),
        StageTime(
            "codec",
            16,
            50e-3,
            sms=32,
            frames=CHUNK_FRAMES,
            beside=("decode",),
            lane="background",
            split="100/32",
            source=Source.PROVISIONAL,
            note="plain cuDNN beside a stand-in step",
        ),
        StageTime(
            "codec",
            1,
            4.0e-3,
            frames=CHUNK_FRAMES,
            beside=("decode", "background"),
            lane="urgent",
            split="100/32",
            source=Source.PROVISIONAL,
            note="plain cuDNN beside a stand-in step and a codec batch",
        ),
    ]
    return Profile(
        name="h200-qwen3-tts-1.7b",
        device="NVIDIA H200",
        model="qwen3-tts-1.7b",
        num_sms=NUM_SMS,
        frame_s=FRAME_S,
        sample_rate_hz=SAMPLE_RATE_HZ,
        prepared=Prepared(
            splits=(Split(), Split(84, 48), Split(100, 32)),
            decode_buckets=(1, 2, 4, 8, 16, 32, 64, *range(96, 513, 32)),
            codec_buckets=(1, 2, 4, 8, 16, 32, 64),
            urgent_buckets=(1, 2, 4, 8),
            prefill_buckets=(256, 512, 1024, 2048),
            chunk_frames=(2, 4, 10),
            num_slots=1024,
            lm_depth=2,
        ),
        host=HostTime(0.001, source=Source.PROVISIONAL, note="guess"),
        times=tuple(times),
        created="2026-11-29",
        versions={"torch": "2.11.0+cu130", "driver": "580"},
        note="Provisional: plain kernels of one H200; to be replaced by the profiler's figures.",
    )


def h100_paper() -> Profile:
    """Qwen3-TTS 1.7B on an H100 as the paper describes it."""
    times: list[StageTime] = []
    scale = PAPER_DECODE_64_MS / PLAIN_DECODE_MS[64]
    for rows in (1, 64):
        value = PLAIN_DECODE_MS[rows] * scale
        how = "fitted to a capacity of 48 requests/s (section 4.2)"
        times.append(_time("decode", rows, value, Source.INFERRED, how))
        slope = math.log(1 / PAPER_LM_SPEED_108_SMS[rows]) / math.log(NUM_SMS / 108)
        for sms in (16, 24, 44, 76, 84, 100, 108, 116, 124):
            scaled = value * (NUM_SMS / sms) ** slope
            kept = f"keeps {PAPER_LM_SPEED_108_SMS[rows]:.0%} of its speed on 108 SMs (stated)"
            times.append(_time("decode", rows, scaled, Source.INFERRED, kept, sms=sms))
    beside = PAPER_BESIDE
    slopes = {
        rows: math.log(PAPER_CODEC_24_SMS_BESIDE_MS[rows] / beside / PAPER_CODEC_MS[rows])
        / math.log(NUM_SMS / 24)
        for rows in PAPER_CODEC_MS
    }
    for rows in (1, 16, 64):
        stated = rows in PAPER_CODEC_MS
        source = Source.STATED if stated else Source.INFERRED
        how = "section 2.3" if stated else "from batch 16, as plain kernels on an H200 grow"
        value = PAPER_CODEC_MS.get(rows) or (
            PAPER_CODEC_MS[16] * PLAIN_CODEC_MS[rows] / PLAIN_CODEC_MS[16]
        )
        times.append(_codec(rows, value, source, how))
        slope = slopes[min(rows, 16)]
        for sms in SMS_GRID:
            scaled = value * (NUM_SMS / sms) ** slope
            how = f"{_how(slope)}, from 24 SMs beside the backbone (stated)"
            times.append(_codec(rows, scaled, Source.INFERRED, how, sms=sms))
        for frames, share in FRAME_SHARE.items():
            how = f"{share} of a 10-frame chunk, as on an H200"
            times.append(_codec(rows, value * share, Source.INFERRED, how, frames=frames))
    for rows, value in PAPER_CODEC_24_SMS_BESIDE_MS.items():
        times.append(
            StageTime(
                "codec",
                rows,
                value * 1e-3,
                sms=24,
                frames=CHUNK_FRAMES,
                beside=("decode",),
                lane="background",
                split="108/24",
                source=Source.STATED,
                note="section 2.3",
            )
        )
    how = "fitted to a capacity of 42 requests/s without a split (section 4.7)"
    shared: dict[str, Any] = {"split": "none", "source": Source.INFERRED, "note": how}
    step_s = PAPER_DECODE_64_MS * PAPER_DECODE_SHARED * 1e-3
    times.append(StageTime("decode", 64, step_s, beside=("background",), lane="lm", **shared))
    batch_s = PAPER_CODEC_MS[16] * PAPER_CODEC_SHARED * 1e-3
    shared |= {"frames": CHUNK_FRAMES, "beside": ("decode",), "lane": "background"}
    times.append(StageTime("codec", 16, batch_s, **shared))
    for tokens, value in PLAIN_PREFILL_MS.items():
        how = "as plain kernels on an H200"
        times.append(_time("prefill", tokens // 40, value, Source.INFERRED, how, tokens=tokens))
    return Profile(
        name="h100-qwen3-tts-1.7b-paper",
        device="NVIDIA H100 80GB (SXM)",
        model="qwen3-tts-1.7b",
        num_sms=NUM_SMS,
        frame_s=FRAME_S,
        sample_rate_hz=SAMPLE_RATE_HZ,
        prepared=Prepared(
            splits=(Split(), Split(100, 32)),
            decode_buckets=(1, 2, 4, 8, 16, 32, 64),
            codec_buckets=(1, 2, 4, 8, 16, 32, 64),
            urgent_buckets=(1, 2, 4, 8),
            prefill_buckets=(256, 512, 1024, 2048),
            chunk_frames=(2, 4, 10),
            num_slots=512,
        ),
        host=HostTime(0.0001, source=Source.STATED, note="less than 0.1 ms at the median"),
        times=tuple(times),
        created="2026-11-29",
        note=(
            "From the VoxServe paper (arXiv 2602.00269v2). Largest decode and codec batch 64: "
            "inferred from 36 executables in all and from 10 steps within 200 ms."
        ),
    )


def _slope(rows: int, whole: Mapping[int, float], part: Mapping[int, float], sms: int) -> float:
    """Exponent of time over SMs at a batch, between and beyond those timed on both."""
    at = sorted(part)
    slopes = [math.log(part[row] / whole[row]) / math.log(NUM_SMS / sms) for row in at]
    return float(np.interp(rows, at, slopes))


def _how(slope: float) -> str:
    return f"scaled by SMs to the power -{slope:.2f}"


def _time(
    stage: str, rows: int, value_ms: float, source: Source, note: str, sms: int = 0, tokens: int = 0
) -> StageTime:
    seconds = float(f"{value_ms * 1e-3:.4g}")
    return StageTime(stage, rows, seconds, sms=sms, tokens=tokens, source=source, note=note)


def _codec(
    rows: int,
    value_ms: float,
    source: Source,
    note: str,
    sms: int = 0,
    frames: int = CHUNK_FRAMES,
) -> StageTime:
    seconds = float(f"{value_ms * 1e-3:.4g}")
    return StageTime("codec", rows, seconds, sms=sms, frames=frames, source=source, note=note)


def write() -> list[str]:
    """Writes the profiles into the package; a measured one is left alone. Returns their names."""
    written: list[str] = []
    for profile in (h200_provisional(), h100_paper()):
        path = profiles.PROFILES_DIR / f"{profile.name}.json"
        if path.is_file() and "measured" in profiles.load(path).sources():
            continue
        profiles.save(profile, path)
        written.append(profile.name)
    return written


if __name__ == "__main__":
    write()
