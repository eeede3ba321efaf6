"""Makes the Qwen3-TTS goldens and the tiny checkpoint with the reference implementation.

Run in an environment of its own (the reference does not import under newer transformers):
    pip install torch==2.13.0 transformers==4.57.3 huggingface_hub==0.36.0 tokenizers==0.22.1
    pip install librosa einops sox onnxruntime accelerate torchaudio
    pip install --no-deps qwen-tts==0.1.1
    python tests/golden/make_qwen3_tts.py
Weights come from `seeded_weights`, so only inputs and outputs are stored.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")

import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from qwen_tts.core.models.configuration_qwen3_tts import Qwen3TTSConfig  # noqa: E402
from qwen_tts.core.models.modeling_qwen3_tts import (  # noqa: E402
    Qwen3TTSForConditionalGeneration,
)
from qwen_tts.core.tokenizer_12hz.configuration_qwen3_tts_tokenizer_v2 import (  # noqa: E402
    Qwen3TTSTokenizerV2Config,
)
from qwen_tts.core.tokenizer_12hz.modeling_qwen3_tts_tokenizer_v2 import (  # noqa: E402
    Qwen3TTSTokenizerV2Model,
)
from safetensors.torch import save_file  # noqa: E402
from tokenizers import Tokenizer, models, pre_tokenizers, trainers  # noqa: E402
from transformers import Qwen2TokenizerFast  # noqa: E402

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from philox import gumbel  # noqa: E402
from qwen3_tts_configs import (  # noqa: E402
    SPECIAL_TOKENS,
    identity_config,
    speech_tokenizer_config,
    tiny_config,
)
from seeded_weights import weight  # noqa: E402

OUT = HERE / "qwen3_tts"
CHECKPOINT = HERE.parent / "data" / "qwen3_tts_tiny"
TRAINING_TEXT = (
    "the speech of a small random model is noise, and the noise is exact. "
    "however many words there are, hello is still the first that anyone says to a machine. "
) * 4
TEXTS = {
    "plain": "Hello there, this is a test.",
    "mixed": "It's 12:30 - don't\twait!\nNew line?  Two  spaces.",
    "chinese": "你好，世界。今天是2026年。",
    "accents": "Où est-ce? Ça va; naïve café, über.",
}
CASES = {
    "voice": dict(text="plain", speaker="vivian", language="English"),
    "dialect": dict(text="chinese", speaker="eric", language="Auto"),
    "instruct": dict(text="accents", speaker="ryan", language="Chinese", instruct="Speak slowly."),
    "auto": dict(text="mixed", speaker="Ryan", language="Auto"),
    "no_speaker": dict(text="plain", speaker=None, language="German"),
    "streamed": dict(text="plain", speaker="vivian", language="English", streamed=True),
}
GREEDY_FRAMES = 72


def versions() -> dict[str, str]:
    return {
        "qwen-tts": "0.1.1",
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "made_by": Path(__file__).name,
    }


def save(name: str, tensors: dict[str, torch.Tensor], **notes: object) -> None:
    OUT.mkdir(exist_ok=True)
    path = OUT / f"{name}.safetensors"
    # One entry: several are kept in no fixed order, and goldens should not change by themselves.
    metadata = {"notes": json.dumps(versions() | notes)}
    save_file({key: value.contiguous() for key, value in tensors.items()}, path, metadata)
    size = path.stat().st_size
    assert size <= 100_000, f"{path.name} has {size} bytes"
    sys.stdout.write(f"{path.name}: {size} bytes\n")


def seed_module(module: torch.nn.Module, seed: int) -> None:
    state = {
        name: torch.from_numpy(weight(name, tuple(value.shape), seed))
        for name, value in module.state_dict().items()
    }
    module.load_state_dict(state)
    module.eval()


def make_tokenizer(folder: Path) -> Qwen2TokenizerFast:
    """Trains a byte-level BPE of 256 bytes and 40 merges and writes it in the published layout."""
    trainer = trainers.BpeTrainer(
        vocab_size=296, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.train_from_iterator([TRAINING_TEXT, *["assistant", "user"] * 99], trainer)
    assert bpe.get_vocab_size() == 296, "the training text has too few merges"
    bpe.model.save(str(folder))
    added = {
        str(296 + i): dict(
            content=token,
            lstrip=False,
            normalized=False,
            rstrip=False,
            single_word=False,
            special=not token.startswith("<tts"),
        )
        for i, token in enumerate(SPECIAL_TOKENS)
    }
    config = dict(
        add_prefix_space=False,
        added_tokens_decoder=added,
        clean_up_tokenization_spaces=False,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        tokenizer_class="Qwen2Tokenizer",
        unk_token=None,
    )
    write_json(folder / "tokenizer_config.json", config)
    return Qwen2TokenizerFast.from_pretrained(folder)


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def half(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {k: v.to(torch.bfloat16).contiguous() for k, v in module.state_dict().items()}


def make_checkpoint() -> Qwen2TokenizerFast:
    speech = CHECKPOINT / "speech_tokenizer"
    speech.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer(CHECKPOINT)
    model = build(tiny_config(), seed=0)
    write_json(CHECKPOINT / "config.json", tiny_config())
    write_json(
        CHECKPOINT / "generation_config.json",
        dict(
            do_sample=True,
            repetition_penalty=1.05,
            temperature=0.9,
            top_k=50,
            top_p=1.0,
            subtalker_dosample=True,
            subtalker_temperature=0.9,
            subtalker_top_k=50,
            subtalker_top_p=1.0,
            max_new_tokens=8192,
        ),
    )
    write_json(CHECKPOINT / "preprocessor_config.json", dict(padding_side="left"))
    save_file(half(model), CHECKPOINT / "model.safetensors", {"format": "pt"})
    codec = build_codec()
    write_json(speech / "config.json", speech_tokenizer_config())
    write_json(speech / "preprocessor_config.json", dict(sampling_rate=24000))
    save_file(half(codec), speech / "model.safetensors", {"format": "pt"})
    size = sum(path.stat().st_size for path in CHECKPOINT.rglob("*") if path.is_file())
    assert size <= 1_000_000, f"the tiny checkpoint has {size} bytes"
    sys.stdout.write(f"{CHECKPOINT.name}: {size} bytes\n")
    return tokenizer


def build(config: dict, seed: int) -> Qwen3TTSForConditionalGeneration:
    full = Qwen3TTSConfig(**config)
    full._attn_implementation = "eager"
    full.talker_config._attn_implementation = "eager"
    full.talker_config.code_predictor_config._attn_implementation = "eager"
    model = Qwen3TTSForConditionalGeneration(full)
    seed_module(model, seed)
    return model


def build_codec() -> Qwen3TTSTokenizerV2Model:
    config = Qwen3TTSTokenizerV2Config(**speech_tokenizer_config())
    config.decoder_config._attn_implementation = "eager"
    codec = Qwen3TTSTokenizerV2Model(config)
    seed_module(codec, 0)
    return codec


class Recorder:
    """Watches one generation: prompt rows, hidden states, logits of both transformers."""

    def __init__(self, model: Qwen3TTSForConditionalGeneration, frames: int, sample: bool) -> None:
        self.hidden: list[torch.Tensor] = []
        self.logits: list[torch.Tensor] = []
        self.depth_logits: list[torch.Tensor] = []
        self.prompt = self.trailing = None
        talker = model.talker
        self._hooks = [talker.codec_head.register_forward_hook(self._on_head)]
        for head in talker.code_predictor.lm_head:
            self._hooks.append(head.register_forward_hook(self._on_depth_head))
        self._talker, self._generate = talker, talker.generate
        talker.generate = lambda **kwargs: self._start(kwargs, frames, sample)

    def _start(self, kwargs: dict, frames: int, sample: bool) -> object:
        self.prompt = kwargs["inputs_embeds"][0]
        self.trailing = kwargs["trailing_text_hidden"][0]
        kwargs["max_new_tokens"] = frames + 1
        if not sample:
            kwargs["min_new_tokens"] = frames + 1
        return self._generate(**kwargs)

    def _on_head(self, _module: object, inputs: tuple, output: torch.Tensor) -> None:
        self.hidden.append(inputs[0][0, -1])
        self.logits.append(output[0, -1])

    def _on_depth_head(self, _module: object, inputs: tuple, output: torch.Tensor) -> None:
        self.depth_logits.append(output[0, -1])

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._talker.generate = self._generate


def generate(
    model: Qwen3TTSForConditionalGeneration,
    ids: dict[str, list[int]],
    case: dict,
    frames: int,
    sample: bool = False,
) -> tuple[torch.Tensor, Recorder]:
    recorder = Recorder(model, frames, sample)
    instruct = case.get("instruct")
    codes, _ = model.generate(
        input_ids=[torch.tensor([ids[case["text"]]])],
        instruct_ids=[torch.tensor([ids[instruct]]) if instruct else None],
        languages=[case["language"]],
        speakers=[case["speaker"]],
        non_streaming_mode=not case.get("streamed", False),
        do_sample=sample,
        subtalker_dosample=sample,
    )
    recorder.close()
    return codes[0], recorder


def tokenize(tokenizer: Qwen2TokenizerFast) -> dict[str, list[int]]:
    ids = {
        key: tokenizer(
            f"<|im_start|>assistant\n{text}<|im_end|>\n<|im_start|>assistant\n"
        ).input_ids
        for key, text in TEXTS.items()
    }
    for case in CASES.values():
        if "instruct" in case:
            text = f"<|im_start|>user\n{case['instruct']}<|im_end|>\n"
            ids[case["instruct"]] = tokenizer(text).input_ids
    return ids


def make_prompts(name: str, model: Qwen3TTSForConditionalGeneration, ids: dict) -> None:
    """Prompt rows, trailing text rows and the first frame's hidden state of every layout."""
    tensors = {}
    for case_name, case in CASES.items():
        _, seen = generate(model, ids, case, frames=1)
        tensors[f"{case_name}.prompt"] = seen.prompt
        tensors[f"{case_name}.trailing"] = seen.trailing
        tensors[f"{case_name}.hidden"] = seen.hidden[0]
        tensors[f"{case_name}.logits"] = seen.logits[0]
    save(f"{name}_prompts", tensors, cases=CASES)


