"""Reads texts with a trained snapshot, one step at a time: what a server must reproduce.

Plain and slow (one text, the training modules, a growing cache). It serves to measure a snapshot
and to make golden values for the served model.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F

from voxserve.models.vox_tiny import keyed
from voxserve.models.vox_tiny.sampling import DrawRule, draw
from voxserve.models.vox_tiny.train import arrivals, snapshot
from voxserve.models.vox_tiny.train.network import (
    AUDIO_BEGIN,
    CHARACTERS,
    FIRST_CHARACTER,
    TEXT_BEGIN,
    TEXT_END,
    LanguageModel,
    Layer,
    rotation_table,
)
from voxserve.models.vox_tiny.train.rounding import set_rounding

# As served.
FIRST_RULE, DEPTH_RULE = DrawRule(0.3, 30, 1.0), DrawRule(0.5, 30, 1.0)
_CONTEXT_POSITIONS = 1024


class Reader:
    """A snapshot with the weights it will have in 8 bits."""

    def __init__(
        self, folder: Path, first_rule: DrawRule = FIRST_RULE, depth_rule: DrawRule = DEPTH_RULE
    ) -> None:
        """Loads a snapshot.

        Args:
            folder: Of the snapshot.
            first_rule: How codes of the first codebook are drawn.
            depth_rule: How the others are.
        """
        shape, weights = snapshot.load(folder)
        self.model = LanguageModel(shape)
        self.model.load_state_dict(weights)
        self.model.eval()
        set_rounding(self.model, True)
        self.shape, self._rules = shape, (first_rule, depth_rule)

    @torch.inference_mode()
    def read(
        self, text: str, seed: int, most_frames: int, is_streamed: bool = False
    ) -> torch.Tensor:
        """Codes of a text.

        Args:
            text: Normalised.
            seed: Of the draws.
            most_frames: A longer reading is cut.
            is_streamed: The text comes word by word, as `arrivals.served_steps` says.

        Returns:
            [frames, codebooks] int64.
        """
        uniforms = torch.from_numpy(keyed.uniforms(seed, most_frames + 1, self.shape.codebooks))
        arriving = self._segments(text, is_streamed)
        context = StepContext(self.model)
        frames: list[torch.Tensor] = []
        x = self.model.te(torch.tensor([AUDIO_BEGIN]))
        while len(frames) < most_frames:
            step = len(frames)
            for segment in arriving.pop(step, []):
                context.add_text(segment)
            # The end is no choice while text is still to come.
            frame = self._frame(context.advance(x), uniforms[step], bool(arriving))
            if frame is None:
                break
            frames.append(frame)
            x = self.model.embed_frames(frame[None])
        return torch.stack(frames) if frames else torch.zeros(0, self.shape.codebooks).long()

    def _segments(self, text: str, is_streamed: bool) -> dict[int, list[list[int]]]:
        """Token ids that join before each step, segment by segment."""
        ids = [FIRST_CHARACTER + CHARACTERS.index(character) for character in text]
        if not is_streamed:
            return {0: [[TEXT_BEGIN, *ids, TEXT_END]]}
        out: dict[int, list[list[int]]] = {}
        start, steps = 0, arrivals.served_steps(text)
        for number, (word, step) in enumerate(zip(text.split(" "), steps, strict=True)):
            end = min(start + len(word) + 1, len(ids))  # with its space
            segment = [TEXT_BEGIN, *ids[start:end]] if number == 0 else ids[start:end]
            out.setdefault(step, []).append(segment)
            start = end
        out[steps[-1]].append([TEXT_END])
        return out

    def _frame(
        self, hidden: torch.Tensor, uniforms: torch.Tensor, is_text_open: bool
    ) -> torch.Tensor | None:
        """[codebooks] int64, or None at the end."""
        first_rule, depth_rule = self._rules
        logits = self.model.h0(hidden)
        if is_text_open:
            logits[:, self.shape.end_code] = -torch.inf
        code = draw(logits, uniforms[:1], [first_rule])
        if int(code) == self.shape.end_code:
            return None
        codes = torch.zeros(1, self.shape.codebooks, dtype=torch.int64)
        codes[:, 0] = code
        for codebooks in self.shape.passes:
            # Later passes see zeros where codes are still to come, and their logits are not used.
            logits = self.model.depth_logits(hidden, codes)[0]
            for codebook in codebooks:
                row = logits[codebook - 1 : codebook]
                codes[:, codebook] = draw(row, uniforms[codebook : codebook + 1], [depth_rule])
        return codes[0]


class StepContext:
    """Keys and values of everything so far, and what the text encoder still remembers."""

    def __init__(self, model: LanguageModel) -> None:
        shape = model.shape
        self._model = model
        self._kv: list[list[torch.Tensor]] = [[] for _ in range(shape.layers)]
        self._rotation = rotation_table(_CONTEXT_POSITIONS, shape.head_dim, torch.device("cpu"))
        self._length = 0
        self._text: list[int] = []
        self._segments: list[int] = []

    def add_text(self, ids: list[int]) -> None:
        """Encodes a segment after those before it and runs it through the talker."""
        number = self._segments[-1] + 1 if self._segments else 0
        self._text += ids
        self._segments += [number] * len(ids)
        encoded = self._model.encode_text(
            torch.tensor([self._text]), torch.tensor([self._segments])
        )
        self.advance(encoded[0, -len(ids) :])

    def advance(self, x: torch.Tensor) -> torch.Tensor:
        """[1, hidden] of the last of [positions, hidden], normed."""
        positions = len(x)
        end = self._length + positions
        rotation = self._rotation[:, self._length : end]
        mask = torch.ones(positions, end, dtype=torch.bool).tril(self._length)
        x = x[None]
        for layer, kv in zip(self._model.ls, self._kv, strict=True):
            assert isinstance(layer, Layer)
            q, k, v = layer.project(x, rotation)
            kv[:] = (
                [k, v] if not kv else [torch.cat(pair, 2) for pair in zip(kv, (k, v), strict=True)]
            )
            attended = F.scaled_dot_product_attention(
                q, kv[0], kv[1], attn_mask=mask, enable_gqa=True
            )
            x = layer.finish(x, attended)
        self._length = end
        return self._model.n(x[0, -1:])
