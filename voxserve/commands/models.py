"""`voxserve models`: what can be served."""

from __future__ import annotations

import argparse

HELP = "list the models that can be served"


def configure(parser: argparse.ArgumentParser) -> None:
    """No arguments."""


def run(args: argparse.Namespace) -> int:
    """Prints one line per model."""
    from voxserve.models.registry import entries

    width = max(len(entry.name) for entry in entries())
    for entry in entries():
        weights = "bundled" if entry.bundled else "weights by path or repo id"
        print(f"{entry.name:{width}}  {entry.summary} ({weights})")
    return 0
