"""The text that vox-tiny is trained on: 1 to 60 words, normalised, with the teacher's phonemes.

`build` writes it in parts, each of them a fair sample of the whole in random order. No sentence of
the bundled test sets is in it.
"""

from __future__ import annotations

import gzip
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from voxserve.models.text.normalise import normalise
from voxserve.models.vox_tiny.train import sources
from voxserve.models.vox_tiny.train.teacher import MOST_PHONEMES, letter_spans
from voxserve.models.vox_tiny.train.templates import TemplateWriter

MOST_WORDS = 60
MOST_CHARACTERS = 330

_COUNTS = {"everyday": 12_000, "figures": 12_000, "short": 16_000, "list": 5_000, "long": 14_000}
_MOST_DEFINITIONS = 40_000
# Of short sentences, how many are joined to the next: pauses inside a prompt.
_JOINED = 0.25
_UNPUNCTUATED = 0.08


@dataclass(frozen=True, slots=True)
class Line:
    """One text of the corpus: where it is from, as it stands in a prompt, as it is spoken."""

    kind: str
    text: str
    phonemes: str


def build(
    folder: Path, phonemes: Callable[[str], str], part: int, parts: int, seed: int = 0
) -> list[Line]:
    """Writes one part of the corpus.

    Args:
        folder: Unpacked packages (see sources.py).
        phonemes: The teacher's reading of a text.
        part: Which part, from 0.
        parts: How many there are.
        seed: Of all choices; the same for every part.

    Returns:
        Lines in random order.
    """
    rng = random.Random(seed)
    typed = list({text: kind for kind, text in _typed(folder, rng)}.items())
    rng.shuffle(typed)
    rng = random.Random(seed * parts + part)
    known = held_out()
    found = (_line(kind, text, phonemes) for text, kind in typed[part::parts])
    lines = [line for line in found if line is not None and line.text not in known]
    lines = _joined_pairs(lines, rng) + list(_long(lines, rng, _COUNTS["long"] // parts))
    lines = [_without_end(line) if rng.random() < _UNPUNCTUATED else line for line in lines]
    rng.shuffle(lines)
    return lines


def held_out() -> frozenset[str]:
    """Normalised texts that the voice is measured with and must never have seen."""
    data = resources.files("voxserve") / "data"
    evaluation = (data / "sentences" / "eval.tsv").read_text("utf-8").splitlines()
    texts = [field for row in evaluation for field in row.split("\t")[1:]]
    texts += (data / "sentences.txt").read_text("utf-8").splitlines()
    return frozenset(normalise(text).text for text in texts if text.strip())


def save(lines: Iterable[Line], path: Path) -> None:
    """Writes lines as a gzip table: kind, text, phonemes."""
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(f"{line.kind}\t{line.text}\t{line.phonemes}\n" for line in lines)


def load(path: Path) -> list[Line]:
    """Reads a table that `save` wrote."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [Line(*row.rstrip("\n").split("\t")) for row in file]


def _typed(folder: Path, rng: random.Random) -> list[tuple[str, str]]:
    """(kind, text as somebody would type it) of everything but the long texts."""
    found: dict[str, list[str]] = {}
    for kind, text in sources.sentences(folder, rng):
        found.setdefault(kind, []).append(text)
    rng.shuffle(found["definition"])
    del found["definition"][_MOST_DEFINITIONS:]
    words = sources.words(folder)
    writer = TemplateWriter(rng)
    for kind in ("everyday", "figures"):
        found[kind] = list(writer.write(kind, _COUNTS[kind]))
    found["short"] = list(writer.short(words, _COUNTS["short"]))
    lists = (rng.sample(words, rng.randint(3, 6)) for _ in range(_COUNTS["list"]))
    found["list"] = [sources.finished(", ".join(chosen)) for chosen in lists]
    return [(kind, text) for kind, texts in found.items() for text in texts]


def _line(kind: str, typed: str, phonemes: Callable[[str], str]) -> Line | None:
    """A typed text as prompt and phonemes; None where their words do not correspond."""
    text = normalise(typed).text
    # Capitals tell the teacher names from nouns; figures it would read in its own way.
    is_plain = re.sub(r"[^a-z]", "", typed.lower()) == re.sub(r"[^a-z]", "", text)
    is_plain &= len(typed.split()) == len(text.split())
    spoken = phonemes(typed if is_plain else text)
    line = Line(kind, text, spoken)
    return line if _is_usable(line) else None


def _is_usable(line: Line) -> bool:
    return (
        1 <= line.text.count(" ") + 1 <= MOST_WORDS
        and len(line.text) <= MOST_CHARACTERS
        and len(line.phonemes) <= MOST_PHONEMES
        and letter_spans(line.text, line.phonemes) is not None
    )


def _joined_pairs(lines: Sequence[Line], rng: random.Random) -> list[Line]:
    short = [line for line in lines if len(line.text) < 45 and line.kind != "short"]
    rng.shuffle(short)
    pairs = short[: int(_JOINED * len(short)) // 2 * 2]
    taken = {line.text for line in pairs}
    joined = [_join(pair) for pair in zip(pairs[::2], pairs[1::2], strict=True)]
    return [line for line in lines if line.text not in taken] + joined


def _long(lines: Sequence[Line], rng: random.Random, count: int) -> Iterator[Line]:
    """Prompts of 26 to 60 words made of whole sentences, any of which may occur again."""
    made = 0
    while made < count:
        goal = rng.randint(26, MOST_WORDS)
        chosen: list[Line] = []
        words = 0
        while words < goal:
            chosen.append(rng.choice(lines))
            words += chosen[-1].text.count(" ") + 1
        line = _join(chosen)
        if _is_usable(line):
            made += 1
            yield line


def _join(parts: Sequence[Line]) -> Line:
    return Line(
        f"{parts[0].kind}+",
        " ".join(part.text for part in parts),
        " ".join(part.phonemes for part in parts),
    )


def _without_end(line: Line) -> Line:
    return Line(line.kind, line.text.rstrip(".!?"), line.phonemes.rstrip(".!?"))
