"""vox-tiny says what its training's own reading says, whole texts and word by word."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from models import contract
from models.vox_tiny import streaming
from models.vox_tiny.streaming import GREEDY, SHAPE, speak, streamed

from voxserve.core.jobs import RowStatus
from voxserve.models.request import SpeechOptions
from voxserve.models.vox_tiny.model import VoxTiny
from voxserve.models.vox_tiny.prompt import NOTHING
from voxserve.models.vox_tiny.sampling import DrawRule
from voxserve.models.vox_tiny.train import arrivals
from voxserve.models.vox_tiny.train.network import AUDIO_BEGIN, FIRST_CHARACTER, TEXT_END
from voxserve.models.vox_tiny.train.reading import Reader, StepContext

LOGIT_TOLERANCE = 1e-4  # of logits up to 5; fp32 sums in another order
TEXTS = (
    "no.",
    "the lamp is on.",
    "well, who knows, not me.",
    "it was a bright, cold day in april, and nobody knew why the old bridge was closed.",
)
SENTENCES = "It rains. Nobody knows why, and nobody asks. We will meet at 10:30, by the old bridge."


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return streaming.make_snapshot(tmp_path_factory.mktemp("second") / "snapshot")


@pytest.fixture(scope="module")
def model(snapshot: Path) -> VoxTiny:
    return streaming.load_packed(snapshot)


@pytest.fixture(scope="module")
def reader(snapshot: Path) -> Reader:
    greedy = DrawRule(0.0, 0, 1.0)
    return Reader(snapshot, greedy, greedy)


@pytest.mark.parametrize("text", TEXTS)
def test_a_whole_text_is_read_as_in_training(model: VoxTiny, reader: Reader, text: str) -> None:
    job = contract.prepare(model, text, sampling=GREEDY)
    (codes,) = contract.speak(model, contract.allocate(model, 1), [job], 1)
    expected = reader.read(text, 0, len(codes))
    assert len(codes)
    assert torch.equal(codes, expected.int())


@pytest.mark.parametrize("text", TEXTS)
def test_a_streamed_text_is_read_as_in_training(model: VoxTiny, reader: Reader, text: str) -> None:
    request = streamed(model, [text], SpeechOptions(sampling=GREEDY))
    (codes,) = speak(model, [request], rows_at_once=400)
    expected = reader.read(text, 0, len(codes), is_streamed=True)
    assert len(expected)
    assert torch.equal(codes[: len(expected)], expected.int())
    # Speech that ends before its time is followed by silence.
    assert (codes[len(expected) :] == expected[-1]).all()
    assert len(codes) <= max(len(expected), len(request.rows))


def test_drawn_codes_are_those_of_training(model: VoxTiny, snapshot: Path) -> None:
    reader = Reader(snapshot)
    for seed in range(3):
        job = contract.prepare(model, TEXTS[1], seed=seed)
        (codes,) = contract.speak(model, contract.allocate(model, 1), [job], 1)
        assert torch.equal(codes, reader.read(TEXTS[1], seed, len(codes)).int())


def test_logits_after_streamed_words(model: VoxTiny, reader: Reader) -> None:
    state = contract.allocate(model, 1)
    request = streamed(model, [TEXTS[3]], SpeechOptions())
    streaming.begin(model, state, 0, request)
    streaming.give(model, state, 0, request, 400)
    for _ in range(12):
        model.decode(state, torch.tensor([0]), 0)
    context = StepContext(reader.model)
    arriving = reader._segments(TEXTS[3], True)
    x = reader.model.te(torch.tensor([AUDIO_BEGIN]))
    with torch.inference_mode():
        for step in range(13):
            for segment in arriving.pop(step, []):
                context.add_text(segment)
            hidden = context.advance(x)
            x = reader.model.embed_frames(state.codes[0, step : step + 1].long())
        expected = reader.model.h0(context.advance(x))
        assert not arriving.pop(13, [])
        last = next(model._steps(state, [0]))
        logits = torch.mm(model.talker.normed(last), model.talker.head)
    assert hidden.shape == (1, SHAPE.hidden)
    assert (logits - expected).abs().max() < LOGIT_TOLERANCE


def test_requests_do_not_depend_on_the_batch(model: VoxTiny) -> None:
    contract.check_batch_does_not_matter(model, [*TEXTS, SENTENCES], batch=5, requests=10)


def test_streamed_requests_do_not_depend_on_the_batch(model: VoxTiny) -> None:
    texts = [*TEXTS, SENTENCES]
    made = [streamed(model, [text], SpeechOptions(seed=i)) for i, text in enumerate(texts)]
    together = speak(model, made, rows_at_once=400)
    for number, text in enumerate(texts):
        request = streamed(model, [text], SpeechOptions(seed=number))
        (alone,) = speak(model, [request], rows_at_once=400)
        assert torch.equal(alone, together[number])


@pytest.mark.parametrize("text", [*TEXTS, SENTENCES])
def test_a_slow_writer_only_makes_the_voice_wait(model: VoxTiny, text: str) -> None:
    quick, slow = (streamed(model, [text], SpeechOptions(seed=2)) for _ in range(2))
    (expected,) = speak(model, [quick], rows_at_once=400)
    (codes,) = speak(model, [slow], rows_at_once=1)
    assert slow.starved > quick.starved
    assert torch.equal(codes, expected)


def test_words_come_at_the_pace_of_training(model: VoxTiny) -> None:
    rows = streamed(model, [TEXTS[3]], SpeechOptions()).rows
    steps = arrivals.served_steps(TEXTS[3])
    words = [row[row != NOTHING].tolist() for row in rows]
    assert [step for step, ids in enumerate(words) if ids] == steps
    assert words[steps[-1]][-1] == TEXT_END
    letters = [id for ids in words for id in ids if id >= FIRST_CHARACTER]
    characters = model.config.characters
    assert "".join(characters[id - FIRST_CHARACTER] for id in letters) == TEXTS[3]


def test_rows_depend_on_the_text_not_on_its_parts(model: VoxTiny) -> None:
    whole = streamed(model, [SENTENCES], SpeechOptions()).rows
    letters = streamed(model, list(SENTENCES), SpeechOptions()).rows
    assert np.array_equal(whole, letters)


def test_long_texts_go_on_in_new_pieces(model: VoxTiny) -> None:
    text = "word " * 150 + "and a clause, " * 30 + "x" * 200
    rows = streamed(model, [text], SpeechOptions()).rows
    starts = np.flatnonzero(rows[:, 0] == model.config.text_bos_id)
    ends = np.flatnonzero((rows == TEXT_END).any(1))
    assert len(starts) == len(ends) > 4
    for start, end in zip(starts, ends, strict=True):
        assert np.count_nonzero(rows[start : end + 1]) <= 302
    assert rows.shape[1] < 50


def test_a_text_that_breaks_off_in_a_sentence_is_ended(model: VoxTiny) -> None:
    for text in ("one, two,", "so it goes \U0001f642"):
        rows = streamed(model, [text], SpeechOptions()).rows
        assert (rows[-1] == TEXT_END).any() or not rows[-1].any()
        assert np.count_nonzero(rows == TEXT_END) == 1


def test_a_slot_forgets_a_stream_that_was_cancelled(model: VoxTiny) -> None:
    job = contract.prepare(model, TEXTS[2], seed=3)
    state = contract.allocate(model, 1)
    (expected,) = contract.speak(model, state, [job], 1)
    request = streamed(model, [TEXTS[3]], SpeechOptions())
    streaming.begin(model, state, 0, request)
    streaming.give(model, state, 0, request, 4)
    model.decode(state, torch.tensor([0]), 0)
    assert state.is_open[0]
    (again,) = contract.speak(model, state, [job], 1)
    assert torch.equal(again, expected)
    assert not state.texts


def test_no_end_before_the_end_of_the_text(model: VoxTiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model.talker, "head", torch.zeros_like(model.talker.head))
    state = contract.allocate(model, 1)
    request = streamed(model, [TEXTS[3]], SpeechOptions(sampling=GREEDY))
    streaming.begin(model, state, 0, request)
    streaming.give(model, state, 0, request, 20)
    for _ in range(19):  # one code again and again, while words are to come: no watchdog
        model.decode(state, torch.tensor([0]), 0)
    assert state.status[0] == RowStatus.CONTINUE


def test_pieces_of_a_stream_have_a_watchdog_of_their_own(model: VoxTiny) -> None:
    state = contract.allocate(model, 1)
    options = SpeechOptions(min_frames=0)
    request = streamed(model, [TEXTS[1]], options)
    streaming.begin(model, state, 0, request)
    streaming.give(model, state, 0, request, 400)
    while state.is_open[0]:
        model.decode(state, torch.tensor([0]), 0)
    assert state.budget[0] < 60
    assert state.budget[0] - state.num_frames[0] > 30  # the last words are spoken after it
    state.budget[0] = state.num_frames[0]
    model.decode(state, torch.tensor([0]), 0)
    assert state.status[0] in (RowStatus.WATCHDOG, RowStatus.END)


def test_a_list_streamed_word_by_word_is_spoken_to_its_end(vox_tiny: VoxTiny) -> None:
    text = ", ".join(chr(letter) for letter in range(ord("A"), ord("Z") + 1)) + "."
    request = streamed(vox_tiny, [text], SpeechOptions())
    state = contract.allocate(vox_tiny, 1, 400)
    streaming.begin(vox_tiny, state, 0, request)
    streaming.give(vox_tiny, state, 0, request, 400)
    while state.status[0] == RowStatus.CONTINUE:
        vox_tiny.decode(state, torch.tensor([0], dtype=torch.int32), 0)
    assert state.status[0] == RowStatus.END
