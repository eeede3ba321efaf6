"""Where the training texts come from: packages, templates, joins, and what is kept out."""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from pathlib import Path

import pytest

from voxserve.core.errors import InvalidInput
from voxserve.models.text.normalise import normalise
from voxserve.models.vox_tiny.train import corpus, sources
from voxserve.models.vox_tiny.train.templates import TemplateWriter

_NOVEL = (
    "CHAPTER 1",
    "",
    "Mr. Bell was late. \u201cOh no!\u201d said she, who had been waiting",
    "since the morning.",
)
_LAMP = (
    "00001740 03 n 01 lamp 0 001 @ 00001740 n 0000 | a thing that gives light; "
    '"she put out the lamp"; "it is a lamp"'
)


def _r_vector(lines: tuple[str, ...]) -> bytes:
    """A lazy-load database of one character vector, as R serialises it."""
    strings = (b"\x00\x04\x00\x09" + struct.pack(">i", len(t.encode())) + t.encode() for t in lines)
    data = b"X\n" + b"".join(strings)
    return struct.pack(">i", len(data)) + zlib.compress(data)


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """The three packages, unpacked, with a few lines each."""
    wordnet = tmp_path / "usr/share/wordnet"
    wordnet.mkdir(parents=True)
    for part in ("noun", "verb", "adj", "adv"):
        (wordnet / f"data.{part}").write_text(f"  1 licence\n{_LAMP}\n", "utf-8")
    austen = tmp_path / "usr/lib/R/site-library/janeaustenr/data"
    austen.mkdir(parents=True)
    (austen / "Rdata.rdb").write_bytes(b"\x00" * 3 + _r_vector(_NOVEL))
    devil = tmp_path / "usr/share/dictd"
    devil.mkdir(parents=True)
    with gzip.open(devil / "devil.dict.dz", "wt") as file:
        file.write("YEAR, n.  A period of three hundred days.\n\n    A verse line here.\n")
    return tmp_path


def test_sentences_come_from_all_packages(packages: Path) -> None:
    found = set(sources.sentences(packages, random.Random(0)))
    assert ("example", "She put out the lamp.") in found
    assert ("definition", "A lamp is a thing that gives light.") in found
    assert ("novel", "Mister Bell was late.") in found
    assert ("novel", "Oh no!") in found
    assert ("devil", "A period of three hundred days.") in found
    assert not any("verse" in text or "CHAPTER" in text for _, text in found)
    assert sources.words(packages) == ["lamp"]


@pytest.mark.parametrize(
    ("text", "is_fit"),
    [
        ("She put out the lamp.", True),
        ("Two words.", False),
        ("It costs 3 dollars now.", False),
        ("The NASA office is closed.", False),
        ("Dichlorodiphenyltrichloroethane is a poison.", False),
    ],
)
def test_unspeakable_texts_are_left_out(text: str, is_fit: bool) -> None:
    assert sources.is_fit(text) is is_fit


def test_unpacking_needs_apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(InvalidInput, match="wordnet-base"):
        sources.unpack(tmp_path)


def test_a_download_that_fails_leaves_no_folder_of_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: name)
    monkeypatch.setattr("subprocess.run", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        sources.unpack(tmp_path / "texts")
    assert not (tmp_path / "texts").exists()
    monkeypatch.setattr("subprocess.run", lambda *_, **__: None)
    sources.unpack(tmp_path / "texts")
    assert (tmp_path / "texts").is_dir()


def test_templates_are_speakable() -> None:
    writer = TemplateWriter(random.Random(0))
    texts = [
        *writer.write("everyday", 200),
        *writer.write("figures", 6),
        *writer.short(["lamp", "sea"], 200),
    ]
    for text in texts:
        spoken = normalise(text)
        assert spoken.text
        assert not spoken.notes, text


def test_corpus_holds_one_to_sixty_words(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        corpus, "_COUNTS", {"everyday": 60, "figures": 2, "short": 60, "list": 0, "long": 20}
    )
    lines = corpus.build(packages, lambda text: text.lower(), part=0, parts=2)
    words = [line.text.count(" ") + 1 for line in lines]
    assert min(words) == 1
    assert 26 <= max(words) <= corpus.MOST_WORDS
    assert not {line.text for line in lines} & corpus.held_out()
    assert 0 < sum(not line.text.endswith((".", "!", "?")) for line in lines) < len(lines) / 4
    other = corpus.build(packages, lambda text: text.lower(), part=1, parts=2)
    whole = [{line.text for line in part if "+" not in line.kind} for part in (lines, other)]
    assert len(whole[0] & whole[1]) < 10  # short ones that differ in their marks only


def test_corpus_tables_come_back(tmp_path: Path) -> None:
    lines = [corpus.Line("short", "no.", "n\u02c8O."), corpus.Line("list", "a, b.", "\u02c8A, b.")]
    corpus.save(lines, tmp_path / "part0.tsv.gz")
    assert corpus.load(tmp_path / "part0.tsv.gz") == lines
