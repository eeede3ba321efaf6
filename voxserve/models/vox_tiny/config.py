"""Shapes and constants of vox-tiny, read from the metadata of its weights file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from voxserve.core.errors import CheckpointError

LAYER_NORM_EPS = 1e-5
ARCHITECTURE = 2  # of the file; the first model's texts and codes were arranged otherwise


@dataclass(frozen=True, slots=True)
class BackboneShape:
    """One stack of transformer layers.

    Attributes:
        hidden, ffn: Widths.
        layers: How many.
        heads, kv_heads: Of attention; `heads` is a multiple of `kv_heads`.
        head_dim: Width of a head.
        rope_theta: Base of the rotary angles.
    """

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    rope_theta: float


@dataclass(frozen=True, slots=True)
class CodecShape:
    """The streaming decoder: trunk at frame rate, then `upsample` blocks per frame.

    Attributes:
        fft_samples: Window of the inverse transform; four hops.
        hop_samples: Samples per block.
        upsample: Blocks per frame.
    """

    fft_samples: int
    hop_samples: int
    upsample: int

    @property
    def bins(self) -> int:
        """Frequency bins of one block."""
        return self.fft_samples // 2 + 1

    @property
    def delay_blocks(self) -> int:
        """Blocks held back until the flush: one for the look-ahead, two for the overlap."""
        return 3


@dataclass(frozen=True, slots=True)
class VoxTinyConfig:
    """Everything about the checkpoint that the program needs.

    Attributes:
        sample_rate_hz: Of the audio.
        num_codebooks, codebook_size: Codes per frame and their range.
        end_code: The first codebook's end token.
        characters: What can be written in a prompt.
        first_char_id: Id of `characters[0]`.
        text_bos_id, audio_bos_id: Ids that open the text and the speech.
        text_eos_id: Id that ends the text.
        lead_words: Words of a streamed text that are known before one is spoken.
        text_kernel, text_blocks: Convolutions over the text.
        talker, depth: The two transformers.
        depth_passes: Codebooks predicted by each pass of the depth transformer.
        codec: The decoder.
        temperature, depth_temperature, top_k: Default sampling.
    """

    sample_rate_hz: int
    num_codebooks: int
    codebook_size: int
    end_code: int
    characters: str
    first_char_id: int
    text_bos_id: int
    audio_bos_id: int
    text_eos_id: int
    lead_words: int
    text_kernel: int
    text_blocks: int
    talker: BackboneShape
    depth: BackboneShape
    depth_passes: tuple[tuple[int, ...], ...]
    codec: CodecShape
    temperature: float
    depth_temperature: float
    top_k: int

    @property
    def frame_samples(self) -> int:
        """Samples per frame."""
        return self.codec.hop_samples * self.codec.upsample

    @classmethod
    def from_metadata(cls, metadata: dict[str, str] | None) -> VoxTinyConfig:
        """Reads the `config` entry of a safetensors file's metadata.

        Raises:
            CheckpointError: The entry or one of its fields is missing.
        """
        try:
            return _parse(json.loads((metadata or {})["config"]))
        except (KeyError, ValueError, TypeError) as error:
            raise CheckpointError(
                f"the weights file carries no vox-tiny configuration in its metadata ({error!r})"
            ) from error


def _parse(raw: dict[str, Any]) -> VoxTinyConfig:
    text, talker, depth, codec = raw["text"], raw["talker"], raw["depth"], raw["codec"]
    head_dim, theta = talker["head_dim"], float(talker["rope_theta"])
    if raw["architecture"] != ARCHITECTURE:
        raise ValueError(f"architecture {raw['architecture']} is not {ARCHITECTURE}")
    return VoxTinyConfig(
        sample_rate_hz=raw["sample_rate"],
        num_codebooks=raw["codebooks"],
        codebook_size=raw["codebook_size"],
        end_code=raw["eos"],
        characters=text["chars"],
        first_char_id=text["first_char"],
        text_bos_id=text["text_bos"],
        audio_bos_id=text["audio_bos"],
        text_eos_id=text["text_eos"],
        lead_words=text["lead_words"],
        text_kernel=talker["text_conv"]["kernel"],
        text_blocks=talker["text_conv"]["blocks"],
        talker=BackboneShape(
            hidden=talker["hidden"],
            layers=talker["layers"],
            heads=talker["heads"],
            kv_heads=talker["kv_heads"],
            head_dim=head_dim,
            ffn=talker["ffn"],
            rope_theta=theta,
        ),
        depth=BackboneShape(
            hidden=depth["hidden"],
            layers=depth["layers"],
            heads=depth["heads"],
            kv_heads=depth["heads"],
            head_dim=depth["hidden"] // depth["heads"],
            ffn=depth["ffn"],
            rope_theta=theta,
        ),
        depth_passes=depth_passes(raw["codebooks"], depth["codes_per_pass"]),
        codec=CodecShape(
            fft_samples=codec["n_fft"], hop_samples=codec["hop"], upsample=codec["upsample"]
        ),
        temperature=raw["sampling"]["temperature_first"],
        depth_temperature=raw["sampling"]["temperature_rest"],
        top_k=raw["sampling"]["top_k"],
    )


def depth_passes(codebooks: int, codes_per_pass: int) -> tuple[tuple[int, ...], ...]:
    """Codebooks of each depth pass: 1 alone, then as many at once as the model is trained for."""
    rest = range(2, codebooks)
    together = (rest[i : i + codes_per_pass] for i in range(0, len(rest), codes_per_pass))
    return ((1,), *(tuple(books) for books in together))