def make_greedy(name: str, model: Qwen3TTSForConditionalGeneration, ids: dict, case: str) -> None:
    """Greedy codes, every frame's hidden state, and the logits of the first two frames."""
    codes, seen = generate(model, ids, CASES[case], GREEDY_FRAMES)
    gaps = [float(x.topk(2).values.diff().abs()) for x in seen.logits + seen.depth_logits]
    per_frame = len(seen.depth_logits) // len(codes)
    tensors = dict(
        codes=codes[:GREEDY_FRAMES].to(torch.int32),
        hidden=torch.stack(seen.hidden[:GREEDY_FRAMES]),
        logits=torch.stack(seen.logits[:2]),
        depth_logits=torch.stack(seen.depth_logits[: 2 * per_frame]).unflatten(0, (2, per_frame)),
    )
    save(f"{name}_greedy_{case}", tensors, case=CASES[case], smallest_top2_gap=min(gaps))


def make_sampled(name: str, model: Qwen3TTSForConditionalGeneration, ids: dict) -> None:
    """Sampled codes with known noise, until the end token; default sampling settings."""
    groups = model.config.talker_config.num_code_groups
    tensors = {}
    original = torch.multinomial
    for seed in (1, 2**40 + 7, 12345):
        calls = iter(range(10**6))

        def draw(probs: torch.Tensor, num_samples: int, seed: int = seed, calls=calls):
            frame, codebook = divmod(next(calls), groups)
            noise = gumbel(seed, frame, codebook, probs.shape[-1])
            score = probs[0].double().log() + torch.from_numpy(noise)
            return score.argmax()[None, None]

        torch.multinomial = draw
        codes, _ = generate(model, ids, CASES["voice"], GREEDY_FRAMES, sample=True)
        tensors[f"codes.{seed}"] = codes.to(torch.int32)
    torch.multinomial = original
    save(f"{name}_sampled", tensors, case=CASES["voice"])


