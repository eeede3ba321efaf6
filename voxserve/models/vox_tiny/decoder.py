"""The codec decoder of vox-tiny: codes to samples, causal, batched over slots of streaming state.

A frame becomes `upsample` blocks of one hop each. Each block gets a pitch and five spectra; the
output is the inverse transform of a filtered pulse train, shaped noise and a free part, added with
overlap. A block's spectrum needs one block of look-ahead in the pulse train, so a chunk emits the
block that waited and all of its own but the last; the flush emits the last and the open overlap.
Rows of a batch may be valid for fewer frames than the executable has: all state is gathered at
each row's own end.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from voxserve.models.vox_tiny.checkpoint import Tensors
from voxserve.models.vox_tiny.config import LAYER_NORM_EPS, VoxTinyConfig
from voxserve.models.vox_tiny.pulses import pulse_train
from voxserve.models.vox_tiny.rows import StableRows
from voxserve.models.vox_tiny.state import VoxTinyState

_MAX_LOG_MAGNITUDE = 4.0
_PITCH_REFERENCE_HZ = 200.0
_WINDOW_GAIN = 1.5  # of four overlapping squared Hann windows


class CausalConvolution:
    """One causal ConvNeXt block with its streaming state kept outside."""

    def __init__(self, tensors: Tensors, prefix: str) -> None:
        self.taps = tensors[f"{prefix}.dw.weight"][:, 0].t().contiguous()
        self.taps_bias = tensors[f"{prefix}.dw.bias"]
        # The norm's weight and bias are folded into the matrix after it.
        norm_weight, norm_bias = tensors[f"{prefix}.n.weight"], tensors[f"{prefix}.n.bias"]
        up, gain = tensors[f"{prefix}.a.weight"], tensors[f"{prefix}.g"]
        self.up = (up * norm_weight).t().contiguous()
        self.up_bias = tensors[f"{prefix}.a.bias"] + torch.mv(up, norm_bias)
        self.down = (tensors[f"{prefix}.b.weight"] * gain[:, None]).t().contiguous()
        self.down_bias = tensors[f"{prefix}.b.bias"] * gain

    @property
    def state_shape(self) -> tuple[int, int]:
        """Rows and channels of the history a stream keeps."""
        return len(self.taps) - 1, self.taps.shape[1]

    def __call__(
        self, x: torch.Tensor, history: torch.Tensor, stable: StableRows
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Runs a chunk.

        Args:
            x: [rows, steps, channels].
            history: [rows, kernel - 1, channels], the steps before.
            stable: Multiplies.

        Returns:
            [rows, steps, channels], and history and x joined [rows, kernel - 1 + steps, channels].
        """
        steps = x.shape[1]
        joined = torch.cat([history, x], 1)
        mixed = torch.addcmul(self.taps_bias, joined[:, :steps], self.taps[0])
        for offset in range(1, len(self.taps)):
            mixed.addcmul_(joined[:, offset : offset + steps], self.taps[offset])
        mixed = F.layer_norm(mixed, mixed.shape[-1:], None, None, LAYER_NORM_EPS)
        hidden = F.gelu(stable.product(self.up_bias, mixed.flatten(0, 1), self.up))
        return x + stable.product(self.down_bias, hidden, self.down).view_as(x), joined


