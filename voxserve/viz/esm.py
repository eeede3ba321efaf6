"""Joins plain JavaScript files into the single module an anywidget takes: no bundler, no build."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files

_LOCAL_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([\w.]+)";\n', re.MULTILINE)


def text(name: str) -> str:
    """Source of one file in `static/`."""
    return files("voxserve.viz").joinpath("static", name).read_text(encoding="utf-8")


@cache
def module(name: str) -> str:
    """One file and what it imports from beside it, each once and before its users."""
    seen: dict[str, str] = {}
    _collect(name, seen)
    return "\n".join(seen.values())


@cache
def player_module() -> str:
    """The player, with the audio thread's own module inside as a string."""
    return module("player.js").replace('"__WORKLET__"', json.dumps(module("worklet.js")))


def _collect(name: str, seen: dict[str, str]) -> None:
    if name in seen:
        return
    source = text(name)
    for imported in _LOCAL_IMPORT.findall(source):
        _collect(imported, seen)
    seen[name] = _LOCAL_IMPORT.sub("", source)
