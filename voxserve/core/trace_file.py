"""Saved traces: gzip JSON lines, a header and then one record a line; same records, same bytes.

A line is ``{"type": "LaneSpan", ...the record's fields...}``; the header is
``{"format": "voxserve-trace", "version": 1, "frame_s": ..., "sample_rate_hz": ..., ...}``.
"""

from __future__ import annotations

import gzip
import json
import math
import types
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from voxserve.core import events
from voxserve.core.errors import InvalidInput
from voxserve.core.events import Record

FORMAT = "voxserve-trace"
VERSION = 1
# What decompressing, decoding, parsing or building records of other or damaged bytes ends in.
_DAMAGE = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    EOFError,
    RecursionError,
    zlib.error,
)


@dataclass(frozen=True, slots=True)
class SavedTrace:
    """A trace with what is needed to read it away from its engine.

    Attributes:
        about: Anything else worth knowing (model, device, settings, rate, seed), JSON-ready.
    """

    records: tuple[Record, ...]
    frame_s: float
    sample_rate_hz: int
    about: dict[str, Any] = field(default_factory=dict[str, Any])


def to_bytes(trace: SavedTrace) -> bytes:
    """The uncompressed file."""
    header = {
        "format": FORMAT,
        "version": VERSION,
        "frame_s": trace.frame_s,
        "sample_rate_hz": trace.sample_rate_hz,
        "about": trace.about,
    }
    lines = [json.dumps(header)]
    lines += [json.dumps(_to_json(record)) for record in trace.records]
    return ("\n".join(lines) + "\n").encode()


def save(trace: SavedTrace, path: str | Path) -> None:
    """Writes a trace, compressed."""
    # NOTE: no time stamp and no file name inside, so that equal traces are equal files.
    Path(path).write_bytes(gzip.compress(to_bytes(trace), mtime=0))


def load(path: str | Path) -> SavedTrace:
    """Reads a trace written by `save`.

    Raises:
        InvalidInput: Not a trace file, or unreadable.
    """
    try:
        raw = Path(path).read_bytes()
        if raw[:2] == b"\x1f\x8b":
            raw = gzip.decompress(raw)
        return from_bytes(raw)
    except gzip.BadGzipFile as error:
        raise InvalidInput(f"trace {path}: not a saved trace ({error})") from None
    except OSError as error:
        raise InvalidInput(f"trace {path}: {error.strerror or error}") from None
    except _DAMAGE as error:
        why = f"{type(error).__name__}: {error}"  # the text alone may be a bare number or name
        raise InvalidInput(f"trace {path}: not a saved trace ({why})") from None


def from_bytes(raw: bytes) -> SavedTrace:
    """The trace in an uncompressed file.

    Raises:
        ValueError: Another format or version.
    """
    lines = raw.decode().splitlines()
    if not lines:
        raise ValueError("it is empty")
    header = json.loads(lines[0])
    if header.get("format") != FORMAT or header.get("version") != VERSION:
        raise ValueError(f'the first line is not "format": "{FORMAT}", "version": {VERSION}')
    for name in ("frame_s", "sample_rate_hz"):
        if not 0 < header[name] < math.inf:  # also refuses NaN
            raise ValueError(f"{name} is {header[name]!r}")
    about: dict[str, Any] = header["about"]
    tables = (about, about.get("settings", {}))  # of another type: damage, as below
    if not all(isinstance(table, dict) for table in tables):
        raise ValueError("what it is about, or its settings, are no table")
    records = tuple(_from_json(json.loads(line)) for line in lines[1:])
    return SavedTrace(records, header["frame_s"], header["sample_rate_hz"], about)


def _to_json(record: Record) -> dict[str, Any]:
    names, _ = _layout(type(record))
    row: dict[str, Any] = {"type": type(record).__name__}
    for name in names:
        row[name] = getattr(record, name)
    return row


def _from_json(row: dict[str, Any]) -> Record:
    kind = getattr(events, row.pop("type"))
    _, readers = _layout(kind)
    return kind(**{name: readers[name](value) for name, value in row.items()})


@cache
def _layout(kind: type) -> tuple[tuple[str, ...], dict[str, Callable[[Any], Any]]]:
    """Field names of a record type, and how to read each from JSON."""
    hints = get_type_hints(kind)
    names = tuple(item.name for item in fields(kind))
    return names, {name: _reader(hints[name]) for name in names}


def _reader(hint: Any) -> Callable[[Any], Any]:
    """Turns a JSON value back into the annotated type: enums, tuples and optional ones of them.

    A value of another type is refused: it would end the display that meets it later.
    """
    if get_origin(hint) in (Union, types.UnionType):
        inner = [_reader(part) for part in get_args(hint) if part is not type(None)]
        return lambda value: None if value is None else inner[0](value)
    if get_origin(hint) is tuple:
        item = _reader(get_args(hint)[0])
        values = _exactly(list)
        return lambda value: tuple(item(part) for part in values(value))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint
    return _CHECKS[hint]


def _float(value: Any) -> float:
    if not isinstance(value, float) and type(value) is not int or not math.isfinite(value):
        raise TypeError(f"{value!r} is not a finite number")
    return value


def _exactly(kind: type) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"{value!r} is not of type {kind.__name__}")
        return value

    return check


_CHECKS: dict[Any, Callable[[Any], Any]] = {
    float: _float,
    **{kind: _exactly(kind) for kind in (int, str, bool)},
}
