"""Spoken texts in files: 10 bits per code, one byte per character's time; 1 kbit/s and a little.

A hundred hours are about 60 MB. Files are written whole and renamed, so that a run that was
stopped leaves only complete ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from voxserve.core.errors import InvalidInput

CODE_BITS = 10
_LONGEST_STEP = 255  # blocks of 10 ms that one character can last in a file


@dataclass(frozen=True, slots=True, eq=False)
class Utterance:
    """One spoken text.

    Attributes:
        text: As in a prompt.
        codes: [frames, codebooks] uint16.
        ends: [characters] uint16, when each character ends, in blocks of 10 ms.
    """

    text: str
    codes: NDArray[np.uint16]
    ends: NDArray[np.uint16]


def write(path: Path, utterances: Sequence[Utterance]) -> None:
    """Writes a shard."""
    codes = np.concatenate([u.codes for u in utterances])
    steps = [np.diff(u.ends.astype(np.int64), prepend=0) for u in utterances]
    with Path(f"{path}.part").open("wb") as file:
        np.savez(
            file,
            text=np.frombuffer("\n".join(u.text for u in utterances).encode(), np.uint8),
            frames=np.array([len(u.codes) for u in utterances], np.uint16),
            codebooks=np.array(codes.shape[1]),
            codes=packed(codes),
            steps=np.clip(np.concatenate(steps), 0, _LONGEST_STEP).astype(np.uint8),
        )
    Path(f"{path}.part").rename(path)


def read(path: Path) -> list[Utterance]:
    """Reads a shard.

    Raises:
        InvalidInput: The file is not a shard.
    """
    try:
        with path.open("rb") as source, np.load(source) as file:
            arrays = {name: file[name] for name in file.files}
        texts = arrays["text"].tobytes().decode().split("\n")
        codes = unpacked(arrays["codes"], int(arrays["codebooks"]))
        frames, steps = arrays["frames"].astype(np.int64), arrays["steps"]
    except (OSError, EOFError, BadZipFile, ValueError, KeyError) as error:
        raise InvalidInput(f"{path} is not a shard of training speech: {error}") from error
    code_parts = np.split(codes, np.cumsum(frames)[:-1])
    step_parts = np.split(steps, np.cumsum([len(text) for text in texts])[:-1])
    return [
        Utterance(text, code_part, np.cumsum(step_part).astype(np.uint16))
        for text, code_part, step_part in zip(texts, code_parts, step_parts, strict=True)
    ]


def packed(codes: NDArray[np.uint16]) -> NDArray[np.uint8]:
    """[frames, codebooks] as a run of 10-bit numbers."""
    weights = np.arange(CODE_BITS - 1, -1, -1, dtype=np.uint16)
    bits = (codes.reshape(-1, 1) >> weights) & 1
    return np.packbits(bits.astype(np.uint8))


def unpacked(data: NDArray[np.uint8], codebooks: int) -> NDArray[np.uint16]:
    """The inverse of `packed`: [frames, codebooks]."""
    count = len(data) * 8 // CODE_BITS // codebooks * codebooks
    bits = np.unpackbits(data, count=count * CODE_BITS).reshape(-1, CODE_BITS)
    weights = 1 << np.arange(CODE_BITS - 1, -1, -1, dtype=np.uint16)
    return (bits @ weights).astype(np.uint16).reshape(-1, codebooks)


def merge(folder: Path, into: Path, largest_bytes: int) -> list[Path]:
    """Joins a folder's shards to fewer files, none larger than asked for where shards allow it.

    Args:
        folder: Of `*.npz` shards.
        into: Another folder, for `speech-0.npz` and on.
        largest_bytes: Of a file.

    Returns:
        The files written.
    """
    into.mkdir(parents=True, exist_ok=True)
    groups: list[list[Path]] = [[]]
    for path in sorted(folder.rglob("*.npz")):
        if sum(p.stat().st_size for p in (*groups[-1], path)) > largest_bytes and groups[-1]:
            groups.append([])
        groups[-1].append(path)
    written = []
    for number, group in enumerate(groups):
        utterances = [u for path in group for u in read(path)]
        if utterances:
            written.append(into / f"speech-{number}.npz")
            write(written[-1], utterances)
    return written
