"""Text to ids: the checkpoint's byte-level BPE, whole or as the text arrives.

Built from vocab.json, merges.txt and tokenizer_config.json with the tokenizers library alone, so
that it does not depend on how a version of transformers treats this class of tokenizers.
"""

from __future__ import annotations

import json
import unicodedata
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

from voxserve.core.errors import CheckpointError
from voxserve.models.blocks.weights import read_json

# How the published tokenizer cuts text before merging bytes.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class TextTokenizer(Protocol):
    """What prompts need of a tokenizer."""

    def encode(self, text: str) -> list[int]:
        """Ids of a text; control tokens written out in it are ordinary text."""
        ...

    def split_settled(self, text: str) -> tuple[str, str]:
        """Cuts a text that may go on into what can be encoded now, and the rest."""
        ...


class BpeTokenizer:
    """The tokenizer of a checkpoint folder.

    Args:
        folder: Holds vocab.json, merges.txt and tokenizer_config.json.

    Raises:
        CheckpointError: A file is missing or malformed.
    """

    def __init__(self, folder: Path) -> None:
        added = read_json(folder / "tokenizer_config.json").get("added_tokens_decoder")
        if not isinstance(added, dict):
            raise CheckpointError(f"{folder}/tokenizer_config.json has no added_tokens_decoder")
        self._words = pre_tokenizers.Split(Regex(_WORDS), behavior="isolated")
        bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        self._tokenizer = Tokenizer(_bpe(folder))
        self._tokenizer.normalizer = normalizers.NFC()
        self._tokenizer.pre_tokenizer = pre_tokenizers.Sequence([self._words, bytes_only])
        self._tokenizer.decoder = decoders.ByteLevel()
        for item in sorted(added.items(), key=lambda pair: int(pair[0])):
            self._tokenizer.add_special_tokens([AddedToken(item[1]["content"], normalized=False)])
        self._check_ids(folder, added)
        self._tokenizer.encode_special_tokens = True

    def encode(self, text: str) -> list[int]:
        """Ids of a text; control tokens written out in it are ordinary text."""
        return self._tokenizer.encode(_whole(text), add_special_tokens=False).ids

    def split_settled(self, text: str) -> tuple[str, str]:
        """Cuts a text that may go on into what can be encoded now, and the rest.

        The ids of both parts together are those of the whole, whatever follows.
        """
        text = unicodedata.normalize("NFC", _whole(text))
        if not text:
            return "", ""
        words = [text[slice(*span)] for _, span in self._words.pre_tokenize_str(text)]
        kept = 1  # the last word may go on
        # A run of blanks may still be cut anew by a line break at its end.
        while kept < len(words) and not words[-kept].strip() and not words[-kept - 1].strip():
            kept += 1
        at = len(text) - sum(len(word) for word in words[-kept:])
        return text[:at], text[at:]

    def _check_ids(self, folder: Path, added: dict[str, dict[str, str]]) -> None:
        for number, token in added.items():
            found = self._tokenizer.token_to_id(token["content"])
            if found != int(number):
                raise CheckpointError(
                    f"{folder}/tokenizer_config.json gives {token['content']!r} id {number}, "
                    f"behind vocab.json it would be {found}"
                )


class HashTokenizer:
    """Stands in for a tokenizer where weights are random: about 1.3 ids per word, from a hash."""

    def __init__(self, num_ids: int) -> None:
        self._num_ids = num_ids

    def encode(self, text: str) -> list[int]:
        """Ids that depend on the words only."""
        parts = [part for word in _whole(text).split() for part in _halves(word)]
        return [zlib.crc32(part.encode()) % self._num_ids for part in parts]

    def split_settled(self, text: str) -> tuple[str, str]:
        """Cuts behind the last blank."""
        at = max(text.rfind(blank) for blank in " \n\t") + 1
        return text[:at], text[at:]


def _bpe(folder: Path) -> BPE:
    try:
        vocab = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
        lines = (folder / "merges.txt").read_text(encoding="utf-8").split("\n")
        merges = [_pair(line) for line in lines if line and not line.startswith("#version")]
        return BPE(vocab=vocab, merges=merges)
    except (OSError, ValueError) as problem:
        raise CheckpointError(f"the tokenizer in {folder} cannot be read: {problem}") from problem


def _pair(line: str) -> tuple[str, str]:
    left, right = line.split(" ")
    return left, right


def _whole(text: str) -> str:
    """The text with halves of surrogate pairs, which no encoding takes, joined or replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _halves(word: str) -> Iterable[str]:
    return (word[:7], word[7:]) if len(word) > 7 else (word,)
