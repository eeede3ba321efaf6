"""Where results go: what is refused before any work, and how a failing disk is told."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from voxserve.core.errors import InvalidInput
from voxserve.core.outputs import check_writable, naming


@pytest.mark.parametrize("name", ["x.wav", "X.WAV", "x", "two.dots.wav"])
def test_names_that_may_be_written(tmp_path: Path, name: str) -> None:
    check_writable(tmp_path / name, ".wav")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["x.mp3", "x.wav.gz"])
def test_another_suffix_is_refused_with_the_one_that_is_possible(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match=r"only \.wav files are written; end its name in"):
        check_writable(tmp_path / name, ".wav")


def test_an_error_of_the_system_gets_the_name_of_the_file() -> None:
    with pytest.raises(OSError, match="x.wav") as caught, naming("x.wav"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.filename == "x.wav"


def test_a_name_that_is_known_already_stays() -> None:
    with pytest.raises(OSError, match="y.wav"), naming("x.wav"):
        raise OSError(errno.ENOENT, "No such file", "y.wav")
