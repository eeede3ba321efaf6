"""Qwen3-TTS configurations: read from a checkpoint's JSON, or the published sizes.

Sources: config.json and speech_tokenizer/config.json of the published layout (PyPI qwen-tts
0.1.1, classes Qwen3TTSConfig and Qwen3TTSTokenizerV2DecoderConfig).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from voxserve.core.errors import CheckpointError
from voxserve.models.blocks.transformer import TransformerShape

DILATIONS = (1, 3, 9)  # of the residual units; not in the published configs
# Ids at the end of the first codebook's vocabulary that are never codes.
NUM_CONTROL_IDS = 1024


@dataclass(frozen=True, slots=True)
class TextIds:
    """Text ids that frame a prompt."""

    im_start: int
    im_end: int
    pad: int
    bos: int
    eos: int


@dataclass(frozen=True, slots=True)
class CodecIds:
    """Ids of the first codebook's table that are not codes."""

    pad: int
    bos: int
    eos: int
    think: int
    no_think: int
    think_bos: int
    think_eos: int


@dataclass(frozen=True, slots=True)
class TalkerConfig:
    """The backbone, its tables and the depth transformer.

    Attributes:
        backbone, depth: Transformer sizes.
        vocab: Rows of the first codebook's table and head.
        depth_vocab: Codes of the other codebooks.
        num_codebooks: Codes per frame.
        text_vocab, text_hidden: Text table.
        text_ids, codec_ids: Control ids.
        speakers: Name -> row of the first codebook's table.
        dialects: Speaker -> the language spoken when Chinese or automatic is asked for.
        languages: Name -> row of the first codebook's table, dialects included.
        takes_instructions: Whether a style instruction has an effect.
    """

    backbone: TransformerShape
    depth: TransformerShape
    vocab: int
    depth_vocab: int
    num_codebooks: int
    text_vocab: int
    text_hidden: int
    text_ids: TextIds
    codec_ids: CodecIds
    speakers: Mapping[str, int]
    dialects: Mapping[str, str]
    languages: Mapping[str, int]
    takes_instructions: bool

    @property
    def num_codes(self) -> int:
        """Codes of the first codebook."""
        return self.vocab - NUM_CONTROL_IDS

    @property
    def is_projected(self) -> bool:
        """Whether the depth transformer is narrower than the backbone."""
        return self.depth.hidden != self.backbone.hidden


@dataclass(frozen=True, slots=True)
class CodecConfig:
    """The codec's decoder.

    Attributes:
        transformer: Sizes.
        window: Positions its attention sees.
        codebook_size, num_codebooks, code_dim: Quantiser; entries have half of `code_dim`.
        latent: Channels between transformer and vocoder.
        channels: Channels after the vocoder's first convolution; halved by each block.
        upsampling_ratios: Of the ConvNeXt stages.
        upsample_rates: Of the snake blocks.
        sample_rate_hz: Of the wave.
        max_frames: Rows of the rotary table: the longest request.
    """

    transformer: TransformerShape
    window: int
    codebook_size: int
    num_codebooks: int
    code_dim: int
    latent: int
    channels: int
    upsampling_ratios: tuple[int, ...]
    upsample_rates: tuple[int, ...]
    sample_rate_hz: int
    max_frames: int

    @property
    def frame_samples(self) -> int:
        """Samples per frame."""
        total = 1
        for factor in (*self.upsampling_ratios, *self.upsample_rates):
            total *= factor
        return total


def parse_talker(config: Mapping[str, Any]) -> TalkerConfig:
    """Reads config.json.

    Raises:
        CheckpointError: Another kind of model, or an entry is missing.
    """
    kind = config.get("tts_model_type")
    if kind != "custom_voice":
        raise CheckpointError(
            f"config.json says tts_model_type {kind!r}; only 'custom_voice' models can be served"
        )
    try:
        talker = _TALKER_DEFAULTS | config["talker_config"]
        depth = _DEPTH_DEFAULTS | talker["code_predictor_config"]
        return _talker(_TOP_DEFAULTS | dict(config), talker, depth)
    except KeyError as missing:
        raise CheckpointError(f"config.json has no entry {missing}") from None


def parse_codec(config: Mapping[str, Any]) -> CodecConfig:
    """Reads speech_tokenizer/config.json.

    Raises:
        CheckpointError: An entry is missing.
    """
    try:
        decoder = _DECODER_DEFAULTS | config["decoder_config"]
        return CodecConfig(
            transformer=_shape(decoder, has_head_norms=False),
            window=decoder["sliding_window"],
            codebook_size=decoder["codebook_size"],
            num_codebooks=decoder["num_quantizers"],
            code_dim=decoder["codebook_dim"],
            latent=decoder["latent_dim"],
            channels=decoder["decoder_dim"],
            upsampling_ratios=tuple(decoder["upsampling_ratios"]),
            upsample_rates=tuple(decoder["upsample_rates"]),
            sample_rate_hz=config.get("output_sample_rate", 24000),
            max_frames=decoder["max_position_embeddings"],
        )
    except KeyError as missing:
        raise CheckpointError(f"speech_tokenizer/config.json has no entry {missing}") from None


