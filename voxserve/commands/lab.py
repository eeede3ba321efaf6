"""`voxserve lab`: the guided notebooks, copied next to the user and opened in JupyterLab."""

from __future__ import annotations

import argparse
import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path

from voxserve.commands.notebooks import Copied, copy_notebooks
from voxserve.core.errors import DeviceUnavailable, InvalidInput

HELP = "open the guided notebooks in JupyterLab"
QUICKSTART = "00_quickstart.ipynb"
DEFAULT_FOLDER = "voxserve-notebooks"
HOST = "127.0.0.1"


def configure(parser: argparse.ArgumentParser) -> None:
    """Folder, port, browser."""
    parser.add_argument(
        "folder",
        nargs="?",
        default=DEFAULT_FOLDER,
        metavar="DIR",
        help=f"where the notebooks are copied to (default: {DEFAULT_FOLDER}); edits are kept",
    )
    parser.add_argument("--port", type=int, help="default: 8888 or the next free one")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")


def run(args: argparse.Namespace) -> int:
    """Copies the notebooks and runs JupyterLab until it ends."""
    if importlib.util.find_spec("jupyterlab") is None:
        raise DeviceUnavailable("JupyterLab is not installed; try: pip install jupyterlab")
    if args.port is not None:
        _check_port(args.port)
    folder = Path(args.folder).resolve()
    _tell(folder, copy_notebooks(folder))
    return _become(_command(folder, args.port, args.no_browser))


def _check_port(port: int) -> None:
    if not 0 < port < 65536:
        raise InvalidInput(f"port {port} is outside 1 to 65535")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise InvalidInput(
                f"port {port} cannot be used ({error.strerror}); choose another with --port"
            ) from None


def _become(command: list[str]) -> int:
    """Runs the command in this process's place, so that signals reach it directly."""
    if sys.platform == "win32":  # there, exec would detach from the terminal
        return subprocess.call(command)
    sys.stderr.flush()
    os.execv(command[0], command)


def _command(folder: Path, port: int | None, no_browser: bool) -> list[str]:
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        f"--ServerApp.root_dir={folder}",
        f"--ServerApp.ip={HOST}",
        f"--LabApp.default_url=/lab/tree/{QUICKSTART}",
    ]
    if port is not None:
        command += [f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
    if no_browser:
        command.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")  # usual in containers; the address is local all the same
    return command


def _tell(folder: Path, copied: Copied) -> None:
    print(f"notebooks: {folder}", file=sys.stderr)
    for name in copied.set_aside:
        print(f"  you have edited {name[0]}; the new version is {name[1]}", file=sys.stderr)
