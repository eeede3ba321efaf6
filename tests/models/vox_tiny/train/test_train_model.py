"""The model in training: the order of a sequence, what it may hear, runs, snapshots, packing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models.vox_tiny.train.train_support import SMALL, TEXTS, utterances

from voxserve.core.errors import CheckpointError, InvalidInput
from voxserve.models.vox_tiny.train import arrivals, data, reading, rounding, shards, snapshot
from voxserve.models.vox_tiny.train.__main__ import main
from voxserve.models.vox_tiny.train.network import (
    AUDIO_BEGIN,
    PADDING,
    TEXT_BEGIN,
    TEXT_END,
    LanguageModel,
)
from voxserve.models.vox_tiny.train.sequences import Batch, sequence_order
from voxserve.models.vox_tiny.train.trainer import Trainer, TrainingPlan


def _batch(is_streamed: bool, rows: int = 5, seed: int = 0) -> Batch:
    speech = data.SpeechData(utterances(rows), "cpu")
    generator = torch.Generator().manual_seed(seed)
    return speech.batch(torch.arange(rows), torch.full((rows,), is_streamed), generator)


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(SMALL).eval()


@given(st.integers(0, 1000), st.booleans())
@settings(max_examples=25, deadline=None)
def test_a_sequence_holds_everything_once_and_in_order(seed: int, is_streamed: bool) -> None:
    batch = _batch(is_streamed, seed=seed)
    order, step_places, text_places = sequence_order(batch)
    tokens = batch.text.shape[1]
    for row, (num_text, frames) in enumerate(
        zip(batch.text_lengths.tolist(), batch.frames.tolist(), strict=True)
    ):
        real = order[row, : num_text + frames + 1].tolist()
        assert [i for i in real if i < tokens] == list(range(num_text))
        assert [i for i in real if i >= tokens] == list(range(tokens, tokens + frames + 1))
        assert batch.text[row, 0] == TEXT_BEGIN
        assert batch.text[row, num_text - 1] == TEXT_END
        assert (batch.text[row, num_text:] == PADDING).all()
        for token in range(num_text):
            step = int(batch.arrivals[row, token])
            assert text_places[row, token] < step_places[row, step]
            assert step == 0 or text_places[row, token] > step_places[row, step - 1]


@given(st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_streamed_words_come_before_they_sound(seed: int) -> None:
    batch = _batch(True, seed=seed)
    sounds = batch.sounding.int().argmax(1)
    is_heard = batch.sounding.any(1)
    assert (batch.arrivals <= sounds)[is_heard].all()
    words = batch.segments[2][: batch.text_lengths[2]]
    steps = batch.arrivals[2][: batch.text_lengths[2]]
    for word in words.unique():
        assert len(steps[words == word].unique()) == 1


def test_whole_texts_come_before_the_speech() -> None:
    batch = _batch(False)
    assert (batch.arrivals == 0).all()
    assert (batch.segments == 0).all()


def test_served_words_come_one_per_step_at_most() -> None:
    steps = arrivals.served_steps("it was a bright, cold day in april, and nobody knew why.")
    assert steps[0] == 0
    assert all(later > earlier for earlier, later in zip(steps, steps[1:], strict=False))
    expected = arrivals.expected_starts("a bright, cold day")
    assert expected[2] - expected[1] > 3 + expected[3] - expected[2]  # the comma's pause


@pytest.mark.parametrize("is_streamed", [False, True])
def test_one_step_at_a_time_is_the_whole_sequence(model: LanguageModel, is_streamed: bool) -> None:
    """Nothing is heard or read before it has come: steps see what the training's masks allow."""
    batch = _batch(is_streamed, seed=3)
    kept = torch.ones(batch.codes.shape[:2], dtype=torch.bool)
    with torch.inference_mode():
        expected, _ = model.talk(batch, kept)
        for row in (1, 2):
            context = reading.StepContext(model)
            arrived = 0
            for step in range(int(batch.frames[row]) + 1):
                for segment in batch.segments[row].unique():
                    chosen = (batch.segments[row] == segment) & (batch.arrivals[row] == step)
                    chosen[batch.text_lengths[row] :] = False
                    if chosen.any():
                        context.add_text(batch.text[row][chosen].tolist())
                        arrived += int(chosen.sum())
                if step:
                    x = model.embed_frames(batch.codes[row, step - 1 : step])
                else:
                    x = model.te(torch.tensor([AUDIO_BEGIN]))
                assert torch.allclose(context.advance(x)[0], expected[row, step], atol=1e-4)
            assert arrived == batch.text_lengths[row]


def test_padding_changes_nothing(model: LanguageModel) -> None:
    speech = data.SpeechData(utterances(4), "cpu")
    hidden = []
    for index in (torch.tensor([1]), torch.tensor([1, 3])):
        batch = speech.batch(index, torch.zeros(len(index), dtype=torch.bool), torch.Generator())
        kept = torch.ones(batch.codes.shape[:2], dtype=torch.bool)
        with torch.inference_mode():
            hidden.append(model.talk(batch, kept)[0][0, : int(batch.frames[0]) + 1])
    assert torch.allclose(*hidden, atol=1e-5)


def test_later_codes_of_a_frame_do_not_reach_earlier_ones(model: LanguageModel) -> None:
    hidden, codes = torch.randn(1, SMALL.hidden), torch.randint(0, 40, (1, 8))
    logits = model.depth_logits(hidden, codes)
    changed = codes.clone()
    changed[:, 4:] = (codes[:, 4:] + 1) % 40
    others = model.depth_logits(hidden, changed)
    assert torch.allclose(logits[:, :5], others[:, :5])  # codebooks 1 to 5 read codes 0 to 3
    assert not torch.allclose(logits[:, 5:], others[:, 5:])


def test_rounding_is_what_the_file_holds_and_lets_gradients_through() -> None:
    weight = torch.randn(6, 10, requires_grad=True)
    stored = rounding.rounded(weight)
    assert (stored - weight).abs().max() <= weight.abs().max() / rounding.LARGEST
    assert torch.allclose(rounding.rounded(stored), stored, atol=1e-4)
    stored.sum().backward()
    assert torch.equal(weight.grad, torch.ones_like(weight))


def test_batches_hold_every_utterance_once_and_fit() -> None:
    lengths = torch.randint(5, 60, (200,))
    batches = data.epochs(lengths, torch.arange(200), 300, torch.Generator().manual_seed(0))
    seen: list[int] = []
    while len(seen) < 200:
        batch = next(batches)
        assert len(batch) * int(lengths[batch].max()) <= 300
        seen += batch.tolist()
    assert sorted(seen) == list(range(200))


def _entries(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text("utf-8").splitlines()]


def test_a_run_learns_is_resumed_and_is_packed(tmp_path: Path) -> None:
    """The smoke run of the whole command: shards, training in two goes, the small file."""
    (tmp_path / "shards").mkdir()
    shards.write(tmp_path / "shards" / "a.npz", utterances(60))
    options = [f"--{name}={value}" for name, value in _small_options().items()]
    common = ["lm", f"--shards={tmp_path / 'shards'}", f"--into={tmp_path / 'run'}", *options]
    main([*common, "--most-steps=30"])
    main([*common, "--most-steps=60"])
    entries = _entries(tmp_path / "run")
    starts = [entry["step"] for entry in entries if entry["kind"] == "start"]
    values = [entry["value"] for entry in entries if entry["kind"] == "evaluation"]
    assert starts == [0, 30]
    assert values[-1] < values[0]
    main(
        ["pack", f"--snapshot={tmp_path / 'run' / 'best'}", f"--into={tmp_path / 'v.safetensors'}"]
    )
    _, packed = _read_packed(tmp_path / "v.safetensors")
    _, weights = snapshot.load(tmp_path / "run" / "best")
    assert torch.equal(packed["lm.n.w"], weights["n.w"])
    expected = rounding.rounded(weights["ls.0.qkv.weight"])
    assert torch.allclose(packed["lm.ls.0.qkv.weight"], expected, atol=1e-6)
    assert "dec.h.weight" in packed


def _small_options() -> dict[str, object]:
    names = ("hidden", "layers", "heads", "kv_heads", "ffn", "depth_hidden", "depth_heads")
    shape = {name.replace("_", "-"): getattr(SMALL, name) for name in (*names, "depth_ffn")}
    shape["codebook-size"] = SMALL.codebook_size
    return {**shape, "device": "cpu", "seconds": 1e6, "positions": 400, "learning-rate": 1e-2}


def _read_packed(path: Path) -> tuple[dict[str, object], dict[str, torch.Tensor]]:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        config = json.loads(file.metadata()["config"])
        stored = {name: file.get_tensor(name).float() for name in file.keys()}
    plain = {name: t for name, t in stored.items() if not name.endswith((".int8", ".scale"))}
    matrices = {
        name.removesuffix(".int8"): t * stored[name.removesuffix(".int8") + ".scale"]
        for name, t in stored.items()
        if name.endswith(".int8")
    }
    return config, plain | matrices


def test_a_run_ends_when_nothing_gets_better(tmp_path: Path) -> None:
    plan = TrainingPlan(
        seconds=1e6, learning_rate=0.0, positions=400, evaluate_every_s=0.0, patience=2
    )
    shards.write(tmp_path / "a.npz", utterances(10))
    trainer = Trainer(SMALL, plan, data.ShardFolders([tmp_path]), "cpu", tmp_path / "run")
    trainer.run()
    assert trainer.step < 10


