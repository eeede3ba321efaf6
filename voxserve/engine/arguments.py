"""Checks what callers pass to the engine's methods, so that nothing wrong reaches its thread."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from voxserve.core.errors import InvalidInput


def number(name: str, value: Any) -> float:
    """A number, numpy's included, infinite and NaN too where the method takes them.

    Raises:
        InvalidInput: Not a number.
    """
    if not isinstance(value, Real) or isinstance(value, bool):
        raise InvalidInput(f"{name} {value!r} is not a number")
    return float(value)


def finite(name: str, value: Any) -> float:
    """A finite number.

    Raises:
        InvalidInput: Not a number, or not finite.
    """
    checked = number(name, value)
    if not math.isfinite(checked):
        raise InvalidInput(f"{name} {value!r} is not finite")
    return checked


def whole(name: str, value: Any) -> int:
    """A whole number as Python's own.

    Raises:
        InvalidInput: Not a whole number.
    """
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise InvalidInput(f"{name} {value!r} is not a whole number")
    return int(value)


def seconds(name: str, value: Any) -> float | None:
    """A time to wait: None or infinity waits for ever, nothing and less not at all.

    Raises:
        InvalidInput: Not a number.
    """
    if value is None:
        return None
    checked = number(name, value)
    if math.isnan(checked):
        raise InvalidInput(f"{name} {value!r} is not a number")
    return None if checked == math.inf else max(checked, 0.0)