def make_codec(codec: Qwen3TTSTokenizerV2Model) -> None:
    """The codec decoder's stages for 40 frames (four windows of its attention)."""
    decoder = codec.decoder
    frames, groups = 40, decoder.config.num_quantizers
    codes = torch.from_numpy(
        np.random.Philox(key=7).random_raw(frames * groups) % decoder.config.codebook_size
    ).to(torch.int64)
    codes = codes.view(1, groups, frames)
    seen: dict[str, torch.Tensor] = {}

    def watch(name: str, module: torch.nn.Module) -> None:
        def hook(_module: object, _inputs: tuple, output: object) -> None:
            seen[name] = getattr(output, "last_hidden_state", output)[0]

        module.register_forward_hook(hook)

    watch("pre_conv", decoder.pre_conv)
    watch("transformer", decoder.pre_transformer)
    for i, (up, block) in enumerate(decoder.upsample):
        watch(f"upsample{i}.transposed", up)
        watch(f"upsample{i}.convnext", block)
    for i, block in enumerate(decoder.decoder[:-2]):
        watch(f"decoder{i}", block)
    with torch.no_grad():
        seen["quantized"] = decoder.quantizer.decode(codes)[0]
        wave = decoder(codes)[0, 0]
    assert float(wave.abs().max()) < 0.99, "the clamp hides errors"
    tensors = dict(
        codes=codes[0].T.to(torch.int32), wave_every_13=wave[::13], wave_head=wave[:1920]
    )
    for name, value in seen.items():
        value = value if name == "transformer" else value.T  # [positions, channels]
        tensors[name] = value[:: max(1, len(value) * value.shape[1] // 1000)]
    save("codec", tensors, peak=float(wave.abs().max()), rms=float(wave.square().mean().sqrt()))


def main() -> None:
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    tokenizer = make_checkpoint()
    ids = tokenize(tokenizer)
    write_json(OUT / "token_ids.json", dict(versions=versions(), texts=TEXTS, ids=ids))
    make_codec(build_codec())
    for name, config, seed in (("tiny", tiny_config(), 0), ("identity", identity_config(), 1)):
        model = build(config, seed)
        make_prompts(name, model, ids)
        make_greedy(name, model, ids, "voice")
        if name == "tiny":
            make_greedy(name, model, ids, "streamed")
        make_sampled(name, model, ids)


if __name__ == "__main__":
    main()
