"""The frozen codec encoder: speech and its pitch to codes. Training only, not causal.

Log-mel, log-pitch and voicing at 100 Hz pass centred ConvNeXt blocks, are joined eight to a frame,
and are quantised by the residual codebooks that the decoder ships with.
"""

from __future__ import annotations

import math
from importlib import resources
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from voxserve.core.errors import CheckpointError
from voxserve.models.vox_tiny.checkpoint import read

_DATA = Path(str(resources.files("voxserve"))) / "data" / "vox-tiny"
BUNDLED_ENCODER = _DATA / "encoder.safetensors"

SAMPLE_RATE_HZ = 24_000
HOP_SAMPLES = 240
BLOCKS_PER_FRAME = 8
FRAME_SAMPLES = HOP_SAMPLES * BLOCKS_PER_FRAME
VOICED_HZ = 40.0

_FFT_SAMPLES = 1024
_MELS = 100
_LOWEST_HZ, _HIGHEST_HZ = 20.0, 12_000.0
_PITCH_REFERENCE_HZ = 200.0


class _Block(nn.Module):
    """A centred ConvNeXt block over [batch, steps, channels]."""

    def __init__(self, width: int, hidden: int, kernel: int) -> None:
        super().__init__()
        self.dw = nn.Conv1d(width, width, kernel, groups=width, padding=kernel // 2)
        self.n = nn.LayerNorm(width)
        self.a, self.b = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.g = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mixed = self.n(self.dw(x.transpose(1, 2)).transpose(1, 2))
        return x + self.g * self.b(F.gelu(self.a(mixed)))


class CodecEncoder(nn.Module):
    """Encoder and codebooks; parameter names are those of its weights file."""

    codebooks: torch.Tensor
    mel: torch.Tensor
    window: torch.Tensor

    def __init__(self, codebooks: torch.Tensor, width: int = 256, frame_width: int = 384) -> None:
        """Makes an encoder without weights.

        Args:
            codebooks: [codebooks, codes, dim].
            width: Channels at 100 Hz.
            frame_width: Channels at frame rate.
        """
        super().__init__()
        self.inp = nn.Conv1d(_MELS + 2, width, 7, padding=3)
        self.b1 = nn.ModuleList([_Block(width, 2 * width, 7) for _ in range(4)])
        self.dn = nn.Linear(BLOCKS_PER_FRAME * width, frame_width)
        self.b2 = nn.ModuleList([_Block(frame_width, 2 * frame_width, 5) for _ in range(3)])
        self.o = nn.Linear(frame_width, codebooks.shape[-1])
        self.register_buffer("codebooks", codebooks, persistent=False)
        self.register_buffer("mel", _mel_filters(), persistent=False)
        self.register_buffer("window", torch.hann_window(_FFT_SAMPLES), persistent=False)

    @torch.inference_mode()
    def encode(self, samples: torch.Tensor, pitch: torch.Tensor) -> torch.Tensor:
        """Codes of one utterance.

        Args:
            samples: [frames * FRAME_SAMPLES] float32.
            pitch: [frames * BLOCKS_PER_FRAME] Hz at block ends, 0 where unvoiced.

        Returns:
            [frames, codebooks] int64.
        """
        x = self.inp(self._features(samples, pitch)[None]).transpose(1, 2)
        for block in self.b1:
            x = block(x)
        x = self.dn(x.reshape(1, len(samples) // FRAME_SAMPLES, -1))
        for block in self.b2:
            x = block(x)
        return self._quantised(self.o(x)[0])

    def _features(self, samples: torch.Tensor, pitch: torch.Tensor) -> torch.Tensor:
        """[mels + 2, blocks]."""
        reach = (_FFT_SAMPLES - HOP_SAMPLES) // 2
        padded = F.pad(samples[None, None], (reach, reach), mode="reflect")[0]
        spectrum = torch.stft(
            padded,
            _FFT_SAMPLES,
            HOP_SAMPLES,
            window=self.window,
            center=False,
            return_complex=True,
        )[0, :, : len(pitch)]
        mel = torch.log(self.mel.t() @ spectrum.abs() + 1e-4) / 2 + 1
        voiced = pitch > VOICED_HZ
        log_pitch = torch.log(pitch.clamp(min=VOICED_HZ) / _PITCH_REFERENCE_HZ) * 2
        log_pitch = torch.where(voiced, log_pitch, 0.0)
        return torch.cat([mel, log_pitch[None], voiced[None].float()])

    def _quantised(self, latent: torch.Tensor) -> torch.Tensor:
        codes, rest = [], latent
        for codebook in self.codebooks:
            distance = codebook.pow(2).sum(1) - 2 * rest @ codebook.t()
            codes.append(distance.argmin(1))
            rest = rest - codebook[codes[-1]]
        return torch.stack(codes, 1)


def load_encoder(path: Path = BUNDLED_ENCODER) -> CodecEncoder:
    """Loads the encoder beside the bundled decoder's codebooks.

    Raises:
        CheckpointError: The file is missing or holds something else.
    """
    _, tensors = read(_DATA / "tinyvox_int8.safetensors")
    encoder = CodecEncoder(tensors["rvq.cb"])
    try:
        weights = load_file(path)
        encoder.load_state_dict(
            {name.removeprefix("enc."): tensor.float() for name, tensor in weights.items()}
        )
    except (OSError, SafetensorError, RuntimeError) as error:
        raise CheckpointError(f"cannot read the codec encoder from {path}: {error}") from error
    return encoder.eval()


def _mel_filters() -> torch.Tensor:
    """[bins, mels] triangles, equally spaced on the mel scale."""

    def mel(hertz: float) -> float:
        return 2595 * math.log10(1 + hertz / 700)

    low, high = mel(_LOWEST_HZ), mel(_HIGHEST_HZ)
    steps = torch.arange(_MELS + 2, dtype=torch.float64) / (_MELS + 1)
    corners = (700 * (10 ** ((low + (high - low) * steps) / 2595) - 1)).float()
    bins = torch.linspace(0, SAMPLE_RATE_HZ / 2, _FFT_SAMPLES // 2 + 1)[:, None]
    left, centre, right = corners[:-2], corners[1:-1], corners[2:]
    filters = torch.minimum((bins - left) / (centre - left), (right - bins) / (right - centre))
    filters = filters.clamp(min=0)
    # The lowest triangles are narrower than a bin: they take their nearest one.
    empty = filters.sum(0) == 0
    nearest = (bins - centre).abs().argmin(0)
    filters[nearest[empty], empty.nonzero()[:, 0]] = 1.0
    return filters