def test_speech_that_comes_during_a_run_joins_it(tmp_path: Path) -> None:
    shards.write(tmp_path / "a.npz", utterances(10))
    plan = TrainingPlan(seconds=1e6, most_steps=3, positions=400, look_every_s=0.0)
    trainer = Trainer(SMALL, plan, data.ShardFolders([tmp_path]), "cpu", tmp_path / "run")
    held_out = int(trainer.speech.is_held_out.sum())
    shards.write(tmp_path / "b.npz", utterances(10, 1))
    trainer.run()
    added = [entry for entry in _entries(tmp_path / "run") if entry["kind"] == "added"]
    assert [entry["utterances"] for entry in added] == [20]
    assert held_out > 0
    assert int(trainer.speech.is_held_out.sum()) == 2 * held_out  # by text, and texts repeat
    index = torch.tensor([12, 2])
    batch = trainer.speech.batch(index, torch.zeros(2, dtype=torch.bool), torch.Generator())
    assert torch.equal(batch.text[0], batch.text[1])


def test_what_was_best_on_other_speech_is_forgotten(tmp_path: Path) -> None:
    def trainer() -> Trainer:
        plan = TrainingPlan(seconds=1e6, positions=400)
        return Trainer(SMALL, plan, data.ShardFolders([tmp_path]), "cpu", tmp_path / "run")

    shards.write(tmp_path / "b.npz", utterances(10))
    first = trainer()
    first.best = 1.5
    first.save()
    assert trainer().best == 1.5
    shards.write(tmp_path / "a.npz", utterances(10, 1))
    assert trainer().best == float("inf")


def test_snapshots_are_told_from_nothing(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no snapshot"):
        snapshot.load(tmp_path)
    (tmp_path / "lm-0.safetensors").write_bytes(b"something else")
    with pytest.raises(CheckpointError, match="cannot read"):
        snapshot.load(tmp_path)
    with pytest.raises(InvalidInput, match="no shards"):
        data.ShardFolders([tmp_path]).first()


@pytest.mark.parametrize("is_streamed", [False, True])
def test_readings_depend_on_seed_and_text_only(
    model: LanguageModel, tmp_path: Path, is_streamed: bool
) -> None:
    snapshot.save(model.state_dict(), SMALL, tmp_path)
    reader = reading.Reader(tmp_path)
    codes = reader.read(TEXTS[2], 1, 12, is_streamed)
    assert codes.shape[1] == 8
    assert torch.equal(codes, reader.read(TEXTS[2], 1, 12, is_streamed))
    assert not torch.equal(codes, reader.read(TEXTS[2], 2, 12, is_streamed))


def test_a_smaller_snapshot_leaves_nothing_of_a_larger_one(
    model: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = model.state_dict()
    monkeypatch.setattr(snapshot, "_LARGEST_BYTES", 10_000)
    snapshot.save(weights, SMALL, tmp_path)
    assert len(list(tmp_path.iterdir())) > 1
    monkeypatch.setattr(snapshot, "_LARGEST_BYTES", 10_000_000)
    snapshot.save(weights, SMALL, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["lm-0.safetensors"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("lm --shards {0}/none --into {0}/run --seconds 5 --device cpu", "no shards"),
        ("lm --shards {0} --into {0}/run --seconds nan", "0 or more is needed"),
        ("lm --shards {0} --into {0}/run --seconds 5 --positions 0", "at least 1 is needed"),
        ("lm --shards {0} --into {0}/run --seconds 5 --device none", "--device none"),
        ("lm --shards {0} --into {0}/run --seconds 5 --hidden 32 --heads 3", "no multiple of 3"),
        ("merge --shards {0}/none --into {0}/merged", "no shards"),
        ("pack --snapshot {0}/none --into {0}/v.safetensors", "no snapshot"),
        ("speak --corpus {0}/none --into {0}/spoken", "No such file"),
        ("speak --corpus {0}/none --into {0}/spoken --workers 0", "at least 1 is needed"),
        ("speak --corpus {0}/none --into {0}/spoken --machine 2 2", "2 count from 0"),
        ("corpus --sources {0} --into {0}/corpus --only 8", "parts 0 to 7"),
    ],
)
def test_a_refused_stage_says_why_in_a_line(
    arguments: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments.format(tmp_path).split())
    assert why in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("state", [b"", b"no state", None])
def test_a_state_that_does_not_fit_is_not_resumed(state: bytes | None, tmp_path: Path) -> None:
    shards.write(tmp_path / "a.npz", utterances(60))
    source, plan = data.ShardFolders([tmp_path]), TrainingPlan(seconds=60.0)
    if state is None:
        torch.save({"model": {}}, tmp_path / "state.pt")
    else:
        (tmp_path / "state.pt").write_bytes(state)
    with pytest.raises(CheckpointError, match="begin in another folder"):
        Trainer(SMALL, plan, source, "cpu", tmp_path)
