"""Loading: the published layout from a folder, and errors that name what does not fit."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from models.qwen3_tts.qwen_support import CHECKPOINT
from safetensors.torch import load_file, save_file

from voxserve.core.errors import CheckpointError, DeviceUnavailable, UnknownModel
from voxserve.models import registry
from voxserve.models.blocks.weights import RandomWeights
from voxserve.models.qwen3_tts.config import published_codec, published_talker
from voxserve.models.qwen3_tts.load import load
from voxserve.models.qwen3_tts.model import Qwen3TTS
from voxserve.models.qwen3_tts.shapes import codec_shapes, random_gain, talker_shapes

Tensors = dict[str, torch.Tensor]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the tiny checkpoint to spoil."""
    copy = tmp_path / "checkpoint"
    shutil.copytree(CHECKPOINT, copy)
    return copy


def change_tensors(path: Path, change: Callable[[Tensors], object]) -> None:
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def change_json(path: Path, change: Callable[[dict], object]) -> None:
    value = json.loads(path.read_text(encoding="utf-8"))
    change(value)
    path.write_text(json.dumps(value), encoding="utf-8")


def test_facts(tiny: Qwen3TTS) -> None:
    info = tiny.info
    assert (info.sample_rate_hz, info.frame_samples, info.num_codebooks) == (24000, 1920, 4)
    assert info.voices == ("vivian", "ryan", "eric")
    assert info.languages == ("auto", "english", "german", "chinese")
    assert info.accepts_streamed_text


def test_shards_load_like_one_file(folder: Path, tiny: Qwen3TTS) -> None:
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    for index, part in enumerate((names[:30], names[30:]), 1):
        path = folder / f"model-0000{index}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, path)
    model = load("cpu", str(folder), size="1.7b")
    assert torch.equal(model.talker.head, tiny.talker.head)
    assert torch.equal(model.talker.text_table, tiny.talker.text_table)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        (
            "model.safetensors",
            lambda t: t.pop("talker.model.norm.weight"),
            "1 missing: talker.model.norm.weight",
        ),
        (
            "model.safetensors",
            lambda t: t.update({"talker.extra": torch.zeros(1)}),
            "1 unexpected: talker.extra",
        ),
        (
            "model.safetensors",
            lambda t: t.update({"talker.codec_head.weight": torch.zeros(3, 48)}),
            r"talker.codec_head.weight is \[3, 48\], not \[1088, 48\]",
        ),
        (
            "speech_tokenizer/model.safetensors",
            lambda t: [t.pop(name) for name in list(t) if name.startswith("decoder.upsample")],
            "22 missing: .* and 17 more",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_named(
    folder: Path, file: str, change: Callable[[Tensors], object], message: str
) -> None:
    change_tensors(folder / file, change)
    with pytest.raises(CheckpointError, match=message):
        load("cpu", str(folder), size="1.7b")


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("config.json", lambda c: c.update(tts_model_type="base"), "only 'custom_voice'"),
        ("config.json", lambda c: c["talker_config"].pop("spk_id"), "no entry 'spk_id'"),
        (
            "speech_tokenizer/config.json",
            lambda c: c["decoder_config"].pop("codebook_dim"),
            "speech_tokenizer/config.json has no entry 'codebook_dim'",
        ),
        (
            "tokenizer_config.json",
            lambda c: c["added_tokens_decoder"].pop("297"),
            "gives '<.im_end.>' id 298, behind vocab.json it would be 297",
        ),
    ],
)
def test_configs_that_do_not_fit_are_named(
    folder: Path, file: str, change: Callable[[dict], object], message: str
) -> None:
    change_json(folder / file, change)
    with pytest.raises(CheckpointError, match=message):
        load("cpu", str(folder), size="1.7b")


@pytest.mark.parametrize(
    "file", ["config.json", "model.safetensors", "merges.txt", "speech_tokenizer/config.json"]
)
def test_missing_files_are_named(folder: Path, file: str) -> None:
    (folder / file).unlink()
    with pytest.raises(CheckpointError, match=Path(file).stem):
        load("cpu", str(folder), size="1.7b")


def test_malformed_files_are_named(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(CheckpointError, match="cannot be read"):
        load("cpu", str(folder), size="1.7b")
    (folder / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(CheckpointError, match="not JSON"):
        load("cpu", str(folder), size="1.7b")


def test_entries_a_config_may_leave_out(folder: Path, tiny: Qwen3TTS) -> None:
    change_json(folder / "config.json", lambda c: c["talker_config"].pop("rms_norm_eps"))
    decoder = folder / "speech_tokenizer" / "config.json"
    change_json(decoder, lambda c: c["decoder_config"].pop("upsample_rates"))
    model = load("cpu", str(folder), size="1.7b")
    assert model.config.backbone == tiny.config.backbone
    assert model.codec_decoder.config == tiny.codec_decoder.config


def test_greedy_checkpoints(folder: Path) -> None:
    change_json(folder / "generation_config.json", lambda c: c.update(do_sample=False, top_k=7))
    defaults = load("cpu", str(folder), size="1.7b").defaults
    assert (defaults.temperature, defaults.top_k, defaults.depth_temperature) == (0.0, 7, 0.9)


def test_no_such_place() -> None:
    with pytest.raises(UnknownModel, match="neither a folder nor a repo id"):
        load("cpu", "/no/such/folder/anywhere", size="1.7b")
    with pytest.raises(DeviceUnavailable, match="no device 'toaster'"):
        load("toaster", "random", size="1.7b")


def test_repo_ids_are_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """The published repo unless another is named; a failure says what works without a network."""
    asked = []

    def snapshot(repo: str, allow_patterns: list[str]) -> str:
        asked.append((repo, "speech_tokenizer/*" in allow_patterns))
        if repo.startswith("Qwen/"):
            return str(CHECKPOINT)
        raise OSError("offline")

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    model = registry.load("qwen3-tts-0.6b", "cpu")
    assert model.info.name == "qwen3-tts-0.6b"
    with pytest.raises(UnknownModel, match="offline.*a local folder works"):
        load("cpu", "some/repo", size="1.7b")
    assert asked == [("Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice", True), ("some/repo", True)]


@pytest.mark.parametrize(("size", "billions"), [("1.7b", 1.92), ("0.6b", 0.91)])
def test_published_sizes(size: str, billions: float) -> None:
    shapes = talker_shapes(published_talker(size))
    assert sum(math.prod(s) for s in shapes.values()) / 1e9 == pytest.approx(billions, abs=0.01)
    codec = codec_shapes(published_codec())
    assert sum(math.prod(s) for s in codec.values()) / 1e6 == pytest.approx(114.3, abs=0.5)


def test_random_weights_keep_their_names_numbers() -> None:
    shapes = {
        "a.weight": (64, 128),
        "norm.weight": (8,),
        "decoder.decoder.6.conv.weight": (1, 8, 7),
    }
    make = RandomWeights(shapes, torch.device("cpu"), torch.float32, 3, random_gain)
    other = RandomWeights(shapes, torch.device("cpu"), torch.float32, 4, random_gain)
    assert torch.equal(make("a.weight"), make("a.weight"))
    assert not torch.equal(make("a.weight"), other("a.weight"))
    assert float(make("a.weight").std()) == pytest.approx(128**-0.5, rel=0.05)
    assert torch.equal(make("norm.weight"), torch.ones(8))
