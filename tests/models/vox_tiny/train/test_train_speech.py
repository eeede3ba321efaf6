"""From texts to shards: the teacher's timing, the codec encoder, the files."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from models.vox_tiny.train.train_support import utterances
from safetensors.torch import save_file

from voxserve.core.errors import CheckpointError, InvalidInput, VoxserveError
from voxserve.models.vox_tiny.train import corpus, shards, speak
from voxserve.models.vox_tiny.train.encoder import (
    BLOCKS_PER_FRAME,
    FRAME_SAMPLES,
    CodecEncoder,
    load_encoder,
)
from voxserve.models.vox_tiny.train.teacher import Teacher, character_ends, letter_spans


@pytest.fixture(scope="module")
def teacher() -> Teacher:
    return Teacher()


def test_letters_share_their_word_and_marks_the_pause() -> None:
    spans = letter_spans("oh, me.", "O, mi.")
    assert spans == [(0, 1, 2), (3, 5, 6)]
    # One number per phoneme and one for the padding before: o , _ m i .
    ends = np.array([10.0, 20.0, 50.0, 52.0, 60.0, 72.0, 90.0, 95.0])
    times = character_ends("oh, me.", spans, ends)
    assert times.tolist() == [15.0, 20.0, 50.0, 52.0, 62.0, 72.0, 90.0]


@pytest.mark.parametrize(
    ("text", "phonemes"), [("one two", "wVn"), ("a ,", "A ,"), ("a  b", "A b")]
)
def test_words_must_correspond(text: str, phonemes: str) -> None:
    assert letter_spans(text, phonemes) is None


def test_teacher_tells_when_words_sound(teacher: Teacher) -> None:
    text = "stop, please"
    speech = teacher.speak(text, teacher.phonemes(text), 0)
    assert speech is not None
    assert len(speech.samples) % FRAME_SAMPLES == 0
    assert len(speech.pitch) * FRAME_SAMPLES == len(speech.samples) * BLOCKS_PER_FRAME
    assert (np.diff(speech.ends) >= 0).all()
    loud = np.abs(speech.samples).reshape(-1, 240).max(1) > 0.005
    first, last = loud.nonzero()[0][[0, -1]]
    assert 2 <= first <= 20  # blocks: a short silence before
    assert 10 <= len(loud) - last <= 60  # and one after
    again = teacher.speak(text, teacher.phonemes(text), 0)
    assert again is not None
    assert np.array_equal(again.samples, speech.samples)


def test_letter_a_is_read_as_its_name(teacher: Teacher) -> None:
    assert teacher.phonemes("ay em") == "\u02c8A \u02c8\u025bm"


def test_encoder_gives_a_frame_of_codes_per_80_ms(tmp_path: Path) -> None:
    encoder = CodecEncoder(torch.randn(8, 1024, 64))
    weights = {f"enc.{name}": tensor.half() for name, tensor in encoder.state_dict().items()}
    save_file(weights, tmp_path / "encoder.safetensors")
    loaded = load_encoder(tmp_path / "encoder.safetensors")
    codes = loaded.encode(
        torch.randn(5 * FRAME_SAMPLES), torch.full((5 * BLOCKS_PER_FRAME,), 200.0)
    )
    assert codes.shape == (5, 8)
    assert 0 <= int(codes.min()) <= int(codes.max()) < 1024
    with pytest.raises(CheckpointError, match="codec encoder"):
        load_encoder(tmp_path / "nothing.safetensors")


def test_speaking_is_resumed(
    teacher: Teacher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [corpus.Line("short", text, teacher.phonemes(text)) for text in ("no.", "yes", "oh!")]
    lines.append(corpus.Line("short", "two words", "wVn"))  # has no times: left out
    corpus.save(lines, tmp_path / "part3.tsv.gz")
    encoder = CodecEncoder(torch.randn(8, 1024, 64))
    monkeypatch.setattr(speak, "load_encoder", lambda _: encoder)
    monkeypatch.setattr(speak, "Teacher", lambda: teacher)
    monkeypatch.setattr(speak, "LINES_PER_BLOCK", 2)
    into = tmp_path / "shards"
    speak.run([tmp_path / "part3.tsv.gz"], tmp_path, into, 1, -1.0, (0, 1))
    assert not list(into.glob("*.npz"))  # no time left: no block begun
    speak.run([tmp_path / "part3.tsv.gz"], tmp_path, into, 1, np.inf, (1, 2))
    assert [path.name for path in into.glob("*.npz")] == ["part3-0001.npz"]
    stamp = (into / "part3-0001.npz").stat().st_mtime_ns
    speak.run([tmp_path / "part3.tsv.gz"], tmp_path, into, 1, np.inf, (0, 1))
    assert (into / "part3-0001.npz").stat().st_mtime_ns == stamp
    texts = [u.text for path in sorted(into.glob("*.npz")) for u in shards.read(path)]
    assert texts == ["no.", "yes", "oh!"]


def test_a_worker_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Worker:
        exitcode = 0

        def __init__(self, target: object, args: tuple[object, ...]) -> None:
            self.number = args[3]

        def start(self) -> None:
            self.exitcode = int(self.number == 1)

        def join(self) -> None:
            pass

    context = SimpleNamespace(Process=Worker)
    monkeypatch.setattr("multiprocessing.get_context", lambda _: context)
    with pytest.raises(VoxserveError, match="1 of 3 workers failed"):
        speak.run([], tmp_path, tmp_path / "shards", 3, np.inf, (0, 1))


def test_shards_come_back(tmp_path: Path) -> None:
    made = utterances(7)
    shards.write(tmp_path / "a.npz", made)
    for before, after in zip(made, shards.read(tmp_path / "a.npz"), strict=True):
        assert before.text == after.text
        assert np.array_equal(before.codes, after.codes)
        assert np.array_equal(before.ends, after.ends)
    whole = (tmp_path / "a.npz").read_bytes()
    for content in (whole[:100], b""):
        (tmp_path / "b.npz").write_bytes(content)
        with pytest.raises(InvalidInput, match="not a shard"):
            shards.read(tmp_path / "b.npz")
    with pytest.raises(InvalidInput, match="not a shard"):
        shards.read(tmp_path / "c.npz")


def test_shards_are_joined_up_to_a_size(tmp_path: Path) -> None:
    (tmp_path / "in" / "x").mkdir(parents=True)
    for number in range(4):
        shards.write(tmp_path / "in" / "x" / f"{number}.npz", utterances(3, number))
    size = (tmp_path / "in" / "x" / "0.npz").stat().st_size
    written = shards.merge(tmp_path / "in", tmp_path / "out", int(2.5 * size))
    assert len(written) == 2
    assert sum(len(shards.read(path)) for path in written) == 12
