"""Finds out before any work is done that a result could be written."""

from __future__ import annotations

import os
from pathlib import Path

from voxserve.core.errors import InvalidInput


def check_writable(path: str | Path) -> None:
    """Looks at the folder and the rights; writes nothing.

    Raises:
        InvalidInput: Nothing can be written there; says why.
    """
    path = Path(path)
    if path.is_dir():
        raise InvalidInput(f"{path} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise InvalidInput(f"{path}: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InvalidInput(f"{path} cannot be written: permission denied")
