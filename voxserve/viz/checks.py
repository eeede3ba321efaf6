"""Checks numbers that notebooks pass to the views."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

from voxserve.core.errors import InvalidInput

LONGEST_WINDOW_S = 3600.0  # a picture of more shows nothing


def positive(name: str, value: Any) -> float:
    """A positive, finite number, numpy's included.

    Raises:
        InvalidInput: Not one.
    """
    checked = math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
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
