"""Written English to a line of speakable words: what was typed in, what a voice reads out.

Nothing is dropped silently: what has no spoken form is listed in the notes. Plain sentences take
microseconds; only numbers, dates, money and addresses go through a grammar (figures.py).
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from voxserve.models.text.figures import DIGITS, spell_out
from voxserve.models.text.tables import (
    ABBREVIATIONS,
    FOLDED,
    LETTERS,
    PUNCTUATION,
    ROMAN,
    SPOKEN_CAPITALS,
    SYMBOLS,
)

_PLAIN = re.compile(r"[a-z ,.!?;:'-]*\Z")
_VOWELS = frozenset("AEIOUY")
_NUMBERED = re.compile(
    r"\b(chapter|part|volume|book|section|act|scene|phase|type|class|world war|war) ([IVX]{2,5})\b",
    re.I,
)
_DOTTED_INITIALS = re.compile(r"\b(?:[A-Za-z]\.){2,}")
_INITIALS = re.compile(r"\b[A-Z]{2,6}(?=s?\b)(s?)")
_HOURS = re.compile(r"(?<=[a-z] )([AP])M\b")  # as the grammar writes them
_LONE_LETTER = re.compile(r"(?<![\w'.-])([B-HJ-Zb-hj-z])(?![\w'-])(?!\.\w)")
_LETTER_A = re.compile(r"(?<=[a-z,] )A(?![\w'-])")
_INCHES = re.compile(r"(?<=\d)\"")
_FEET = re.compile(r"(?<=\d)'(?= ?\d)")
_ABBREVIATION = re.compile(r"(?<![\w.])(?:[A-Za-z]+\.(?:[a-z]\.)*|[A-Za-z]+|w/o?)(?![\w.])")
_SAINT = re.compile(r"\b[Ss]t\.(?= [A-Z])")
_NUMBER_SIGN = re.compile(r"\bNo\.(?= ?\d)")


# Digits are still there only where the grammar found no reading.
_LAST_RESORT = SYMBOLS | {str(digit): f" {word} " for digit, word in enumerate(DIGITS)}


@dataclass(frozen=True, slots=True)
class SpokenText:
    """A normalised text.

    Attributes:
        text: Letters a-z, spaces and `,.!?;:'-` only, lower case; empty when nothing is left.
        notes: What could not be spoken, for the user to read.
    """

    text: str
    notes: tuple[str, ...] = ()


def normalise(text: str) -> SpokenText:
    """Writes a text as it is spoken.

    Raises:
        InvalidInput: It holds too many numbers, dates or addresses.
    """
    line = _words(_one_line(text))
    lowered, unspoken = _letters(line)
    return SpokenText(_tidy(lowered), _notes(unspoken))


def _one_line(text: str) -> str:
    """One line of text; a paragraph's end ends a sentence."""
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", text)]
    ended = [part if part[-1] in ".!?:;," else f"{part}." for part in paragraphs if part]
    return " ".join(ended) if len(ended) > 1 else " ".join(text.split())


def _words(line: str) -> str:
    line = unicodedata.normalize("NFC", line)
    line = _FEET.sub(" feet ", _INCHES.sub(" inches", line))
    line = "".join(PUNCTUATION.get(character, character) for character in line)
    line = " ".join(line.split())
    line = _NUMBER_SIGN.sub("number", line)
    line = _SAINT.sub("saint", line)
    line = _NUMBERED.sub(_numbered, line)
    line = spell_out(line)
    line = _HOURS.sub(lambda match: f"{LETTERS[match.group(1).lower()]} em", line)
    line = _DOTTED_INITIALS.sub(_dotted, line)
    line = _ABBREVIATION.sub(_abbreviation, line)
    shouted = not any(character.islower() for character in line)
    if not shouted or len(line.split()) == 1:
        line = _INITIALS.sub(_initials, line)
    line = _LETTER_A.sub(LETTERS["a"], line)
    line = _LONE_LETTER.sub(lambda match: LETTERS[match.group(1).lower()], line)
    return "".join(_LAST_RESORT.get(character, character) for character in line)


