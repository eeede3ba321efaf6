"""Playing on the machine's speakers, against a stand-in for the sound library."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import ClassVar

import numpy as np
import pytest

from voxserve.core.errors import DeviceUnavailable
from voxserve.engine import speaker


class PortAudioError(Exception):
    """As the library's."""


class OutputStream:
    """Keeps what is written."""

    made: ClassVar[list] = []

    def __init__(self, samplerate: int, channels: int, dtype: str) -> None:
        self.format = (samplerate, channels, dtype)
        self.written: list[np.ndarray] = []
        self.is_open = False
        OutputStream.made.append(self)

    def __enter__(self) -> None:
        self.is_open = True

    def __exit__(self, *exc: object) -> None:
        self.is_open = False

    def write(self, samples: np.ndarray) -> None:
        """Takes [samples, channels]; breaks on an empty chunk."""
        if not len(samples):
            raise PortAudioError("unplugged")
        self.written.append(samples)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A stand-in for sounddevice."""
    module = ModuleType("sounddevice")
    OutputStream.made = []
    module.PortAudioError = PortAudioError
    module.OutputStream = OutputStream
    module.query_devices = lambda kind: {}
    monkeypatch.setitem(sys.modules, "sounddevice", module)
    return module


def test_chunks_are_played_in_order(library):
    speaker.check_output()
    speaker.play_chunks([np.full(3, i, np.int16) for i in (1, 2)], 24_000)
    (output,) = OutputStream.made
    assert output.format == (24_000, 1, "int16")
    assert np.concatenate(output.written).ravel().tolist() == [1, 1, 1, 2, 2, 2]
    assert not output.is_open


def test_a_device_that_goes_away_is_told(library):
    with pytest.raises(DeviceUnavailable, match="unplugged"):
        speaker.play(np.zeros(0, np.int16), 24_000)
    assert not OutputStream.made[0].is_open


def test_a_machine_without_a_device_is_told(library):
    def no_device(kind: str) -> None:
        raise PortAudioError("Error querying device -1")

    library.query_devices = no_device
    with pytest.raises(DeviceUnavailable, match="save a file"):
        speaker.check_output()