def _talker(
    config: Mapping[str, Any], talker: Mapping[str, Any], depth: Mapping[str, Any]
) -> TalkerConfig:
    return TalkerConfig(
        backbone=_shape(talker, has_head_norms=True),
        depth=_shape(depth, has_head_norms=True),
        vocab=talker["vocab_size"],
        depth_vocab=depth["vocab_size"],
        num_codebooks=talker["num_code_groups"],
        text_vocab=talker["text_vocab_size"],
        text_hidden=talker["text_hidden_size"],
        text_ids=TextIds(
            im_start=config["im_start_token_id"],
            im_end=config["im_end_token_id"],
            pad=config["tts_pad_token_id"],
            bos=config["tts_bos_token_id"],
            eos=config["tts_eos_token_id"],
        ),
        codec_ids=CodecIds(
            pad=talker["codec_pad_id"],
            bos=talker["codec_bos_id"],
            eos=talker["codec_eos_token_id"],
            think=talker["codec_think_id"],
            no_think=talker["codec_nothink_id"],
            think_bos=talker["codec_think_bos_id"],
            think_eos=talker["codec_think_eos_id"],
        ),
        speakers=dict(talker["spk_id"]),
        dialects={name: value for name, value in talker["spk_is_dialect"].items() if value},
        languages=dict(talker["codec_language_id"]),
        takes_instructions=config.get("tts_model_size") != "0b6",
    )


def _shape(config: Mapping[str, Any], has_head_norms: bool) -> TransformerShape:
    num_heads = config["num_attention_heads"]
    return TransformerShape(
        num_layers=config["num_hidden_layers"],
        hidden=config["hidden_size"],
        ffn=config["intermediate_size"],
        num_heads=num_heads,
        num_kv_heads=config["num_key_value_heads"],
        head_dim=config.get("head_dim") or config["hidden_size"] // num_heads,
        rope_theta=float(config["rope_theta"]),
        norm_eps=config["rms_norm_eps"],
        has_head_norms=has_head_norms,
    )


def published_talker(size: str) -> TalkerConfig:
    """The sizes of "1.7b" or "0.6b" (CustomVoice)."""
    hidden, ffn = {"1.7b": (2048, 6144), "0.6b": (1024, 3072)}[size]
    return TalkerConfig(
        backbone=TransformerShape(28, hidden, ffn, 16, 8, 128, rope_theta=1e6, norm_eps=1e-6),
        depth=TransformerShape(5, 1024, 3072, 16, 8, 128, rope_theta=1e6, norm_eps=1e-6),
        vocab=3072,
        depth_vocab=2048,
        num_codebooks=16,
        text_vocab=151936,
        text_hidden=2048,
        text_ids=TextIds(im_start=151644, im_end=151645, pad=151671, bos=151672, eos=151673),
        codec_ids=CodecIds(
            pad=2148, bos=2149, eos=2150, think=2154, no_think=2155, think_bos=2156, think_eos=2157
        ),
        speakers=_SPEAKERS,
        dialects={"eric": "sichuan_dialect", "dylan": "beijing_dialect"},
        languages=_LANGUAGES,
        takes_instructions=size == "1.7b",
    )


def published_codec() -> CodecConfig:
    """The 12.5 Hz codec of all published sizes."""
    return CodecConfig(
        transformer=TransformerShape(
            *(8, 512, 1024, 16, 16, 64), rope_theta=1e4, norm_eps=1e-5, has_head_norms=False
        ),
        window=72,
        codebook_size=2048,
        num_codebooks=16,
        code_dim=512,
        latent=1024,
        channels=1536,
        upsampling_ratios=(2, 2),
        upsample_rates=(8, 5, 4, 3),
        sample_rate_hz=24000,
        max_frames=8000,
    )


# What a config file may leave out: the defaults of the published configuration classes.
_TOP_DEFAULTS: dict[str, Any] = {
    "im_start_token_id": 151644,
    "im_end_token_id": 151645,
    "tts_pad_token_id": 151671,
    "tts_bos_token_id": 151672,
    "tts_eos_token_id": 151673,
}
_TALKER_DEFAULTS: dict[str, Any] = {
    "vocab_size": 3072,
    "hidden_size": 1024,
    "intermediate_size": 2048,
    "num_hidden_layers": 20,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "rope_theta": 10000,
    "rms_norm_eps": 1e-6,
    "num_code_groups": 32,
    "text_hidden_size": 2048,
    "codec_eos_token_id": 4198,
    "codec_think_id": 4202,
    "codec_nothink_id": 4203,
    "codec_think_bos_id": 4204,
    "codec_think_eos_id": 4205,
    "codec_pad_id": 4196,
    "codec_bos_id": 4197,
}
_DEPTH_DEFAULTS: dict[str, Any] = {
    "vocab_size": 2048,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 5,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "rope_theta": 10000,
    "rms_norm_eps": 1e-6,
}
_DECODER_DEFAULTS: dict[str, Any] = {
    "codebook_size": 2048,
    "hidden_size": 1024,
    "latent_dim": 1024,
    "max_position_embeddings": 8000,
    "rope_theta": 10000,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "sliding_window": 72,
    "intermediate_size": 3072,
    "rms_norm_eps": 1e-5,
    "num_hidden_layers": 8,
    "num_quantizers": 16,
    "upsample_rates": (8, 5, 4, 3),
    "upsampling_ratios": (2, 2),
    "decoder_dim": 1536,
}
_SPEAKERS = {
    "vivian": 3065,
    "serena": 3066,
    "uncle_fu": 3010,
    "ryan": 3061,
    "aiden": 2861,
    "ono_anna": 2873,
    "sohee": 2864,
    "eric": 2875,
    "dylan": 2878,
}
_LANGUAGES = {
    "english": 2050,
    "german": 2053,
    "spanish": 2054,
    "chinese": 2055,
    "japanese": 2058,
    "french": 2061,
    "sichuan_dialect": 2062,
    "korean": 2064,
    "russian": 2069,
    "italian": 2070,
    "portuguese": 2071,
    "beijing_dialect": 2074,
}
