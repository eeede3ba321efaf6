"""`python -m voxserve` is the `voxserve` command."""

from __future__ import annotations

import sys

from voxserve.cli import main

if __name__ == "__main__":
    sys.exit(main())
