"""Names and shapes of every tensor of a published Qwen3-TTS checkpoint that is used here."""

from __future__ import annotations

from voxserve.models.qwen3_tts.config import DILATIONS, CodecConfig, TalkerConfig

Shapes = dict[str, tuple[int, ...]]

# Published with the model, not used by text to speech with named voices.
UNUSED_TALKER = ("speaker_encoder.",)
UNUSED_CODEC = ("encoder.", "decoder.quantizer.rvq_first.input", "decoder.quantizer.rvq_rest.input")


def talker_shapes(config: TalkerConfig) -> Shapes:
    """Tensors of model.safetensors."""
    backbone, depth = config.backbone, config.depth
    predictor = "talker.code_predictor."
    shapes: Shapes = {
        "talker.model.text_embedding.weight": (config.text_vocab, config.text_hidden),
        "talker.model.codec_embedding.weight": (config.vocab, backbone.hidden),
        "talker.text_projection.linear_fc1.weight": (config.text_hidden, config.text_hidden),
        "talker.text_projection.linear_fc1.bias": (config.text_hidden,),
        "talker.text_projection.linear_fc2.weight": (backbone.hidden, config.text_hidden),
        "talker.text_projection.linear_fc2.bias": (backbone.hidden,),
        "talker.codec_head.weight": (config.vocab, backbone.hidden),
        **backbone.layer_shapes("talker.model."),
        **depth.layer_shapes(f"{predictor}model."),
    }
    for index in range(config.num_codebooks - 1):
        table = f"{predictor}model.codec_embedding.{index}.weight"
        shapes[table] = (config.depth_vocab, backbone.hidden)
        shapes[f"{predictor}lm_head.{index}.weight"] = (config.depth_vocab, depth.hidden)
    if config.is_projected:
        shapes[f"{predictor}small_to_mtp_projection.weight"] = (depth.hidden, backbone.hidden)
        shapes[f"{predictor}small_to_mtp_projection.bias"] = (depth.hidden,)
    return shapes


def codec_shapes(config: CodecConfig) -> Shapes:
    """Tensors of speech_tokenizer/model.safetensors."""
    hidden, latent = config.transformer.hidden, config.latent
    prefix = "decoder.pre_transformer."
    shapes: Shapes = {
        **_quantizer(config),
        **_conv("decoder.pre_conv", latent, config.code_dim, 3),
        **config.transformer.layer_shapes(prefix),
        f"{prefix}input_proj.weight": (hidden, latent),
        f"{prefix}input_proj.bias": (hidden,),
        f"{prefix}output_proj.weight": (latent, hidden),
        f"{prefix}output_proj.bias": (latent,),
    }
    for index in range(config.transformer.num_layers):
        for part in ("self_attn", "mlp"):
            shapes[f"{prefix}layers.{index}.{part}_layer_scale.scale"] = (hidden,)
    for index, ratio in enumerate(config.upsampling_ratios):
        shapes |= _upsample(f"decoder.upsample.{index}", latent, ratio)
    shapes |= _conv("decoder.decoder.0", config.channels, latent, 7)
    channels = config.channels
    for index, rate in enumerate(config.upsample_rates, 1):
        shapes |= _block(f"decoder.decoder.{index}.block", channels, rate)
        channels //= 2
    last = len(config.upsample_rates) + 1
    return (
        shapes
        | _snake(f"decoder.decoder.{last}", channels)
        | _conv(f"decoder.decoder.{last + 1}", 1, channels, 7)
    )


def random_gain(name: str) -> float:
    """Factors that keep a random codec's signal at its size and its wave inside [-1, 1]."""
    if ".conv2." in name:
        return 0.4  # residual units add up
    if ".block.1." in name:
        return 0.7  # named although it is 1: outputs sum two taps, not all
    is_outer = name.startswith("decoder.decoder.") and ".block." not in name
    return 0.7 if is_outer and not name.startswith("decoder.decoder.0.") else 1.0


def _quantizer(config: CodecConfig) -> Shapes:
    width = config.code_dim // 2
    shapes: Shapes = {}
    for part, count in (("rvq_first", 1), ("rvq_rest", config.num_codebooks - 1)):
        prefix = f"decoder.quantizer.{part}."
        shapes[f"{prefix}output_proj.weight"] = (config.code_dim, width, 1)
        for index in range(count):
            book = f"{prefix}vq.layers.{index}._codebook."
            shapes[f"{book}cluster_usage"] = (config.codebook_size,)
            shapes[f"{book}embedding_sum"] = (config.codebook_size, width)
    return shapes


def _conv(prefix: str, channels_out: int, channels_in: int, taps: int) -> Shapes:
    return {
        f"{prefix}.conv.weight": (channels_out, channels_in, taps),
        f"{prefix}.conv.bias": (channels_out,),
    }


def _transposed(prefix: str, channels_in: int, channels_out: int, taps: int) -> Shapes:
    return {
        f"{prefix}.conv.weight": (channels_in, channels_out, taps),
        f"{prefix}.conv.bias": (channels_out,),
    }


def _snake(prefix: str, channels: int) -> Shapes:
    return {f"{prefix}.alpha": (channels,), f"{prefix}.beta": (channels,)}


def _upsample(prefix: str, channels: int, ratio: int) -> Shapes:
    return {
        **_transposed(f"{prefix}.0", channels, channels, ratio),
        **_conv(f"{prefix}.1.dwconv", channels, 1, 7),
        f"{prefix}.1.gamma": (channels,),
        f"{prefix}.1.norm.weight": (channels,),
        f"{prefix}.1.norm.bias": (channels,),
        f"{prefix}.1.pwconv1.weight": (4 * channels, channels),
        f"{prefix}.1.pwconv1.bias": (4 * channels,),
        f"{prefix}.1.pwconv2.weight": (channels, 4 * channels),
        f"{prefix}.1.pwconv2.bias": (channels,),
    }


def _block(prefix: str, channels: int, rate: int) -> Shapes:
    half = channels // 2
    shapes = _snake(f"{prefix}.0", channels) | _transposed(f"{prefix}.1", channels, half, 2 * rate)
    for index in range(2, 2 + len(DILATIONS)):
        for which, taps in ((1, 7), (2, 1)):
            shapes |= _snake(f"{prefix}.{index}.act{which}", half)
            shapes |= _conv(f"{prefix}.{index}.conv{which}", half, half, taps)
    return shapes
