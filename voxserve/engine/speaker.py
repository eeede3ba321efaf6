"""Plays samples on the speakers of the machine that runs the engine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxserve.core.errors import DeviceUnavailable


def _sounddevice() -> Any:
    """The library, imported late: it needs PortAudio, which machines without sound lack."""
    try:
        import sounddevice
    except (ImportError, OSError) as error:
        raise DeviceUnavailable(
            f"no audio output: {error}; install PortAudio (Debian: libportaudio2) or save a file"
        ) from error
    return sounddevice


def check_output() -> None:
    """Finds out whether there is anything to play on.

    Raises:
        DeviceUnavailable: No audio device or no PortAudio library.
    """
    sounddevice = _sounddevice()
    try:
        sounddevice.query_devices(kind="output")
    except (sounddevice.PortAudioError, ValueError) as error:
        raise DeviceUnavailable(f"no audio output device: {error}; save a file instead") from error


def open_output(sample_rate_hz: int) -> Any:
    """An open mono int16 output stream (`write` blocks while the device plays).

    Raises:
        DeviceUnavailable: No audio device or no PortAudio library.
    """
    sounddevice = _sounddevice()
    try:
        stream = sounddevice.OutputStream(samplerate=sample_rate_hz, channels=1, dtype="int16")
        stream.start()
    except (sounddevice.PortAudioError, ValueError) as error:
        raise DeviceUnavailable(f"no audio output device: {error}") from error
    return stream


def play(pcm: NDArray[np.int16], sample_rate_hz: int) -> None:
    """Plays [samples] int16 to its end.

    Raises:
        DeviceUnavailable: No audio device or no PortAudio library.
    """
    play_chunks([pcm], sample_rate_hz)


def play_chunks(chunks: Iterable[NDArray[np.int16]], sample_rate_hz: int) -> None:
    """Plays chunks as they come, gaplessly while they come in time.

    Raises:
        DeviceUnavailable: No audio device or no PortAudio library.
    """
    output = open_output(sample_rate_hz)
    try:
        for pcm in chunks:
            output.write(pcm.reshape(-1, 1))
        output.stop()  # waits for what is still buffered
    finally:
        output.close()
