"""Writes the small weights file that is served: the language model in 8 bits, the bundled decoder.

Matrices become `name.int8` with one fp16 factor per row in `name.scale`; the rest is fp16.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from voxserve.models.vox_tiny.checkpoint import Tensors
from voxserve.models.vox_tiny.config import ARCHITECTURE
from voxserve.models.vox_tiny.train import arrivals, network, snapshot
from voxserve.models.vox_tiny.train.encoder import SAMPLE_RATE_HZ
from voxserve.models.vox_tiny.train.network import ModelShape
from voxserve.models.vox_tiny.train.reading import DEPTH_RULE, FIRST_RULE
from voxserve.models.vox_tiny.train.rounding import LARGEST, row_scales

_TEACHER = "hibari-tts 0.2.1 (Apache-2.0)"


def pack(folder: Path, into: Path) -> None:
    """Packs a snapshot with the codec decoder that the package ships.

    Args:
        folder: Of the snapshot.
        into: The safetensors file to write.
    """
    shape, weights = snapshot.load(folder)
    stored: Tensors = {}
    for name, tensor in weights.items():
        _store(stored, f"lm.{name}", tensor)
    bundled = resources.files("voxserve") / "data" / "vox-tiny" / "tinyvox_int8.safetensors"
    with safe_open(Path(str(bundled)), framework="pt") as file:
        codec = json.loads(file.metadata()["config"])["codec"]
        for name in file.keys():
            if not name.startswith("lm."):
                stored[name] = file.get_tensor(name)
    into.parent.mkdir(parents=True, exist_ok=True)
    metadata = {"config": json.dumps(config(shape, codec)), "teacher": _TEACHER}
    save_file({name: tensor.contiguous() for name, tensor in stored.items()}, into, metadata)


def config(shape: ModelShape, codec: dict[str, float]) -> dict[str, object]:
    """What a server must know, for the file's metadata.

    Args:
        shape: Of the language model.
        codec: The decoder's own entry.
    """
    return {
        "architecture": ARCHITECTURE,
        "sample_rate": SAMPLE_RATE_HZ,
        "codebooks": shape.codebooks,
        "codebook_size": shape.codebook_size,
        "eos": shape.end_code,
        "text": {
            "chars": network.CHARACTERS,
            "pad": network.PADDING,
            "text_bos": network.TEXT_BEGIN,
            "text_eos": network.TEXT_END,
            "audio_bos": network.AUDIO_BEGIN,
            "first_char": network.FIRST_CHARACTER,
            "table": network.TEXT_IDS,
            "lead_words": arrivals.SERVED_LEAD_WORDS,
        },
        "talker": {
            "hidden": shape.hidden,
            "layers": shape.layers,
            "heads": shape.heads,
            "kv_heads": shape.kv_heads,
            "head_dim": shape.head_dim,
            "ffn": shape.ffn,
            "rope_theta": network.ROPE_THETA,
            "text_conv": {"blocks": shape.text_blocks, "kernel": shape.text_kernel},
        },
        "depth": {
            "hidden": shape.depth_hidden,
            "layers": shape.depth_layers,
            "heads": shape.depth_heads,
            "ffn": shape.depth_ffn,
            "codes_per_pass": shape.codes_per_pass,
        },
        "codec": codec,
        "sampling": {
            "temperature_first": FIRST_RULE.temperature,
            "temperature_rest": DEPTH_RULE.temperature,
            "top_k": FIRST_RULE.top_k,
        },
    }


def _store(stored: Tensors, name: str, tensor: torch.Tensor) -> None:
    is_matrix = tensor.dim() >= 2 and ".dw." not in name
    if not is_matrix:
        stored[name] = tensor.half()
        return
    scales = row_scales(tensor)
    codes = torch.round(tensor / scales).clamp(-LARGEST, LARGEST)
    stored[f"{name}.int8"] = codes.to(torch.int8)
    stored[f"{name}.scale"] = scales.half()
