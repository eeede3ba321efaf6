"""Prompts and text: what is asked for, how long texts are cut, text that arrives in parts."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import numpy as np
import pytest
from models.qwen3_tts.qwen_support import CHECKPOINT, GOLDEN

from voxserve.core.errors import InvalidInput
from voxserve.models.qwen3_tts import prompt as prompt_module
from voxserve.models.qwen3_tts.model import Qwen3TTS
from voxserve.models.qwen3_tts.prompt import MAX_PIECE_TOKENS, MAX_PROMPT_TOKENS, PromptWriter
from voxserve.models.qwen3_tts.tokenizer import BpeTokenizer, HashTokenizer
from voxserve.models.request import SpeechOptions

ALPHABET = "ab 'tsreLL  \n\r\t,.!?1 2é你好。ß-\u0301<|>_"


@pytest.fixture(scope="module")
def tokenizer() -> BpeTokenizer:
    return BpeTokenizer(CHECKPOINT)


def test_ids_are_the_reference_tokenizers(tokenizer: BpeTokenizer) -> None:
    golden = json.loads((GOLDEN / "token_ids.json").read_text(encoding="utf-8"))
    for name, text in golden["texts"].items():
        assert tokenizer.encode(text) == golden["ids"][name][3:-5], name
    instruct = golden["ids"]["Speak slowly."]
    assert tokenizer.encode("user\nSpeak slowly.") == instruct[1:-2]


def test_control_tokens_in_a_text_are_text(tokenizer: BpeTokenizer) -> None:
    ids = tokenizer.encode("say <|im_end|> <tts_pad>")
    assert max(ids) < 296, "the vocabulary without control tokens"


@pytest.mark.parametrize("half", [chr(0xD83D), chr(0xDE00)])
def test_half_a_surrogate_pair_is_a_character_like_others(
    tokenizer: BpeTokenizer, half: str
) -> None:
    for kind in (tokenizer, HashTokenizer(100)):
        assert kind.encode(f"a {half} b") == kind.encode("a \ufffd b")
        assert "".join(kind.split_settled(f"a {half} b c")).startswith("a ")
    assert tokenizer.encode("\ud83d\ude00") == tokenizer.encode("\U0001f600")


@pytest.mark.parametrize("make", [lambda: BpeTokenizer(CHECKPOINT), lambda: HashTokenizer(1000)])
def test_parts_give_the_ids_of_the_whole(make: object) -> None:
    tokenizer = make()
    draw = random.Random(0)
    for _ in range(1500):
        text = "".join(draw.choices(ALPHABET, k=draw.randint(1, 16)))
        cuts = sorted(draw.randint(0, len(text)) for _ in range(draw.randint(0, 5)))
        ids, rest = [], ""
        for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
            settled, rest = tokenizer.split_settled(rest + text[start:end])
            ids += tokenizer.encode(settled)
        assert ids + tokenizer.encode(rest) == tokenizer.encode(text), (text, cuts)


def test_a_feed_gives_words_when_the_next_begins(tiny: Qwen3TTS) -> None:
    feed = tiny.open_text()
    assert len(feed.push("  \n ")) == 0
    assert len(feed.push("Hel")) == 0
    hello = feed.push("lo there")
    ids = np.concatenate([hello, feed.push("!"), feed.push(""), feed.finish()])
    whole = BpeTokenizer(CHECKPOINT).encode("Hello there!")
    assert ids.tolist() == whole
    assert len(hello) > 0


def test_dialects_follow_their_speakers(tiny: Qwen3TTS) -> None:
    def tags(voice: str, language: str | None) -> list[int]:
        options = SpeechOptions(voice=voice, language=language)
        piece = tiny.preprocess("Hi.", options).pieces[0]
        return piece.ids[piece.mask[:, 1], 1].tolist()[:5]

    config = tiny.config
    ids, sichuan = config.codec_ids, config.languages["sichuan_dialect"]
    for language in (None, "auto", "Chinese"):
        assert tags("Eric", language)[:3] == [ids.think, ids.think_bos, sichuan]
    assert tags("eric", "english")[2] == config.languages["english"]
    assert tags("ryan", None)[:2] == [ids.no_think, ids.think_bos]
    assert tags("ryan", "chinese")[2] == config.languages["chinese"]
    assert "sichuan_dialect" not in tiny.info.languages


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("  \n", {}, "nothing to say"),
        ("Hi.", {"voice": "nobody"}, "no voice 'nobody'; there are vivian, ryan, eric"),
        ("Hi.", {"language": "klingon"}, "no language 'klingon'; there are auto, english"),
        ("Hi.", {"instruct": "slowly " * 300}, "over the limit of 200"),
    ],
)
def test_what_cannot_be_spoken_says_why(
    tiny: Qwen3TTS, text: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        tiny.preprocess(text, SpeechOptions(**options))


def test_long_texts_become_pieces_at_sentences(tiny: Qwen3TTS) -> None:
    sentence = "The quick brown fox jumps over the lazy dog, and nobody wonders why. "
    request = tiny.preprocess(sentence * 30, SpeechOptions())
    assert len(request.pieces) > 3
    assert " ".join(piece.text for piece in request.pieces) == (sentence * 30).strip()
    for piece in request.pieces:
        assert piece.text.endswith(".")
        assert piece.num_tokens <= MAX_PROMPT_TOKENS


@pytest.mark.parametrize(
    "text",
    ["no stops at all " * 80, "x" * 900, "你好世界，" * 60, "一二三四五六七八九十。" * 40],
)
def test_texts_without_sentences_are_cut_too(
    tiny: Qwen3TTS, tokenizer: BpeTokenizer, text: str
) -> None:
    request = tiny.preprocess(text, SpeechOptions())
    assert len(request.pieces) > 1
    spoken = "".join(piece.text.replace(" ", "") for piece in request.pieces)
    assert spoken == text.replace(" ", "")
    for piece in request.pieces:
        assert len(tokenizer.encode(piece.text)) <= MAX_PIECE_TOKENS


def test_frame_budget(tiny: Qwen3TTS) -> None:
    short = tiny.preprocess("Hi.", SpeechOptions())
    longer = tiny.preprocess("Hi. This goes on for a while.", SpeechOptions())
    assert 25 < short.max_frames < longer.max_frames
    assert tiny.preprocess("Hi.", SpeechOptions(max_frames=7)).max_frames == 7
    fixed = SpeechOptions(min_frames=900, max_frames=900)
    assert tiny.preprocess("Hi.", fixed).max_frames == 900


def test_small_models_take_no_instruction(tiny: Qwen3TTS, tokenizer: BpeTokenizer) -> None:
    writer = PromptWriter(replace(tiny.config, takes_instructions=False), tokenizer)
    request = writer.write("Hi.", SpeechOptions(instruct="Whisper."))
    assert request.options.instruct is None
    assert "no instructions" in request.notes[0]
    plain = writer.write("Hi.", SpeechOptions())
    assert np.array_equal(request.pieces[0].ids, plain.pieces[0].ids)
    spoken = tiny.preprocess("Hi.", SpeechOptions(instruct="Whisper.")).pieces[0]
    assert spoken.num_tokens > plain.pieces[0].num_tokens


def test_streamed_prompt_holds_the_first_token(tiny: Qwen3TTS) -> None:
    request = tiny.preprocess_streamed(np.array([7, 8], np.int32), SpeechOptions(voice="ryan"))
    piece = request.pieces[0]
    assert not request.is_text_complete
    assert piece.ids[-1, :2].tolist() == [7, tiny.config.codec_ids.bos]
    assert request.max_frames == prompt_module.MAX_CONTEXT_TOKENS - piece.num_tokens


def test_a_prompt_may_hold_codes_and_features(tiny: Qwen3TTS) -> None:
    """The places that cloning needs: frames of reference speech, and a speaker's vector."""
    generator = np.random.default_rng(0)
    request = tiny.preprocess("Hi.", SpeechOptions())
    piece = request.pieces[0]
    ids, mask = piece.ids.copy(), piece.mask.copy()
    ids[-2:, 1:] = generator.integers(0, 64, ids[-2:, 1:].shape)
    mask[-2:, 1:] = True
    features = generator.standard_normal((len(ids), 48)).astype(np.float32)
    inputs = tiny.pack_prefill(
        (0,), (replace(piece, ids=ids, mask=mask, features=features),), tiny.device
    )
    rows = tiny.talker.embed_prompt(inputs)
    tables = [tiny.talker.text_table, tiny.talker.codec_table, *tiny.talker.frame_tables[1:]]
    expected = features[-1] + sum(
        table[int(ids[-1, column])].numpy() for column, table in enumerate(tables)
    )
    assert np.allclose(rows[-1].numpy(), expected, atol=1e-5)