def _numbered(match: re.Match[str]) -> str:
    return f"{match.group(1)} {ROMAN.get(match.group(2).lower(), match.group(2))}"


def _dotted(match: re.Match[str]) -> str:
    written = match.group()
    known = ABBREVIATIONS.get(written.lower())
    if known:
        spoken = known
    else:
        spoken = " ".join(LETTERS[letter] for letter in written.lower() if letter != ".")
    # At the end of the text the last stop is the sentence's too.
    return spoken + ("." if match.end() == len(match.string) else "")


def _abbreviation(match: re.Match[str]) -> str:
    written = match.group()
    known = ABBREVIATIONS.get(written.lower())
    if known is None or written.isupper() and len(written) < 4:
        return written
    following = match.string[match.end() :].lstrip()
    ends = written.endswith(".") and (not following or following[0] in '")')
    return known + ("." if ends else "")


def _initials(match: re.Match[str]) -> str:
    written = match.group().removesuffix("s")
    plural = "s" if match.group(1) else ""
    known = SPOKEN_CAPITALS.get(written.lower())
    if known:
        return known + plural
    if _reads_as_word(written):
        return written.lower() + plural
    return " ".join(LETTERS[letter] for letter in written.lower()) + ("s" if plural else "")


def _reads_as_word(capitals: str) -> bool:
    """Capitals of four letters or more that alternate like a word, or common short words."""
    if capitals in ("NO", "YES", "STOP", "NOT", "GO", "AND", "THE", "ALL", "NEW", "NOW", "ON"):
        return True
    vowels = [letter in _VOWELS for letter in capitals]
    runs = sum(a != b for a, b in zip(vowels, vowels[1:], strict=False))
    return len(capitals) >= 4 and any(vowels) and runs >= len(capitals) // 2


def _letters(line: str) -> tuple[str, list[str]]:
    """Lower case with accents taken off, and the characters that have no spoken form."""
    kept: list[str] = []
    unspoken: list[str] = []
    for character in line.lower():
        if _PLAIN.match(character):
            kept.append(character)
            continue
        plain = FOLDED.get(character) or "".join(
            part
            for part in unicodedata.normalize("NFKD", character)
            if not unicodedata.combining(part)
        )
        if plain and _PLAIN.match(plain.lower()):
            kept.append(plain.lower())
        elif not unicodedata.combining(character):
            unspoken.append(character)
            kept.append(" ")
    return "".join(kept), unspoken


def _tidy(line: str) -> str:
    """One space between words, one mark at a time, none at the start."""
    line = re.sub(r"(?<![a-z])-+|-+(?![a-z])", ", ", line)
    line = re.sub(r"(?<![a-z])'+(?![a-z])", " ", line)
    line = re.sub(r"\s+", " ", line)
    line = re.sub(r" (?=[,.!?;:])", "", line)
    line = re.sub(r"\.(?=[,;:])", "", line)
    line = re.sub(r"([,;:])[,;:]+", r"\1", line)  # before the next, which were slow on long runs
    line = re.sub(r"[,;:]?([.!?])[,.!?;:]*", r"\1", line)
    line = re.sub(r"([,.!?;:])(?=[a-z])", r"\1 ", line)
    return line.strip(" ,.!?;:'-") + _ending(line) if re.search("[a-z]", line) else ""


def _ending(line: str) -> str:
    marks = [mark for mark in line.rstrip() if mark in ".!?"] if line.rstrip()[-1:] in ".!?" else []
    return marks[-1] if marks else "."


def _notes(unspoken: list[str]) -> tuple[str, ...]:
    if not unspoken:
        return ()
    distinct = list(dict.fromkeys(unspoken))
    # Half a surrogate pair, a control character: nothing that a terminal or a file could not take.
    printable = [c if c.isprintable() else ascii(c)[1:-1] for c in distinct[:10]]
    shown = " ".join(printable) + (" ..." if len(distinct) > 10 else "")
    return (f"left out, no spoken form: {shown} ({len(unspoken)} characters)",)