class Decoder:
    """Weights and the chunk function; streaming state lives in a VoxTinyState."""

    def __init__(self, config: VoxTinyConfig, tensors: Tensors, noise: torch.Tensor) -> None:
        """Arranges the weights.

        Args:
            config: Of the checkpoint.
            tensors: Weights by name.
            noise: [rows, 2, bins] normal numbers that blocks draw from.
        """
        self.config, self.shape = config, config.codec
        size, dim = config.codebook_size, tensors["rvq.cb"].shape[-1]
        self.codebooks = tensors["rvq.cb"].reshape(-1, dim)
        self.code_offsets = torch.arange(config.num_codebooks, dtype=torch.int64) * size
        self.entry = _linear(tensors, "dec.inp")
        self.upsample = _linear(tensors, "dec.up")
        count = {
            name: sum(f"dec.{name}.{i}.g" in tensors for i in range(16)) for name in ("b1", "b2")
        }
        self.frame_blocks = [CausalConvolution(tensors, f"dec.b1.{i}") for i in range(count["b1"])]
        self.hop_blocks = [CausalConvolution(tensors, f"dec.b2.{i}") for i in range(count["b2"])]
        self.norm = tensors["dec.n.weight"], tensors["dec.n.bias"]
        self.pitch = _linear(tensors, "dec.f0")
        self.spectra = tensors["dec.h.weight"], tensors["dec.h.bias"]
        self.window = torch.hann_window(self.shape.fft_samples)
        self.analysis_window = self.window / (self.shape.fft_samples / 4)
        self.synthesis_window = self.window / _WINDOW_GAIN
        self.noise = noise
        # What decides the pitch must not depend on the batch: its rounding adds up in the phase.
        self.stable = StableRows(self._trunk_matrices())

    def _trunk_matrices(self) -> list[torch.Tensor]:
        blocks = (*self.frame_blocks, *self.hop_blocks)
        inner = [matrix for block in blocks for matrix in (block.up, block.down)]
        return [self.entry[1], self.upsample[1], self.pitch[1], *inner]

    @property
    def conv_shapes(self) -> list[tuple[int, int]]:
        """State of each convolution, in order."""
        return [block.state_shape for block in (*self.frame_blocks, *self.hop_blocks)]

    @property
    def trunk_width(self) -> int:
        """Channels of a block before its spectra."""
        return self.norm[0].shape[0]

    def chunk(
        self,
        state: VoxTinyState,
        slots: torch.Tensor,
        codes: torch.Tensor,
        valid: torch.Tensor,
        is_first: torch.Tensor,
        is_last: torch.Tensor,
        noise_rows: torch.Tensor,
    ) -> torch.Tensor:
        """Decodes one chunk per row and moves the rows' state on.

        Args:
            state: Slots.
            slots: [rows] int64, no slot twice.
            codes: [rows, frames, codebooks] int64.
            valid: [rows] int64 valid frames.
            is_first: [rows] bool, nothing was decoded before.
            is_last: [rows] bool, flush.
            noise_rows: [rows, blocks + 1] int64 rows of the noise table.

        Returns:
            [rows, blocks * hop + delay] float32 samples.
        """
        blocks = valid * self.shape.upsample
        trunk = self._trunk(state, slots, codes, valid)
        source = self._excite(state, slots, trunk, blocks)
        waiting = torch.cat([state.pending[slots][:, None], trunk], 1)
        state.pending[slots] = _at(waiting, blocks, 1)[:, 0]
        place = torch.arange(waiting.shape[1])
        live = (place < blocks[:, None]) | ((place == blocks[:, None]) & is_last[:, None])
        live &= (place > 0) | ~is_first[:, None]
        spectra = self._spectra(waiting, source, self.noise[noise_rows])
        waves = torch.fft.irfft(spectra, self.shape.fft_samples) * self.synthesis_window
        waves = torch.where(live[..., None], waves, 0.0)
        hops = self._overlap_add(state, slots, waves, blocks)
        return self._delivered(hops, is_first)

    def _trunk(
        self, state: VoxTinyState, slots: torch.Tensor, codes: torch.Tensor, valid: torch.Tensor
    ) -> torch.Tensor:
        """[rows, blocks, channels] after all convolutions."""
        rows, frames, _ = codes.shape
        latent = F.embedding_bag(
            (codes + self.code_offsets).flatten(0, 1), self.codebooks, mode="sum"
        )
        bias, weight = self.entry
        x = self.stable.product(bias, latent, weight).view(rows, frames, -1)
        convs = iter(state.conv)
        for block in self.frame_blocks:
            x = self._convolve(block, x, next(convs), slots, valid)
        bias, weight = self.upsample
        x = self.stable.product(bias, x.flatten(0, 1), weight)
        x = x.view(rows, frames * self.shape.upsample, -1)
        for block in self.hop_blocks:
            x = self._convolve(block, x, next(convs), slots, valid * self.shape.upsample)
        return F.layer_norm(x, x.shape[-1:], *self.norm, LAYER_NORM_EPS)

    def _convolve(
        self,
        block: CausalConvolution,
        x: torch.Tensor,
        history: torch.Tensor,
        slots: torch.Tensor,
        valid: torch.Tensor,
    ) -> torch.Tensor:
        x, joined = block(x, history[slots], self.stable)
        history[slots] = _at(joined, valid, history.shape[1])
        return x

    def _excite(
        self, state: VoxTinyState, slots: torch.Tensor, trunk: torch.Tensor, blocks: torch.Tensor
    ) -> torch.Tensor:
        """[rows, blocks + 1, bins] spectra of the pulse train, one block of look-ahead behind."""
        shape = self.shape
        bias, weight = self.pitch
        pitch = self.stable.product(bias, trunk.flatten(0, 1), weight).view(*trunk.shape[:2], 2)
        log_pitch, voicing = pitch.double().unbind(-1)
        pitch = torch.where(voicing > 0, torch.exp(log_pitch * 0.5) * _PITCH_REFERENCE_HZ, 0.0)
        pulses, phase, last = pulse_train(
            pitch,
            state.phase[slots],
            state.last_f0[slots],
            blocks,
            shape.hop_samples,
            self.config.sample_rate_hz,
        )
        state.phase[slots], state.last_f0[slots] = phase, last
        samples = blocks * shape.hop_samples
        pulses = pulses * (torch.arange(pulses.shape[1]) < samples[:, None])
        joined = torch.cat([state.source[slots], F.pad(pulses, (0, shape.hop_samples))], 1)
        state.source[slots] = _at(joined, samples, state.source.shape[1])
        windows = joined.unfold(1, shape.fft_samples, shape.hop_samples)
        return torch.fft.rfft(windows * self.analysis_window)

    def _spectra(
        self, trunk: torch.Tensor, source: torch.Tensor, noise: torch.Tensor
    ) -> torch.Tensor:
        """Filters the source and adds noise and the free part: [rows, blocks, bins] complex."""
        parts = F.linear(trunk, *self.spectra).unflatten(-1, (5, self.shape.bins))
        magnitudes = parts[..., (0, 2, 3), :].clamp_(max=_MAX_LOG_MAGNITUDE).exp_()
        harmonic, noisy, free = magnitudes.unbind(-2)
        turn = torch.polar(harmonic, torch.tanh(parts[..., 1, :]).mul_(math.pi))
        spectra = torch.polar(free, parts[..., 4, :]).addcmul_(turn, source)
        real, imaginary = noise.unbind(-2)
        return spectra + torch.complex(noisy * real, noisy * imaginary)

    def _overlap_add(
        self, state: VoxTinyState, slots: torch.Tensor, waves: torch.Tensor, blocks: torch.Tensor
    ) -> torch.Tensor:
        """[rows, blocks + 1 + 3, hop] summed hops; keeps each row's open ones."""
        rows, count, _ = waves.shape
        parts = waves.view(rows, count, 4, self.shape.hop_samples)
        hops = torch.zeros(rows, count + 3, self.shape.hop_samples)
        hops[:, :3] = state.overlap[slots]
        for part in range(4):
            hops[:, part : part + count] += parts[:, :, part]
        state.overlap[slots] = _at(hops, blocks, 3)
        return hops

    def _delivered(self, hops: torch.Tensor, is_first: torch.Tensor) -> torch.Tensor:
        """Samples from each row's first valid one on: a stream's first blocks are the delay."""
        delay = self.shape.delay_blocks
        kept = hops.shape[1] - 1
        late = F.pad(hops[:, delay:kept], (0, 0, 0, delay))
        chosen = torch.where(is_first[:, None, None], late, hops[:, :kept])
        return chosen.flatten(1)


def _linear(tensors: Tensors, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Bias and [in, out] matrix."""
    return tensors[f"{name}.bias"], tensors[f"{name}.weight"].t().contiguous()


def _at(x: torch.Tensor, starts: torch.Tensor, length: int) -> torch.Tensor:
    """[rows, length, ...]: each row's run of `length` steps from its own start."""
    places = starts[:, None] + torch.arange(length)
    rows = torch.arange(len(x))[:, None]
    return x[rows, places]
