"""What a measurement was made on and with: the head of a results file."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]


def cpu_name() -> str:
    """The processor and the cores this process may use, such as "AMD EPYC 9B14, 2 cores"."""
    name = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    except OSError:
        pass  # not Linux: the platform's own word is all there is
    return f"{name}, {num_cores()} cores"


def device_name(device: str) -> str:
    """The GPU of a "cuda" device, the processor otherwise."""
    if not device.startswith("cuda"):
        return cpu_name()
    import torch

    return torch.cuda.get_device_name(torch.device(device))


def num_cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def versions(*packages: str) -> dict[str, str]:
    """Python's version and those of the packages that are installed."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def revision() -> dict[str, Any]:
    """Git revision and whether files differ from it; empty outside a checkout."""
    head = _git("rev-parse", "--short=12", "HEAD")
    if head is None:
        return {}
    return {"git_revision": head, "git_dirty": bool(_git("status", "--porcelain", "-uno"))}


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *words], cwd=_ROOT, capture_output=True, text=True, check=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
