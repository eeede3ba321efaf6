"""Qwen3-TTS prompts: what is asked for becomes rows of text and codec ids.

Rows: optional instruction | role | language tags | speaker | padding + text start | text | end.
A row's embedding is its text side plus its codec side. Layouts: PyPI qwen-tts 0.1.1,
Qwen3TTSForConditionalGeneration.generate. A speaker row could also carry a speaker vector, and a
prompt could hold reference frames behind the text: the models that need those come later.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from voxserve.core.errors import InvalidInput
from voxserve.models.qwen3_tts.config import TalkerConfig
from voxserve.models.qwen3_tts.tokenizer import TextTokenizer
from voxserve.models.request import Piece, PreparedRequest, SpeechOptions, TextFeed

AUTO = "auto"
MAX_INSTRUCT_TOKENS = 200
MAX_PIECE_TOKENS = 256  # text of one piece; its speech still fits the context
MAX_PROMPT_TOKENS = 512
MAX_CONTEXT_TOKENS = 2048
# English speech takes about 4 frames per text token; a runaway is stopped at twice that.
_FRAMES_PER_TOKEN = 8
_SPARE_FRAMES = 25
# Ends of sentences, then of clauses, then of words: where a long text may be cut.
_BREAKS = (r"(?<=[.!?;\n])\s+|(?<=[。！？；])", r"(?<=[,:])\s+|(?<=[，、：])", r"\s+")


@dataclass(frozen=True, slots=True)
class _Row:
    text: int | None = None
    codec: int | None = None


class PromptWriter:
    """Writes the prompts of one checkpoint.

    Args:
        config: Ids, speakers and languages.
        tokenizer: Of the checkpoint.
    """

    def __init__(self, config: TalkerConfig, tokenizer: TextTokenizer) -> None:
        self._config, self._tokenizer = config, tokenizer
        self.voices = tuple(config.speakers)
        spoken = (name for name in config.languages if "dialect" not in name)
        self.languages = (AUTO, *spoken)
        # "<|im_start|>assistant\n" and "<|im_start|>user\n ... <|im_end|>\n"
        self._role = [config.text_ids.im_start, *tokenizer.encode("assistant\n")]
        self._user = [config.text_ids.im_start, *tokenizer.encode("user\n")]
        self._user_end = [config.text_ids.im_end, *tokenizer.encode("\n")]

    def write(self, text: str, options: SpeechOptions) -> PreparedRequest:
        """Prompts of a whole text, in pieces where it is long.

        Raises:
            InvalidInput: Nothing to say, an unknown voice or language, or too long.
        """
        parts = self._cut(text.strip(), 0)
        if not parts:
            raise InvalidInput("nothing to say: the text is empty")
        options, notes = self._checked(options)
        head = self._head(options)
        pieces, num_tokens = [], 0
        for part in parts:
            ids = self._tokenizer.encode(part)
            num_tokens += len(ids)
            pieces.append(self._piece(head + self._whole_text(ids), part))
        budget = len(parts) * _SPARE_FRAMES + _FRAMES_PER_TOKEN * num_tokens
        return PreparedRequest(tuple(pieces), _frame_budget(budget, options), options, notes)

    def write_streamed(self, first: int, options: SpeechOptions) -> PreparedRequest:
        """The prompt of a text of which only the first token is known.

        Raises:
            InvalidInput: An unknown voice or language, or a long instruction.
        """
        options, notes = self._checked(options)
        rows = [*self._head(options), _Row(first, self._config.codec_ids.bos)]
        budget = _frame_budget(MAX_CONTEXT_TOKENS - len(rows), options)
        piece = self._piece(rows, "")
        return PreparedRequest((piece,), budget, options, notes, is_text_complete=False)

    def open_text(self) -> TextFeed:
        """A feed for one request's streamed text."""
        return _Feed(self._tokenizer)

    def _checked(self, options: SpeechOptions) -> tuple[SpeechOptions, tuple[str, ...]]:
        voice = (options.voice or self.voices[0]).lower()
        language = (options.language or AUTO).lower()
        for what, value, known in (
            ("voice", voice, self.voices),
            ("language", language, self.languages),
        ):
            if value not in known:
                raise InvalidInput(f"no {what} {value!r}; there are {', '.join(known)}")
        options = replace(options, voice=voice, language=language)
        if options.instruct and not self._config.takes_instructions:
            note = "this size of the model takes no instructions; yours was left out"
            return replace(options, instruct=None), (note,)
        return options, ()

    def _head(self, options: SpeechOptions) -> list[_Row]:
        """Rows up to the start of the text."""
        text, codec = self._config.text_ids, self._config.codec_ids
        rows = [_Row(text=token) for token in (*self._instruction(options.instruct), *self._role)]
        language = self._language_id(options)
        if language is None:
            tags = (codec.no_think, codec.think_bos, codec.think_eos)
        else:
            tags = (codec.think, codec.think_bos, language, codec.think_eos)
        speaker = self._config.speakers[options.voice or self.voices[0]]
        rows += [_Row(text.pad, token) for token in (*tags, speaker)]
        return [*rows, _Row(text.bos, codec.pad)]

    def _whole_text(self, ids: list[int]) -> list[_Row]:
        text, codec = self._config.text_ids, self._config.codec_ids
        return [*(_Row(token, codec.pad) for token in (*ids, text.eos)), _Row(text.pad, codec.bos)]

    def _instruction(self, instruct: str | None) -> list[int]:
        if not instruct:
            return []
        ids = self._tokenizer.encode(instruct.strip())
        if len(ids) > MAX_INSTRUCT_TOKENS:
            raise InvalidInput(
                f"the instruction has {len(ids)} tokens, over the limit of "
                f"{MAX_INSTRUCT_TOKENS}; shorten it"
            )
        return [*self._user, *ids, *self._user_end]

    def _language_id(self, options: SpeechOptions) -> int | None:
        dialect = self._config.dialects.get(options.voice or "")
        if dialect is not None and options.language in (AUTO, "chinese"):
            return self._config.languages[dialect]
        return None if options.language == AUTO else self._config.languages[options.language or ""]

    def _piece(self, rows: list[_Row], text: str) -> Piece:
        shape = (len(rows), 1 + self._config.num_codebooks)
        ids, mask = np.zeros(shape, np.int32), np.zeros(shape, np.bool_)
        for column, values in enumerate(([r.text for r in rows], [r.codec for r in rows])):
            ids[:, column] = [value or 0 for value in values]
            mask[:, column] = [value is not None for value in values]
        return Piece(ids, mask, text=text)

    def _cut(self, text: str, depth: int) -> list[str]:
        """Parts of at most MAX_PIECE_TOKENS ids, cut at the strongest breaks there are."""
        if not text:
            return []
        if len(self._tokenizer.encode(text)) <= MAX_PIECE_TOKENS:
            return [text]
        if depth == len(_BREAKS):
            half = len(text) // 2
            return self._cut(text[:half], depth) + self._cut(text[half:], depth)
        parts: list[str] = []
        for part in self._cut_at(_BREAKS[depth], text):
            parts += self._cut(part, depth + 1)
        return parts

    def _cut_at(self, pattern: str, text: str) -> list[str]:
        """Joins what lies between breaks again, up to the limit."""
        parts: list[str] = []
        start = 0
        ends = [found.span() for found in re.finditer(pattern, text)]
        last = (0, 0)
        for end, after in (*ends, (len(text), len(text))):
            if last[0] > start and len(self._tokenizer.encode(text[start:end])) > MAX_PIECE_TOKENS:
                parts.append(text[start : last[0]].strip())
                start = last[1]
            last = (end, after)
        return [*parts, text[start:].strip()]


class _Feed(TextFeed):
    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self._rest = ""
        self._has_begun = False

    def push(self, text: str) -> NDArray[np.int32]:
        text = self._rest + text
        if not self._has_begun:
            text = text.lstrip()
            self._has_begun = bool(text)
        settled, self._rest = self._tokenizer.split_settled(text)
        return np.asarray(self._tokenizer.encode(settled), np.int32)

    def finish(self) -> NDArray[np.int32]:
        rest, self._rest = self._rest.rstrip(), ""
        return np.asarray(self._tokenizer.encode(rest), np.int32)


def _frame_budget(budget: int, options: SpeechOptions) -> int:
    """Frames a request may take: a fixed length asked for may exceed the text's budget."""
    budget = max(budget, options.min_frames or 0)
    if options.max_frames is not None:
        budget = min(budget, options.max_frames)
    return budget
