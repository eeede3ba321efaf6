"""Packs a folder of measured runs into few files, and unpacks such files to go on from them."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Iterable
from pathlib import Path

from voxserve.core.errors import InvalidInput

TRACES = "traces"
_TRACE_ARCHIVE = "traces.tar"


def unpack(sources: Iterable[Path], store: Path, *, with_traces: bool = False) -> None:
    """Brings runs of earlier sessions into a store: archives, or folders that hold some.

    Args:
        sources: Later ones replace what earlier ones held.
        store: Made when it isn't there.
        with_traces: Also the traces in the folders, which going on does not need.

    Raises:
        InvalidInput: A source is not there, or not an archive of runs.
    """
    store.mkdir(parents=True, exist_ok=True)
    for source in sources:
        if source.is_dir():
            archives = sorted(source.rglob("*.tar"))
            wanted = [path for path in archives if with_traces or path.name != _TRACE_ARCHIVE]
            if archives:
                unpack(wanted, store)
            else:
                shutil.copytree(source, store, dirs_exist_ok=True)
            continue
        try:
            with tarfile.open(source) as archive:
                archive.extractall(store, filter="data")
        except (OSError, tarfile.TarError) as error:
            raise InvalidInput(f"{source}: not an archive of runs ({error})") from None


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
