"""Words of a text that arrives in parts are those of the text at once."""

from __future__ import annotations

import time
from importlib import resources

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voxserve.models.text.arriving import ArrivingText
from voxserve.models.text.normalise import normalise

TEXTS = (
    "The meeting is on May 5, 2024 at 10 p.m. We paid $5 million, he said.",
    "No. 5 is alive. No. I won't go: vitamin A is good, e.g. for Dr. Smith of St. Mary.",
    "Chapter IV begins. The FBI and NASA agree\n\nAnother paragraph",
    "A well-known well - dug hole (twice), \u201chello\u201d... what?! 50% \u2014 or 3 to 5 km",
)


def _arrived(text: str, length: int) -> str:
    arriving = ArrivingText()
    words: list[str] = []
    for start in range(0, len(text), length):
        words += arriving.push(text[start : start + length])
    return " ".join([*words, *arriving.finish()])


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("length", [1, 4, 1000])
def test_parts_change_nothing(text: str, length: int) -> None:
    assert _arrived(text, length) == normalise(text).text


def test_the_bundled_sentences_arrive_as_they_are_read_at_once() -> None:
    path = resources.files("voxserve") / "data" / "sentences" / "eval.tsv"
    for line in path.read_text("utf-8").splitlines():
        text = line.split("\t")[1]
        assert _arrived(text, 3) == normalise(text).text


@settings(deadline=None)
@given(st.text(st.sampled_from("aB 5.,!-'\n$%"), max_size=40), st.integers(1, 9))
def test_words_do_not_depend_on_the_parts(text: str, length: int) -> None:
    assert _arrived(text, length) == _arrived(text, 1000)


def test_words_come_as_soon_as_they_are_settled() -> None:
    arriving = ArrivingText()
    assert arriving.push("The old bri") == ["the"]
    assert arriving.push("dge is") == ["old"]
    assert arriving.push(" closed. It") == ["bridge", "is", "closed."]
    assert arriving.push(" costs $5 mil") == ["it"]
    assert arriving.push("lion now, they say") == ["costs", "five", "million", "dollars", "now,"]
    assert arriving.finish() == ["they", "say."]


def test_a_long_run_of_figures_is_not_waited_for() -> None:
    arriving = ArrivingText()
    assert arriving.push("7 " * 30)


def test_text_without_words() -> None:
    arriving = ArrivingText()
    assert arriving.push(" \U0001f642 ") == []
    assert arriving.finish() == []


@pytest.mark.parametrize("text", ["a", "7", "a.", "$", " ", "\n", "a-"])
def test_a_text_without_an_end_costs_its_length_not_its_square(text: str) -> None:
    text = (text * 20_000)[:20_000]
    began_s = time.thread_time()
    arriving = ArrivingText()
    for start in range(0, len(text), 100):
        arriving.push(text[start : start + 100])
    assert time.thread_time() - began_s < 1.0  # quadratic: a minute
