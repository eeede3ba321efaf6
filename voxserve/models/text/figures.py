"""Numbers, money, dates, units and addresses to words, through kitten-text-processing.

The library's grammar takes several milliseconds per character, so only the words that need it are
handed over, each run of them with one word of context on both sides ("March 4, 1987", "in 1906").
A longer run takes more per character and keeps the interpreter from others, so runs are cut, a
text may hold so much of them only, and a word longer than any figure is read by its characters.
What it reads poorly (ranges, telephone numbers, long plain numbers) is rewritten before.
"""

from __future__ import annotations

import re
from functools import lru_cache

from voxserve.core.errors import InvalidInput

MAX_FIGURE_CHARACTERS = 2000  # some fifteen seconds of the grammar
_LONGEST_WINDOW = 80  # characters
_NEEDS_GRAMMAR = re.compile(r"\d|[@$€£¥°]|\bwww\.|://|\w\.(?:com|org|net|edu|gov|io)\b", re.I)
_ENDS_SENTENCE = re.compile(r"[.!?][)\"']*$")

_TELEPHONE = re.compile(r"(?:\+?\d{1,3}[ .-])?(?:\(\d{3}\) ?|\d{3}[ .-])?\b\d{3}[ .-]\d{4}\b(?!-)")
_RANGE = re.compile(r"(?<![\d.,-])(\d{1,4}) ?[-\u2013] ?(\d{1,4})(?![\d.,]*[\d-])")
_LONG_NUMBER = re.compile(r"(?<![\d.,$€£¥#-])[1-9]\d{4,14}(?![\d-]|[.,]\d)")
_UNIT = re.compile(r"(?<=\d) ?(km/h|kph|mph|hrs?|mins?|secs?|yrs?|m|g|l|[KMGT]B)\b(?!/)")
_UNIT_WORDS = {
    "km/h": "kilometers per hour",
    "kph": "kilometers per hour",
    "mph": "miles per hour",
    "hr": "hour",
    "hrs": "hours",
    "min": "minutes",
    "mins": "minutes",
    "sec": "seconds",
    "secs": "seconds",
    "yr": "year",
    "yrs": "years",
    "m": "meters",
    "g": "grams",
    "l": "liters",
    "KB": "kilobytes",
    "MB": "megabytes",
    "GB": "gigabytes",
    "TB": "terabytes",
}
_REWRITES = (
    (re.compile(r"\b24/7\b"), "twenty four seven"),
    (re.compile(r"#(?=\d)"), "number "),
    (re.compile(r"(?<=\d)x(?=\d)"), " by "),
    (re.compile(r"(?<=\d) [x*] (?=\d)"), " times "),
    (
        re.compile(r"(?<=[a-z])/(?=(?:second|minute|hour|day|week|month|year|person|night)\b)"),
        " per ",
    ),
)
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

# Corrections of what the grammar writes: American reading, as the voice was trained.
_AND_IN_NUMBER = re.compile(
    r"\b(hundred|thousand|million|billion) and (?=(?:one|two|three|four|five|six|seven|eight|nine"
    r"|ten|eleven|twelve|\w+teen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|first"
    r"|second|third|\w+th)\b)"
)
_CENTS = re.compile(r"\b(dollars?|euros?|pounds?) (?=(?:\w+ ){0,2}\w+ (?:cents?|pence)\b)")


def spell_out(text: str) -> str:
    """Text in which everything with digits, currency or addresses is words.

    Args:
        text: One line; words separated by single spaces.

    Raises:
        InvalidInput: More than `MAX_FIGURE_CHARACTERS` of it need the grammar.
    """
    if not _NEEDS_GRAMMAR.search(text):
        return text
    text = _TELEPHONE.sub(lambda match: _one_by_one(match.group()), text)
    text = _RANGE.sub(r"\1 to \2", text)
    text = _LONG_NUMBER.sub(lambda match: f"{int(match.group()):,}", text)
    text = _UNIT.sub(lambda match: f" {_UNIT_WORDS[match.group(1)]}", text)
    for pattern, words in _REWRITES:
        text = pattern.sub(words, text)
    words = text.split()
    windows = _windows(words)
    size = sum(_size(words[start:end]) for start, end in windows)
    if size > MAX_FIGURE_CHARACTERS:
        raise InvalidInput(
            f"the text has {size:,} characters of numbers, money, dates and addresses; at most "
            f"{MAX_FIGURE_CHARACTERS:,} are read in one request: split it"
        )
    out: list[str] = []
    done = 0
    for start, end in windows:
        out.extend(words[done:start])
        out.append(_verbalise(" ".join(words[start:end])))
        done = end
    return " ".join([*out, *words[done:]])


def _windows(words: list[str]) -> list[tuple[int, int]]:
    """Runs of words that need the grammar, one word wider on each side, none overlapping."""
    windows: list[tuple[int, int]] = []
    for place, word in enumerate(words):
        if len(word) > _LONGEST_WINDOW or not _NEEDS_GRAMMAR.search(word):
            continue
        start, end = _with_context(words, place)
        if not windows or windows[-1][1] <= start:
            windows.append((start, end))
        elif _size(words[windows[-1][0] : end]) <= _LONGEST_WINDOW:
            windows[-1] = windows[-1][0], end
        else:  # the word before it has been read as the other's context, or is one itself
            windows[-1:] = [(windows[-1][0], place), (place, end)]
    return windows


def _with_context(words: list[str], place: int) -> tuple[int, int]:
    start, end = place, place + 1
    if place > 0 and not _ENDS_SENTENCE.search(words[place - 1]):
        start = place - 1
    if end < len(words) and not _ENDS_SENTENCE.search(words[place]):
        end = place + 2
    is_short = _size(words[start:end]) <= _LONGEST_WINDOW
    return (start, end) if is_short else (place, place + 1)


def _size(words: list[str]) -> int:
    """Characters of a run of words, the spaces between them included."""
    return sum(map(len, words)) + len(words) - 1


@lru_cache(maxsize=4096)
def _verbalise(window: str) -> str:
    from kitten_text_processing import normalize_text

    spoken = normalize_text(window, "en-US").replace("o 'clock", "o'clock")
    if " and " not in window:
        spoken = _AND_IN_NUMBER.sub(r"\1 ", spoken)
    return _CENTS.sub(r"\1 and ", spoken)


def _one_by_one(number: str) -> str:
    groups = re.findall(r"\d+", number)
    spoken = ", ".join(" ".join(DIGITS[int(digit)] for digit in group) for group in groups)
    return f"plus {spoken}" if number.startswith("+") else spoken
