"""Trace records as columns: `pandas.DataFrame(columns(trace, ChunkLife))` and you have a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from enum import Enum
from typing import Any

from voxserve.core.events import Record


def columns(records: Iterable[Record], kind: type[Record]) -> dict[str, list[Any]]:
    """The records of one kind, column by column, in order.

    Args:
        records: A trace or any part of one.
        kind: A record class of `core.events`, for example `ChunkLife` or `LaneSpan`.

    Returns:
        Field name -> values, all of one length: numbers, text (of enumerations too), tuples, and
        None where a record has no value.
    """
    picked = [record for record in records if isinstance(record, kind)]
    return {
        field.name: [_plain(getattr(record, field.name)) for record in picked]
        for field in fields(kind)
    }


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value
