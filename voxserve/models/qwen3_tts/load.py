"""Loads Qwen3-TTS from a folder in the published layout, a repo id, or with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from voxserve.core.errors import DeviceUnavailable
from voxserve.models.blocks.sampling import SamplingDefaults
from voxserve.models.blocks.weights import (
    CheckpointFiles,
    RandomWeights,
    find_checkpoint,
    read_json,
)
from voxserve.models.qwen3_tts.config import (
    parse_codec,
    parse_talker,
    published_codec,
    published_talker,
)
from voxserve.models.qwen3_tts.model import Qwen3TTS
from voxserve.models.qwen3_tts.shapes import (
    UNUSED_CODEC,
    UNUSED_TALKER,
    codec_shapes,
    random_gain,
    talker_shapes,
)
from voxserve.models.qwen3_tts.tokenizer import BpeTokenizer, HashTokenizer

_REPOS = {
    "1.7b": "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice",
    "0.6b": "Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice",
}
_FILES = ("*.json", "merges.txt", "*.safetensors", "speech_tokenizer/*")


def load(
    device: str, weights: str | None = None, *, size: str, dtype: torch.dtype | None = None
) -> Qwen3TTS:
    """Loads the model.

    Args:
        device: "cpu" or "cuda[:n]".
        weights: A checkpoint folder, a repo id, "random", or None for the published repo.
        size: "1.7b" or "0.6b": which repo, which random shapes. A folder's own config counts.
        dtype: Of weights and activations; None takes float32 on a CPU, bfloat16 on a GPU.

    Raises:
        DeviceUnavailable: No such device.
        UnknownModel: Neither a folder nor a repo that can be fetched.
        CheckpointError: Files or tensors are missing, unexpected or malformed.
    """
    target = _device(device)
    if dtype is None:
        dtype = torch.float32 if target.type == "cpu" else torch.bfloat16
    name = f"qwen3-tts-{size}"
    if weights == "random":
        return _random(name, size, target, dtype)
    folder = find_checkpoint(weights or _REPOS[size], _FILES)
    return _from_folder(name, folder, target, dtype)


def _device(device: str) -> torch.device:
    try:
        target = torch.device(device)
    except RuntimeError as problem:
        raise DeviceUnavailable(f"no device {device!r}: use 'cpu' or 'cuda'") from problem
    if target.type == "cuda" and not torch.cuda.is_available():
        raise DeviceUnavailable("this torch finds no NVIDIA GPU; device='cpu' works")
    return target


def _random(name: str, size: str, device: torch.device, dtype: torch.dtype) -> Qwen3TTS:
    config, codec = published_talker(size), published_codec()
    return Qwen3TTS(
        *(name, config, codec),
        RandomWeights(talker_shapes(config), device, dtype),
        RandomWeights(codec_shapes(codec), device, dtype, gain=random_gain),
        HashTokenizer(config.text_ids.im_start),
        SamplingDefaults(),
    )


def _from_folder(name: str, folder: Path, device: torch.device, dtype: torch.dtype) -> Qwen3TTS:
    config = parse_talker(read_json(folder / "config.json"))
    speech = folder / "speech_tokenizer"
    codec = parse_codec(read_json(speech / "config.json"))
    return Qwen3TTS(
        *(name, config, codec),
        CheckpointFiles(folder, talker_shapes(config), UNUSED_TALKER, device, dtype),
        CheckpointFiles(speech, codec_shapes(codec), UNUSED_CODEC, device, dtype),
        BpeTokenizer(folder),
        _defaults(folder),
    )


def _defaults(folder: Path) -> SamplingDefaults:
    """generation_config.json, where there is one; its names say "subtalker" for the depth."""
    path = folder / "generation_config.json"
    given: dict[str, Any] = dict(read_json(path)) if path.exists() else {}
    usual = SamplingDefaults()
    values: dict[str, Any] = {}
    for prefix, published, sample in (
        ("", "", "do_sample"),
        ("depth_", "subtalker_", "subtalker_dosample"),
    ):
        for name in ("temperature", "top_k", "top_p"):
            ours = f"{prefix}{name}"
            values[ours] = given.get(f"{published}{name}", getattr(usual, ours))
        if not given.get(sample, True):
            values[f"{prefix}temperature"] = 0.0
    penalty = given.get("repetition_penalty", usual.repetition_penalty)
    return SamplingDefaults(**values, repetition_penalty=penalty)
