"""The log of a run: one JSON object per line, with its kind and the seconds since the start.

What is logged is also told, in short, on standard error.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


class RunLog:
    """Appends to a file; a resumed run goes on in the same one."""

    def __init__(self, path: Path) -> None:
        """Makes the file's folder.

        Args:
            path: Of the log, `*.jsonl`.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._began = path, time.monotonic()

    def add(self, kind: str, **values: Any) -> None:
        """Appends one entry and tells its plain values."""
        entry = {"kind": kind, "s": round(time.monotonic() - self._began, 2), **values}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        plain = (f"{key} {value}" for key, value in values.items() if not isinstance(value, dict))
        print(f"{entry['s']:8.1f} s  {kind}: {', '.join(plain)}", file=sys.stderr)  # noqa: T201
