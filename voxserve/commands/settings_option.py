"""Reads the `--set NAME=VALUE` options of commands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

from voxserve.core.errors import InvalidInput
from voxserve.core.settings import Settings


def parse_settings(pairs: Sequence[str]) -> dict[str, Any]:
    """One value for each setting; numbers become numbers where the setting is one.

    Raises:
        InvalidInput: A text is not NAME=VALUE.
    """
    return {name: _value(name, text) for name, text in _named(pairs)}


def parse_several(pairs: Sequence[str]) -> dict[str, Any]:
    """The same, but several values, separated by commas, become a list.

    Raises:
        InvalidInput: A text is not NAME=VALUE.
    """
    settings: dict[str, Any] = {}
    for name, text in _named(pairs):
        values = [_value(name, part) for part in text.split(",")]
        settings[name] = values if len(values) > 1 else values[0]
    return settings


def _named(pairs: Sequence[str]) -> Iterator[tuple[str, str]]:
    for pair in pairs:
        name, _, text = pair.partition("=")
        if not name or not text:
            raise InvalidInput(f"--set {pair!r}: NAME=VALUE is needed, like sm_split=100/32")
        yield name, text


def _value(name: str, text: str) -> Any:
    usual = {item.name: item.default for item in fields(Settings)}.get(name)
    if not isinstance(usual, int | float):
        return text
    try:
        return float(text)
    except ValueError:
        return text  # the setting's own check tells what is possible
