"""Copies the shipped notebooks into a user's folder without ever losing an edit."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from voxserve.core.errors import DeviceUnavailable, InvalidInput

# What was copied, as it was then: tells an edited notebook from an old one.
RECORD = ".voxserve-notebooks.json"
_PACKAGE = Path(__file__).resolve().parents[1]
_LEFT_OUT = {"__pycache__", ".ipynb_checkpoints"}


@dataclass(slots=True)
class Copied:
    """What happened to each file, by name relative to the folder.

    Attributes:
        written: New, or unedited and replaced by a newer version.
        kept: The user's, or already the newest.
        set_aside: The user's file was edited and a newer version exists: (file, new file).
    """

    written: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    set_aside: list[tuple[str, str]] = field(default_factory=list)


def shipped_folder() -> Path:
    """Where this installation keeps the notebooks: in the package, or beside it in a checkout.

    Raises:
        DeviceUnavailable: They are missing.
    """
    for folder in (_PACKAGE / "notebooks", _PACKAGE.parent / "notebooks"):
        if any(folder.glob("*.ipynb")):
            return folder
    raise DeviceUnavailable("this installation has no notebooks; install voxserve again")


def copy_notebooks(folder: Path, shipped: Path | None = None) -> Copied:
    """Brings `folder` up to date with the shipped notebooks.

    A file the user edited is never overwritten: when its shipped version has changed since it was
    copied, the new one is written beside it as `name.new.ipynb`.

    Args:
        folder: Created if need be.
        shipped: Taken from this installation if not given.

    Raises:
        InvalidInput: The folder cannot be made or written.
    """
    shipped = shipped or shipped_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _copy(folder, shipped)
    except OSError as error:
        raise InvalidInput(f"{error.filename or folder}: {error.strerror or error}") from error


def _copy(folder: Path, shipped: Path) -> Copied:
    record = _read_record(folder)
    copied = Copied()
    for source in _files(shipped):
        name = source.relative_to(shipped).as_posix()
        target, new = folder / name, _digest(source)
        old = _digest(target) if target.exists() else None
        if old is None or (old == record.get(name) and old != new):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            copied.written.append(name)
        elif old == new or record.get(name) == new:
            copied.kept.append(name)
        else:
            aside = _aside(target, folder, record)
            shutil.copyfile(source, aside)
            record[aside.relative_to(folder).as_posix()] = new
            copied.set_aside.append((name, aside.relative_to(folder).as_posix()))
        record[name] = new
    (folder / RECORD).write_text(json.dumps(record, indent=1), encoding="utf-8")
    return copied


def _aside(target: Path, folder: Path, record: dict[str, str]) -> Path:
    """Where a new version goes beside an edited one: over an older one only if that is unedited."""
    for number in count(1):
        aside = target.with_name(f"{target.stem}.new{number if number > 1 else ''}{target.suffix}")
        known = record.get(aside.relative_to(folder).as_posix())
        if not aside.exists() or _digest(aside) == known:
            return aside
    raise AssertionError("counting ended")


def _files(shipped: Path) -> Iterator[Path]:
    for path in sorted(shipped.rglob("*")):
        if path.is_file() and not _LEFT_OUT & set(path.parts):
            yield path


def _read_record(folder: Path) -> dict[str, str]:
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
