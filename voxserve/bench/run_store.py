"""Packs a folder of measured runs into few files, and unpacks such files to go on from them."""

from __future__ import annotations

import json
import shutil
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from voxserve.core.errors import InvalidInput

TRACES = "traces"
_TRACE_ARCHIVE = "traces.tar"
_DESCRIPTION = "configuration.json"


def unpack(sources: Iterable[Path], store: Path, *, with_traces: bool = False) -> None:
    """Brings runs of earlier sessions into a store: archives, or folders that hold some.

    Args:
        sources: Later ones replace what earlier ones held.
        store: Made when it isn't there.
        with_traces: Also the traces in the folders, which going on does not need.

    Raises:
        InvalidInput: A source is not there, is not an archive of runs, or holds runs under other
            settings than the store: they must not be pooled.
    """
    store.mkdir(parents=True, exist_ok=True)
    for source in sources:
        archives = sorted(source.rglob("*.tar")) if source.is_dir() else [source]
        if not archives:
            _merge(source, source, store)
        for path in archives:
            if source.is_dir() and path.name == _TRACE_ARCHIVE and not with_traces:
                continue
            with tempfile.TemporaryDirectory() as place:
                try:
                    with tarfile.open(path) as archive:
                        archive.extractall(place, filter="data")
                except (OSError, tarfile.TarError) as error:
                    raise InvalidInput(f"{path}: not an archive of runs ({error})") from None
                _merge(path, Path(place), store)


def _merge(source: Path, folder: Path, store: Path) -> None:
    for described in folder.glob(f"*/{_DESCRIPTION}"):
        there = store / described.relative_to(folder)
        if there.exists() and _settings(there) != _settings(described):
            name = described.parent.name
            raise InvalidInput(
                f"{source}: {name} was measured with {_settings(described)}, the runs before it "
                f"with {_settings(there)}; take them one after the other"
            )
    shutil.copytree(folder, store, dirs_exist_ok=True)


def _settings(described: Path) -> Any:
    return json.loads(described.read_text(encoding="utf-8")).get("settings")


def pack(store: Path, output: Path) -> list[Path]:
    """Writes `runs.tar` and `traces.tar`; each appears complete or not at all.

    Files inside are compressed already.
    """
    output.mkdir(parents=True, exist_ok=True)
    files = sorted(path for path in store.rglob("*") if path.is_file())
    traces = [path for path in files if path.relative_to(store).parts[0] == TRACES]
    runs = [path for path in files if path not in traces and path.suffix != ".part"]
    return [
        _archive(store, runs, output / "runs.tar"),
        _archive(store, traces, output / _TRACE_ARCHIVE),
    ]


def _archive(store: Path, files: Iterable[Path], path: Path) -> Path:
    part = path.with_suffix(".part")
    with tarfile.open(part, "w") as archive:
        for file in files:
            archive.add(file, str(file.relative_to(store)))
    part.replace(path)
    return path
