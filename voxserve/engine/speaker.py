"""Plays samples on the speakers of the machine that runs the engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxserve.core.errors import DeviceUnavailable, VoxserveError


@contextmanager
def _sounddevice() -> Iterator[Any]:
    """The library, imported late because it needs PortAudio; its errors in our words."""
    try:
        import sounddevice
    except (ImportError, OSError) as error:
        raise DeviceUnavailable(
            f"no audio output: {error}; install PortAudio (Debian: libportaudio2) or save a file"
        ) from error
    try:
        yield sounddevice
    except VoxserveError:  # of the stream that is being played
        raise
    except (sounddevice.PortAudioError, ValueError) as error:
        raise DeviceUnavailable(f"no audio output device: {error}; save a file instead") from error


def check_output() -> None:
    """Finds out whether there is anything to play on.

    Raises:
        DeviceUnavailable: No audio device or no PortAudio library.
    """
    with _sounddevice() as sounddevice:
        sounddevice.query_devices(kind="output")


def play(pcm: NDArray[np.int16], sample_rate_hz: int) -> None:
    """Plays [samples] int16 to its end.

    Raises:
        DeviceUnavailable: No audio device or no PortAudio library.
    """
    play_chunks([pcm], sample_rate_hz)


def play_chunks(chunks: Iterable[NDArray[np.int16]], sample_rate_hz: int) -> None:
    """Plays chunks as they come, gaplessly while they come in time.

    Raises:
        DeviceUnavailable: No audio device or no PortAudio library, or it went away.
    """
    with _sounddevice() as sounddevice:
        output = sounddevice.OutputStream(samplerate=sample_rate_hz, channels=1, dtype="int16")
        with output:  # started; stopping at the end waits for what is still buffered
            for pcm in chunks:
                output.write(pcm.reshape(-1, 1))
