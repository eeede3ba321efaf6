"""Checks what notebooks pass to the views, before anything is started or closed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, cast

from voxserve.core.errors import InvalidInput
from voxserve.core.protocols import SpeechEngine
from voxserve.core.workload import MAX_RATE_RPS

LONGEST_WINDOW_S = 3600.0  # a picture of more shows nothing


def engine(value: Any) -> SpeechEngine:
    """Something that serves as an engine does.

    Raises:
        InvalidInput: Not one.
    """
    made_by = cast("type[object]", type(value))
    if not all(hasattr(made_by, name) for name in ("stream", "set", "live_chunks")):
        raise InvalidInput(f"{value!r:.80} is no engine; make one: voxserve.Engine()")
    return value


def text(name: str, value: Any) -> str:
    """A text, which may be empty.

    Raises:
        InvalidInput: Not one.
    """
    if not isinstance(value, str):
        raise InvalidInput(f"{name} {value!r:.80} is not a text")
    return value


def texts(value: Any) -> list[str]:
    """One text or several to speak, none of them empty.

    Raises:
        InvalidInput: None at all, or one that is empty or no text.
    """
    held = [value] if isinstance(value, str) else value
    if not isinstance(held, list | tuple) or not held:
        raise InvalidInput(f"texts {value!r:.80}: at least one text is needed")
    checked = [text("a text to speak:", one) for one in cast("list[object]", held)]
    if not all(one.strip() for one in checked):
        raise InvalidInput("a text to speak is empty: there is no text to speak")
    return checked


def settings(name: str, value: Any) -> dict[str, Any]:
    """Settings by name, which only an engine can check further.

    Raises:
        InvalidInput: Not such a table.
    """
    held = dict(cast("Mapping[object, Any]", value)) if isinstance(value, Mapping) else None
    if held is None or not all(isinstance(key, str) for key in held):
        raise InvalidInput(f'{name} {value!r:.80} is not like {{"background_batch": 4}}')
    return cast("dict[str, Any]", held)


def whole(name: str, value: Any) -> int:
    """A whole number, numpy's included.

    Raises:
        InvalidInput: Not one.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InvalidInput(f"{name} {value!r} is not a whole number")
    return int(value)


def not_negative(name: str, value: Any) -> float:
    """A finite number from 0 on, numpy's included.

    Raises:
        InvalidInput: Not one.
    """
    checked = _number(value)
    if not 0 <= checked < math.inf:
        raise InvalidInput(f"{name} {value!r} is not a finite number from 0 on")
    return checked


def rate(name: str, value: Any) -> float:
    """Requests per second that an engine takes as a load; 0 is none.

    Raises:
        InvalidInput: Not such a number.
    """
    checked = not_negative(name, value)
    if checked > MAX_RATE_RPS:
        raise InvalidInput(f"{name} {checked:g} is more than {MAX_RATE_RPS:g} requests/s")
    return checked


def positive(name: str, value: Any) -> float:
    """A positive, finite number, numpy's included.

    Raises:
        InvalidInput: Not one.
    """
    checked = _number(value)
    if not 0 < checked < math.inf:
        raise InvalidInput(f"{name} {value!r} is not a positive, finite number")
    return checked


def window(seconds: Any) -> float:
    """How many of the last seconds a view shows.

    Raises:
        InvalidInput: Not a number above 0, or more than an hour.
    """
    checked = positive("a window of seconds:", seconds)
    if checked > LONGEST_WINDOW_S:
        raise InvalidInput(f"a window of {checked:g} s: at most {LONGEST_WINDOW_S:g} s are shown")
    return checked


def _number(value: Any) -> float:
    """NaN where it is none."""
    return math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
