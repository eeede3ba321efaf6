"""A finished utterance: its samples, when they came, and ways to hear and keep them."""

from __future__ import annotations

import base64
import io
import wave
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from voxserve.core.outputs import check_writable, naming
from voxserve.core.playback import AUDIBLE_LEVEL, Playback
from voxserve.core.request import FinishReason
from voxserve.engine.mailbox import DeliveredChunk
from voxserve.engine.speaker import play


class Audio:
    """What a request said.

    Attributes:
        request_id: In the trace.
        pcm: [samples] int16, mono.
        sample_rate_hz: Of `pcm`.
        text: What was asked for.
        chunks: As delivered.
        finish_reason: Why it ended.
        notes: What was changed or could not be spoken.
        seed: Same text, seed and settings give the same audio.
        arrival_s: When it was asked for, engine clock.
        done_s: When the last chunk came.
        ttfa_s: Request to first samples; None when there was no audio.
        audible_ttfa_s: Request to delivery of the first chunk with an audible sample, plus that
            sample's place in the delivered audio; None when nothing is audible.
        stalls: Times a player started at the first chunk would have run dry.
        stall_s: How long in all; under 10 ms is not heard as a stall.
    """

    def __init__(
        self,
        chunks: Sequence[DeliveredChunk],
        sample_rate_hz: int,
        *,
        request_id: int,
        arrival_s: float,
        text: str = "",
        seed: int = 0,
        finish_reason: FinishReason | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        self.request_id = request_id
        self.chunks = tuple(chunks)
        self.pcm: NDArray[np.int16] = (
            np.concatenate([chunk.pcm for chunk in chunks]) if chunks else np.zeros(0, np.int16)
        )
        self.sample_rate_hz = sample_rate_hz
        self.text = text
        self.seed = seed
        self.finish_reason = finish_reason
        self.notes = tuple(notes)
        self.arrival_s = arrival_s
        self.done_s = self.chunks[-1].delivered_s if self.chunks else arrival_s
        self._play(arrival_s)

    def _play(self, arrival_s: float) -> None:
        player = Playback(deadline_s=arrival_s)
        for chunk in self.chunks:
            player.deliver(chunk.delivered_s, len(chunk.pcm) / self.sample_rate_hz)
        first_s = player.first_audio_s
        self.ttfa_s = None if first_s is None else first_s - arrival_s
        self.stalls = player.num_late
        self.stall_s = player.stall_s
        self.audible_ttfa_s = audible_ttfa_s(self.chunks, self.sample_rate_hz, arrival_s)

    @property
    def duration_s(self) -> float:
        """Length of the audio."""
        return len(self.pcm) / self.sample_rate_hz

    @property
    def speed(self) -> float:
        """Seconds of audio made per second of waiting for all of it."""
        took_s = self.done_s - self.arrival_s
        return self.duration_s / took_s if took_s > 0 else 0.0

    def save(self, path: str | Path) -> Path:
        """Writes a mono 16-bit WAV file and returns its path.

        Raises:
            InvalidInput: Another suffix than .wav, or nothing can be written there.
        """
        path = Path(path)
        check_writable(path, ".wav")
        with naming(path), path.open("wb") as file:
            write_wav(file, self.pcm, self.sample_rate_hz)
        return path

    def play(self) -> None:
        """Plays on this machine's speakers (a notebook's player sits in the browser instead).

        Raises:
            DeviceUnavailable: No audio device or no PortAudio library.
        """
        play(self.pcm, self.sample_rate_hz)

    def _repr_html_(self) -> str:
        """A player and one line of figures, for notebooks."""
        figures = f"<div><small>{escape(self._figures())}</small></div>"
        if not len(self.pcm):
            return figures
        file = io.BytesIO()
        write_wav(file, self.pcm, self.sample_rate_hz)
        source = f"data:audio/wav;base64,{base64.b64encode(file.getvalue()).decode()}"
        return f'<audio controls src="{source}"></audio>{figures}'

    def __repr__(self) -> str:
        return f"Audio({self._figures()})"

    def _figures(self) -> str:
        parts = [f"{self.duration_s:.2f} s at {self.sample_rate_hz} Hz"]
        if self.ttfa_s is not None:
            parts.append(f"TTFA {self.ttfa_s * 1000:.0f} ms")
        if self.audible_ttfa_s is not None:
            parts.append(f"audible {self.audible_ttfa_s * 1000:.0f} ms")
        parts.append(f"{self.stalls} stalls" if self.stalls != 1 else "1 stall")
        if self.finish_reason is not None:
            parts.append(f"finish: {self.finish_reason}")
        parts.extend(self.notes)
        return ", ".join(parts)


def audible_ttfa_s(
    chunks: Sequence[DeliveredChunk], sample_rate_hz: int, arrival_s: float
) -> float | None:
    """Request to the first audible sample, as a player that starts at once would play it.

    Returns:
        Delivery of the chunk that holds the sample, after the request, plus the sample's place in
        the audio delivered so far; None when nothing is audible.
    """
    samples_before = 0
    for chunk in chunks:
        audible = np.flatnonzero(np.abs(chunk.pcm.astype(np.int32)) > AUDIBLE_LEVEL)
        if audible.size:
            place_s = (samples_before + int(audible[0])) / sample_rate_hz
            return chunk.delivered_s - arrival_s + place_s
        samples_before += len(chunk.pcm)
    return None


def write_wav(file: IO[bytes], pcm: NDArray[np.int16], sample_rate_hz: int) -> None:
    """Writes [samples] int16 as a mono WAV into an open binary file."""
    with wave.open(file, "wb") as wav:
        wav.setnchannels(1)
        wav.setsampwidth(2)
        wav.setframerate(sample_rate_hz)
        wav.writeframes(pcm.astype("<i2").tobytes())
