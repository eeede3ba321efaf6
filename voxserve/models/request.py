"""What a user asks of a model and what the host makes of it: options, prompts, arriving text.

Free of torch, so that requests can be checked and read before a model's code is imported.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxserve.core.errors import InvalidInput
from voxserve.core.request import FinishReason


@dataclass(frozen=True, slots=True)
class Sampling:
    """How codes are drawn; None means the model's default.

    Attributes:
        temperature, top_k, top_p: First codebook; temperature 0 is greedy.
        repetition_penalty: First codebook, over the request's earlier first codes.
        depth_temperature, depth_top_k, depth_top_p: The other codebooks.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    depth_temperature: float | None = None
    depth_top_k: int | None = None
    depth_top_p: float | None = None

    def __post_init__(self) -> None:
        for name, low, high in (
            ("temperature", 0.0, 5.0),
            ("depth_temperature", 0.0, 5.0),
            ("top_p", 0.0, 1.0),
            ("depth_top_p", 0.0, 1.0),
            ("repetition_penalty", 0.5, 5.0),
        ):
            value = _number(name, getattr(self, name))
            if value is not None and not low <= value <= high:
                raise InvalidInput(f"{name} {value} is outside {low} to {high}")
        for name in ("top_k", "depth_top_k"):
            value = _whole(name, getattr(self, name))
            if value is not None and value < 0:
                raise InvalidInput(f"{name} {value} is negative (0 means all)")
            object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True)
class SpeechOptions:
    """What a user may ask for beside the text.

    Attributes:
        voice, language: One of the model's; None is its default.
        instruct: Free-text style instruction, for models that take one.
        seed: Same text, seed and settings give the same audio.
        sampling: How codes are drawn.
        max_frames: Lowers the frame budget computed from the text.
        min_frames: The end token is suppressed before (equal to max_frames: a fixed length).
    """

    voice: str | None = None
    language: str | None = None
    instruct: str | None = None
    seed: int = 0
    sampling: Sampling = field(default_factory=Sampling)
    max_frames: int | None = None
    min_frames: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("seed", None), ("max_frames", 1), ("min_frames", 0)):
            value = _whole(name, getattr(self, name))
            if value is not None and least is not None and value < least:
                raise InvalidInput(f"{name} {value} is less than {least}")
            object.__setattr__(self, name, value)
        if self.seed is None:
            raise InvalidInput("seed None is not a whole number")
        if not isinstance(self.sampling, Sampling):
            raise InvalidInput(f"sampling {self.sampling!r} is not a Sampling")
        if not isinstance(self.instruct, str | None):
            raise InvalidInput(f"instruct {self.instruct!r} is not a text")


def _number(name: str, value: Any) -> Any:
    """Passes numbers, numpy's included, and None."""
    if value is None or (isinstance(value, Real) and not isinstance(value, bool)):
        return value
    raise InvalidInput(f"{name} {value!r} is not a number")


def _whole(name: str, value: Any) -> int | None:
    """A whole number as Python's own, so that no width limits it; None passes."""
    number = _number(name, value)
    if number is None or isinstance(number, Integral):
        return None if number is None else int(number)
    if not float(number).is_integer():
        raise InvalidInput(f"{name} {value!r} is not a whole number")
    return int(number)


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Prompt rows of one piece of text.

    A row's embedding is the sum of the sources its mask selects: column 0 is a text id, column
    1 + q a code of codebook q; `features` are added where present.

    Attributes:
        ids: [tokens, 1 + codebooks] int32.
        mask: Same shape, bool.
        features: [tokens, width] float32 (speaker vectors, encoded audio), or None.
        text: The words of the piece, as spoken.
    """

    ids: NDArray[np.int32]
    mask: NDArray[np.bool_]
    features: NDArray[np.float32] | None = None
    text: str = ""

    @property
    def num_tokens(self) -> int:
        """Prompt rows."""
        return int(self.ids.shape[0])


@dataclass(frozen=True, slots=True, eq=False)
class PreparedRequest:
    """What `preprocess` made of a text.

    Attributes:
        pieces: In speaking order.
        max_frames: Frame budget over all pieces.
        options: As asked for.
        notes: What was changed or could not be spoken, for the user to read.
        is_text_complete: False: text tokens follow (`SpeechModel.append_text`).
        finish_reason: How its frames end, where that is known before they are made.
    """

    pieces: tuple[Piece, ...]
    max_frames: int
    options: SpeechOptions
    notes: tuple[str, ...] = ()
    is_text_complete: bool = True
    finish_reason: FinishReason | None = None


class TextFeed(ABC):
    """Turns text that arrives in parts into text tokens; one per request, one user thread.

    A token is an id, or a row of ids where a model reads more or less than one at a step: then
    arrays of ids are [tokens, ids].
    """

    @abstractmethod
    def push(self, text: str) -> NDArray[np.int32]:
        """Ids that are settled by now, whatever follows; possibly none."""

    @abstractmethod
    def finish(self) -> NDArray[np.int32]:
        """Ids of what was held back. Nothing can follow."""
