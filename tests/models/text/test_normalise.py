"""What is typed and what is spoken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxserve.core.errors import InvalidInput
from voxserve.models.text import figures
from voxserve.models.text.normalise import normalise


@pytest.mark.parametrize(
    ("typed", "spoken"),
    [
        ("Hello", "hello."),
        ("Really?", "really?"),
        ("Hello...  what?! -- yes", "hello. what? yes."),
        ("I am here", "i am here."),
        ("Dr. Smith vs. Mrs. Jones, etc.", "doctor smith versus missus jones, et cetera."),
        ("e.g. this, i.e. that", "for example this, that is that."),
        ("on St. John St.", "on saint john street."),
        ("The FBI and NASA", "the eff bee eye and nasa."),
        ("I live in the U.S.", "i live in the you ess."),
        ("two CPUs", "two see pee yous."),
        ("STOP NOW", "stop now."),
        ("Plan A or plan B?", "plan ay or plan bee?"),
        ("Chapter IV begins", "chapter four begins."),
        ("Crème brûlée, naïve Łódź", "creme brulee, naive lodz."),
        ("He said \u201chello\u201d (twice)", "he said hello, twice."),
        ("it\u2019s fine", "it's fine."),
        ("a well-known well - dug hole", "a well-known well, dug hole."),
        ("salt & pepper", "salt and pepper."),
        ("One paragraph\n\nAnother one", "one paragraph. another one."),
    ],
)
def test_words(typed: str, spoken: str) -> None:
    result = normalise(typed)
    assert result.text == spoken
    assert result.notes == ()


@pytest.mark.parametrize(
    ("typed", "spoken"),
    [
        ("I have 3 cats and 12 fish.", "i have three cats and twelve fish."),
        ("at 9:30 in room 204", "at nine thirty in room two hundred four."),
        ("born on March 4, 1987", "born on march fourth, nineteen eighty seven."),
        ("$25.50", "twenty five dollars and fifty cents."),
        ("10-15 people", "ten to fifteen people."),
        ("Call 555-1234", "call five five five, one two three four."),
        ("12000 bolts", "twelve thousand bolts."),
        ("100 km/h", "one hundred kilometers per hour."),
        ("He is 5'10\" tall", "he is five feet ten inches tall."),
        ("at 5 p.m. today", "at five pee em today."),
        ("mail me at jo@example.com", "mail me at jo at example dot com."),
        ("10:00", "ten o'clock."),
        ("Open 24/7", "open twenty four seven."),
        ("100 m or 250 g", "one hundred meters or two hundred fifty grams."),
        ("2000 and 2005", "two thousand and two thousand five."),
        ("#7 of 8", "number seven of eight."),
        ("7 x 8", "seven times eight."),
        ("60 miles/hour", "sixty miles per hour."),
        ("a 50\u00a2 coin", "a five zero cents coin."),
    ],
)
def test_figures(typed: str, spoken: str) -> None:
    assert normalise(typed).text == spoken


def test_what_cannot_be_spoken_is_told() -> None:
    result = normalise("Hi \u65e5\u672c there")
    assert result.text == "hi there."
    assert result.notes == ("left out, no spoken form: \u65e5 \u672c (2 characters)",)


@pytest.mark.parametrize("typed", ["", "  \n", "!!!", "\u65e5\u672c", "---"])
def test_nothing_left(typed: str) -> None:
    assert normalise(typed).text == ""


@given(st.text(alphabet=st.characters(exclude_categories=("Nd", "No", "Nl", "Cs")), max_size=60))
def test_only_speakable_characters_remain(typed: str) -> None:
    spoken = normalise(typed).text
    assert not set(spoken) - set("abcdefghijklmnopqrstuvwxyz ,.!?;:'-")
    assert "  " not in spoken
    assert not spoken or spoken[-1] in ".!?"


def test_the_notes_of_odd_characters_can_be_printed_anywhere():
    spoken = normalise("one \ud800\x00\u20e0 two")
    assert spoken.text == "one two."
    assert all(note.isprintable() for note in spoken.notes)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the grammar, which takes milliseconds per character, is given to read."""
    windows: list[str] = []
    monkeypatch.setattr(figures, "_verbalise", lambda window: windows.append(window) or "figures")
    return windows


@pytest.mark.parametrize("written", ["9", "1,", "1.", "1-", "a@", "$", "http://a.b/"])
def test_a_word_longer_than_any_figure_is_read_by_its_characters(written: str, read: list[str]):
    word = written * (10_000 // len(written))
    assert len(normalise(f"in {word} there").text) > len("in there.")
    assert read == []


def test_long_runs_of_figures_are_cut_and_lose_nothing(read: list[str]):
    words = [f"{number}" for number in range(100, 300)]
    normalise(" ".join(["see", *words, "here"]))
    assert " ".join(read).split() == ["see", *words, "here"]
    assert max(map(len, read)) <= 80


@pytest.mark.parametrize("written", ["12:30 ", "1/2 ", "1st ", "$5 and ", "5 km/h "])
def test_more_figures_than_can_be_read_in_time_are_refused_at_once(written: str, read: list[str]):
    with pytest.raises(InvalidInput, match=r"numbers.* at most 2,000 .* split it"):
        normalise(written * 1000)
    assert read == []


def test_marks_in_a_row_become_one():
    assert normalise("one" + ";" * 20_000 + "two" + ",;:!?." * 3000 + "three").text == (
        "one; two! three."
    )
