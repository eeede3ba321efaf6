"""The `voxserve` command: one module of `voxserve.commands` per subcommand."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

# Each module has `HELP`, `configure(parser)` and `run(args) -> exit code`, and imports lightly.
COMMANDS = ("say", "lab", "models", "bench", "check", "simulate", "plan", "profile")

USAGE_ERROR = 2
INTERRUPTED = 130
DESCRIPTION = "Speech language model serving that you can see, hear and steer."
EXAMPLES = """\
start here:
  voxserve lab                              guided notebooks in JupyterLab
  voxserve say "Hello there." -o hello.wav  speech into a file
  voxserve say "Hello there." --play        speech from the speakers
"""


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
        prog="voxserve",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name in COMMANDS:
        module = _module(name)
        command = subparsers.add_parser(name, help=module.HELP, description=module.HELP)
        module.configure(command)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code: 0 done, 2 for what the user can mend."""
    try:
        _open_closed_streams()
        parser = build_parser()
        return _run(parser, parser.parse_args(argv))
    except BrokenPipeError:
        # The reader of a pipe has left; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:  # also while the commands are imported
        print("voxserve: interrupted", file=sys.stderr)
        return INTERRUPTED


def _run(parser: argparse.ArgumentParser, args: argparse.Namespace) -> int:
    from voxserve.core.errors import InvalidInput, VoxserveError

    if args.version:
        from voxserve import __version__

        print(f"voxserve {__version__}")
        return 0
    if args.command is None:
        parser.print_help()
        return 0
    try:
        # A path would take "" for the current folder, and a test for presence for nothing.
        if empty := [name for name, value in vars(args).items() if value == ""]:
            raise InvalidInput(f"--{empty[0].replace('_', '-')} is empty; leave it out")
        return _module(args.command).run(args)
    except BrokenPipeError:
        raise
    except (VoxserveError, OSError) as error:
        print(f"voxserve {args.command}: {_one_line(error)}", file=sys.stderr)
        return USAGE_ERROR


def _open_closed_streams() -> None:
    """Standard streams that the caller closed, which Python leaves as None, hold nothing.

    Standard output stays None: a command whose result goes there must refuse, not lose it.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")


def _module(name: str):
    return import_module(f"voxserve.commands.{name}")


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split())
