"""Files that results go to: checked before any work is done, and named when writing fails."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from voxserve.core.errors import InvalidInput


def check_writable(path: str | Path, suffix: str = "") -> None:
    """Looks at the name, the folder and the rights; writes nothing.

    Args:
        path: Of a file.
        suffix: The only one its name may have, like ".wav"; a name without any is fine.

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
    if path.suffix and not path.name.lower().endswith(suffix):
        raise InvalidInput(f"{path}: only {suffix} files are written; end its name in {suffix}")


@contextmanager
def naming(path: str | Path) -> Generator[None]:
    """Lets errors of the system tell which file they are about; a full disk's do not."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise
