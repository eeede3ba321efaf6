"""Sentences from public texts: WordNet, Jane Austen's novels, The Devil's Dictionary.

All three come as Debian packages (`wordnet-base`, `r-cran-janeaustenr`, `dict-devil`) and may be
used for anything. This file reads the unpacked packages; templates.py writes the other texts.
"""

from __future__ import annotations

import gzip
import random
import re
import shutil
import struct
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path

from voxserve.core.errors import InvalidInput

PACKAGES = ("wordnet-base", "r-cran-janeaustenr", "dict-devil")
_WORDNET = Path("usr/share/wordnet")
_AUSTEN = Path("usr/lib/R/site-library/janeaustenr/data/Rdata.rdb")
_DEVIL = Path("usr/share/dictd/devil.dict.dz")

_SPEAKABLE = re.compile(r"[A-Za-z ,.!?;:'-]+\Z")
_WORD = re.compile(r"[A-Za-z][A-Za-z']*")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"\u201d']?\s+")
_TITLES = {"Mr.": "Mister", "Mrs.": "Missus", "Dr.": "Doctor", "Mr": "Mister", "Mrs": "Missus"}
_UNWANTED = frozenset(
    "fuck fucking shit cunt nigger nigga slut whore penis vagina rape raped rapist faggot bitch "
    "bastard sexual sexually sex anus semen genitals negro".split()
)
_LONGEST_WORD = 15  # longer ones are chemistry
# A string of a serialised R vector: its type, then its length in bytes.
_R_STRING = re.compile(rb"\x00[\x00-\x0f]\x00\x09(....)", re.S)
_LONGEST_R_LINE = 400


def unpack(folder: Path) -> None:
    """Downloads the packages with apt and unpacks them into a new folder.

    Raises:
        InvalidInput: This is not a Debian machine; says what to do.
    """
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise InvalidInput(
            f"the texts come as Debian packages ({', '.join(PACKAGES)}) and there is no apt-get "
            f"here: unpack them elsewhere and name the folder"
        )
    part = folder.with_name(f"{folder.name}.part")  # so that the folder itself is never half full
    part.mkdir(parents=True, exist_ok=True)
    subprocess.run(["apt-get", "download", *PACKAGES], cwd=part, check=True)
    for package in part.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, part], check=True)
    part.rename(folder)


def sentences(folder: Path, rng: random.Random) -> Iterator[tuple[str, str]]:
    """(kind, sentence) of every source, each sentence with its final punctuation."""
    entries = list(_wordnet_entries(folder))
    for _, _, _, examples in entries:
        for example in examples:
            text = clean(example)
            if is_fit(text):
                yield "example", finished(text)
    for part, word, meaning, _ in entries:
        if is_fit(meaning, 3, 18) and _SPEAKABLE.match(word) and word.islower():
            text = finished(_definition(part, word, meaning, rng))
            if is_fit(text):
                yield "definition", text
    yield from (("novel", text) for text in _austen(folder))
    yield from (("devil", text) for text in _devil(folder))


def words(folder: Path) -> list[str]:
    """Every plain WordNet word of 2 to 13 letters, sorted."""
    entries = (word for _, word, _, _ in _wordnet_entries(folder))
    return sorted({word for word in entries if re.fullmatch(r"[a-z]{2,13}", word)} - _UNWANTED)


def clean(text: str) -> str:
    """One line without quotes, brackets and doubled marks."""
    text = text.replace("\u2019", "'").replace("\u2018", "'").replace("`", "'")
    text = text.replace("--", ", ").replace("_", " ")
    text = re.sub(r'["\u201c\u201d()\[\]*]', "", text)
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r",+", ",", re.sub(r" (?=[,.;:!?])", "", text))


def is_fit(text: str, fewest: int = 3, most: int = 25) -> bool:
    """Whether a text can be spoken as it stands and should be."""
    if not _SPEAKABLE.match(text):
        return False
    found = _WORD.findall(text)
    return (
        fewest <= len(found) <= most
        and not any(word.lower() in _UNWANTED for word in found)
        and max(map(len, found)) <= _LONGEST_WORD
        and not any(len(word) > 1 and word.isupper() for word in found)
    )


def finished(text: str) -> str:
    """With a capital at the start and a mark at the end."""
    text = text.strip(" ,;:-")
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _wordnet_entries(folder: Path) -> Iterator[tuple[str, str, str, list[str]]]:
    """(part of speech, word, meaning, examples)."""
    for part in ("noun", "verb", "adj", "adv"):
        for line in (folder / _WORDNET / f"data.{part}").read_text("utf-8").splitlines():
            if line.startswith("  "):  # the licence
                continue
            fields, gloss = line.split(" | ", 1)
            word = clean(fields.split()[4].split("(")[0])
            examples = re.findall(r'"([^"]+)"', gloss)
            meaning = clean(re.sub(r';?\s*"[^"]*"', "", gloss).split(";")[0]).rstrip(" ,")
            yield part, word, meaning, examples


def _definition(part: str, word: str, meaning: str, rng: random.Random) -> str:
    if part == "noun":
        article = "An" if word[0] in "aeiou" else "A"
        begins = re.match(r"(a|an|the|any|someone|something|one)\b", meaning)
        return f"{article} {word} is {meaning}" if begins else f"{word}, {meaning}"
    if part == "verb":
        return f"To {word} {rng.choice(('is', 'means'))} to {meaning}"
    return f"{word} means {meaning}"


def _austen(folder: Path) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", _r_text((folder / _AUSTEN).read_bytes())):
        if paragraph.isupper() or paragraph.startswith("CHAPTER"):
            continue
        line = " ".join(_TITLES.get(word, word) for word in paragraph.split())
        for sentence in map(clean, _SENTENCE_END.split(line)):
            if not sentence or not sentence[0].isupper():
                continue
            if is_fit(sentence, 1, 55):
                yield finished(sentence)
            elif is_fit(sentence, 56, 120):
                clauses = map(clean, re.split(r"[;:]\s+", sentence))
                yield from (finished(clause) for clause in clauses if is_fit(clause, 5))


def _r_text(database: bytes) -> str:
    """Every string of an R lazy-load database: zlib streams, each behind a 4-byte length."""
    lines: list[str] = []
    place = 0
    while place < len(database) - 6:
        stream = zlib.decompressobj()
        try:
            data = stream.decompress(database[place + 4 :])
        except zlib.error:
            place += 1
            continue
        place = len(database) - len(stream.unused_data)
        lines += [*_r_strings(data), ""]
    return "\n".join(lines)


def _r_strings(data: bytes) -> Iterator[str]:
    place = 0
    while found := _R_STRING.search(data, place):
        (length,) = struct.unpack(">i", found.group(1))
        if length > _LONGEST_R_LINE:  # chance bytes
            place = found.start() + 1
            continue
        place = found.end() + max(0, length)
        yield data[found.end() : place].decode("utf-8", "ignore")


def _devil(folder: Path) -> Iterator[str]:
    with gzip.open(folder / _DEVIL, "rt", errors="ignore") as file:
        paragraphs = re.split(r"\n\s*\n", file.read())
    for paragraph in paragraphs:
        if paragraph.startswith("    "):  # verse
            continue
        for sentence in map(clean, re.split(r"(?<=[.!?])\s+", " ".join(paragraph.split()))):
            if sentence[:1].isupper() and sentence.endswith((".", "!", "?")) and is_fit(sentence):
                yield sentence
