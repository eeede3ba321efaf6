"""Configurations of the tiny Qwen3-TTS models, in the published files' form.

`tiny` is the shipped checkpoint: the depth transformer is narrower than the talker, as in 1.7B.
`identity` has equal widths (no projection), as in 0.6B, and the real number of codebooks.
"""

from __future__ import annotations

from typing import Any

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<tts_pad>",
    "<tts_text_bos>",
    "<tts_text_eod>",
)
CODES = 64
VOCAB = CODES + 1024  # the last 1024 ids are never codes
_CONTROL = {
    "codec_pad_id": 1000,
    "codec_bos_id": 1001,
    "codec_eos_token_id": 1002,
    "codec_think_id": 1003,
    "codec_nothink_id": 1004,
    "codec_think_bos_id": 1005,
    "codec_think_eos_id": 1006,
}
_LANGUAGES = {
    "english": 100,
    "german": 101,
    "chinese": 102,
    "sichuan_dialect": 103,
}
_SPEAKERS = {"vivian": 200, "ryan": 201, "eric": 202}
_DIALECTS = {"vivian": False, "ryan": False, "eric": "sichuan_dialect"}


def tiny_config() -> dict[str, Any]:
    """config.json of the shipped tiny checkpoint (CustomVoice, with projection)."""
    return _config(hidden=48, depth_hidden=32, groups=4, size="1b7")


def identity_config() -> dict[str, Any]:
    """config.json of a model whose depth transformer is as wide as its talker."""
    return _config(hidden=32, depth_hidden=32, groups=16, size="0b6")


def _config(hidden: int, depth_hidden: int, groups: int, size: str) -> dict[str, Any]:
    shared = {
        "attention_bias": False,
        "attention_dropout": 0,
        "head_dim": 16,
        "hidden_act": "silu",
        "max_position_embeddings": 32768,
        "num_code_groups": groups,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000,
        "tie_word_embeddings": False,
        "use_cache": True,
        "use_sliding_window": False,
    }
    depth = shared | {
        "model_type": "qwen3_tts_talker_code_predictor",
        "hidden_size": depth_hidden,
        "intermediate_size": 48,
        "layer_types": ["full_attention"] * 2,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "pad_token_id": 0,
        "rope_scaling": None,
        "vocab_size": CODES,
    }
    talker = (
        shared
        | _CONTROL
        | {
            "model_type": "qwen3_tts_talker",
            "code_predictor_config": depth,
            "codec_language_id": _LANGUAGES,
            "hidden_size": hidden,
            "intermediate_size": 64,
            "num_attention_heads": 4,
            "num_hidden_layers": 2,
            "pad_token_id": 0,
            "rope_scaling": {
                "interleaved": True,
                "mrope_section": [4, 2, 2],
                "rope_type": "default",
                "type": "default",
            },
            "spk_id": _SPEAKERS,
            "spk_is_dialect": _DIALECTS,
            "text_hidden_size": 48,
            "text_vocab_size": 304,
            "vocab_size": VOCAB,
        }
    )
    return {
        "architectures": ["Qwen3TTSForConditionalGeneration"],
        "assistant_token_id": 266,
        "im_end_token_id": 298,
        "im_start_token_id": 297,
        "model_type": "qwen3_tts",
        "talker_config": talker,
        "tokenizer_type": "qwen3_tts_tokenizer_12hz",
        "transformers_version": "4.57.3",
        "tts_bos_token_id": 300,
        "tts_eos_token_id": 301,
        "tts_model_size": size,
        "tts_model_type": "custom_voice",
        "tts_pad_token_id": 299,
    }


def speech_tokenizer_config() -> dict[str, Any]:
    """speech_tokenizer/config.json of the tiny checkpoint."""
    return {
        "architectures": ["Qwen3TTSTokenizerV2Model"],
        "model_type": "qwen3_tts_tokenizer_12hz",
        "encoder_valid_num_quantizers": 4,
        "input_sample_rate": 24000,
        "output_sample_rate": 24000,
        "decode_upsample_rate": 1920,
        "encode_downsample_rate": 1920,
        "decoder_config": {
            "attention_bias": False,
            "attention_dropout": 0.0,
            "codebook_dim": 32,
            "codebook_size": CODES,
            "decoder_dim": 64,
            "head_dim": 16,
            "hidden_act": "silu",
            "hidden_size": 32,
            "intermediate_size": 48,
            "latent_dim": 48,
            "layer_scale_initial_scale": 0.01,
            "max_position_embeddings": 8000,
            "num_attention_heads": 2,
            "num_hidden_layers": 2,
            "num_key_value_heads": 2,
            "num_quantizers": 4,
            "num_semantic_quantizers": 1,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000,
            "sliding_window": 10,
            "upsample_rates": [8, 5, 4, 3],
            "upsampling_ratios": [2, 2],
        },
        "encoder_config": {
            "codebook_dim": 8,
            "codebook_size": CODES,
            "head_dim": 8,
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_attention_heads": 2,
            "num_filters": 2,
            "num_hidden_layers": 1,
            "num_key_value_heads": 2,
            "num_quantizers": 4,
            "upsample_groups": 16,
            "vector_quantization_hidden_dimension": 8,
        },
    }
