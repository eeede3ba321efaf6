"""Where a text is cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from voxserve.models.text.pieces import cut


def test_sentences() -> None:
    assert cut("one two. three? four!", 140) == ["one two.", "three?", "four!"]


def test_clauses_of_about_equal_length() -> None:
    sentence = "first part of it, second part of it, third part of it, fourth part of it."
    assert cut(sentence, 40) == [
        "first part of it, second part of it.",
        "third part of it, fourth part of it.",
    ]


def test_words_where_there_is_no_clause() -> None:
    pieces = cut("a" + " word" * 20 + ".", 40)
    assert " ".join(piece.rstrip(".") for piece in pieces) == "a" + " word" * 20
    assert all(len(piece) <= 40 for piece in pieces)


def test_a_word_longer_than_a_piece() -> None:
    assert "".join(piece.rstrip(".") for piece in cut("x" * 100 + ".", 30)) == "x" * 100


@given(st.text(alphabet="ab ,.!?;", max_size=300), st.integers(5, 60))
def test_no_piece_is_too_long_and_no_letter_is_lost(text: str, limit: int) -> None:
    line = " ".join(text.split())
    pieces = cut(line, limit)
    assert all(len(piece) <= limit for piece in pieces)
    letters = [c for c in line if c.isalpha()]
    assert [c for piece in pieces for c in piece if c.isalpha()] == letters
    assert all(piece[-1] in ".!?" for piece in pieces)
