"""Small device tensors that kernels keep between launches, owned by whoever captures the launches.

A captured graph reads them for as long as it lives, and no longer: an owner that is gone takes them
along. Without an owner they are the process's.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager
from contextvars import ContextVar

import torch

Kept = dict[Hashable, torch.Tensor]
_owner: ContextVar[Kept | None] = ContextVar("owner of kept tensors", default=None)
_of_process: Kept = {}


@contextmanager
def keeping(owner: Kept) -> Generator[None]:
    """Makes `owner` hold what kernels keep, on this thread, until the block ends."""
    before = _owner.set(owner)
    try:
        yield
    finally:
        _owner.reset(before)


def kept(key: Hashable, make: Callable[[], torch.Tensor]) -> torch.Tensor:
    """The tensor of that name, made when it is first asked for.

    Nothing may be copied to a device while a graph is captured: the warm-up run makes it.
    """
    owner = _owner.get()
    owner = _of_process if owner is None else owner
    if key not in owner:
        owner[key] = make()
    return owner[key]
