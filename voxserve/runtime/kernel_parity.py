"""Every kernel against its reference: a small set for any machine, the full sizes for a GPU."""

from __future__ import annotations

from voxserve.kernels.linear_kernel import LinearTile
from voxserve.runtime.codec_parity import codec_cases, conv_case, embedding_case, residual_unit_case
from voxserve.runtime.lm_parity import (
    decode_attention_case,
    depth_case,
    linear_tile_case,
    norm_cases,
    prefill_case,
    sampling_case,
)
from voxserve.runtime.parity_case import ParityCase, ParityResult, run_case

__all__ = ["ParityCase", "ParityResult", "full_cases", "run_case", "small_cases"]


def small_cases() -> list[ParityCase]:
    """Cases a CPU interprets in seconds."""
    return [
        *norm_cases(3, 96, 40),
        linear_tile_case(3, 128, 40, LinearTile(16, 16, 32, 4, 2), "norm"),
        linear_tile_case(20, 128, 48, LinearTile(16, 16, 32, 4, 2), "gated"),
        linear_tile_case(20, 128, 40, LinearTile(16, 32, 32, 4, 2, split=2), "residual"),
        decode_attention_case([0, 1, 64, 130], 4, 2, 32),
        decode_attention_case([5, 70], 2, 2, 32, normed=False),
        prefill_case([5, 70, 1], 4, 2, 32),
        depth_case(3, 4, 2, 32, 5),
        sampling_case(6, 200, first=True),
        sampling_case(6, 128, first=False),
        embedding_case(2, 3, 4, 50, 40),
        conv_case(2, 5, 64, 48, 3, mode="plain"),
        conv_case(2, 20, 32, 96, 7, 3),
        conv_case(3, 7, 64, 64, 1, mode="gelu"),
        conv_case(1, 170, 32, 32, 7, 9),
        residual_unit_case(2, 40, 96, 3),
        residual_unit_case(1, 33, 192, 1),
        residual_unit_case(1, 9, 64, 1),
        *codec_cases(3, 5, 40, 2, 32),
    ]


def full_cases() -> list[ParityCase]:
    """Cases at the sizes of Qwen3-TTS 1.7B and its codec."""
    lengths = [(37 * j) % 400 for j in range(64)]
    cases = [case for rows in (1, 7, 33, 256) for case in norm_cases(rows, 2048, 3072)]
    for rows, bm in ((1, 16), (64, 64), (250, 128)):
        cases += [
            linear_tile_case(rows, 1024, 3072, LinearTile(bm, 32, 128, 4, 3), "norm"),
            linear_tile_case(rows, 1024, 3072, LinearTile(bm, 32, 128, 4, 3), "gated"),
            linear_tile_case(rows, 3072, 1024, LinearTile(bm, 32, 128, 4, 3, split=4), "residual"),
            linear_tile_case(rows, 2048, 1024, LinearTile(bm, 32, 128, 4, 3, split=2), "residual"),
        ]
    cases += [case for rows in (1, 17, 200) for case in norm_cases(rows, 1024, 3072)]
    cases += [
        decode_attention_case(lengths, 16, 8, 128),
        decode_attention_case([1900], 16, 8, 128),
        prefill_case([40] * 16, 16, 8, 128),
        prefill_case([200, 1, 77, 150], 16, 8, 128),
        depth_case(65, 16, 8, 128, 16),
        sampling_case(257, 3072, first=True),
        sampling_case(257, 2048, first=False),
        embedding_case(3, 10, 16, 2048, 512),
        conv_case(3, 10, 512, 1024, 3, mode="plain"),
        conv_case(2, 40, 1024, 1536, 7),
        conv_case(2, 40, 1536, 6144, 2),
        conv_case(1, 20, 1024, 4096, 1, mode="gelu"),
        conv_case(2, 6400, 192, 288, 2),
    ]
    for rows in (1, 3):
        for channels, frames in ((768, 80 * 4), (384, 1600), (192, 6400), (96, 19200)):
            for dilation in (1, 9):
                cases.append(residual_unit_case(rows, frames, channels, dilation))
            cases.append(conv_case(rows, frames, channels, channels, 7, 3))
            cases.append(residual_unit_case(rows, frames // 10, channels, 3))
    return cases + codec_cases(5, 10, 1024, 16, 64)
