"""Who owns the small tensors that kernels keep."""

from __future__ import annotations

import weakref

import torch

from voxserve.kernels.kept import Kept, keeping, kept


def make() -> torch.Tensor:
    return torch.zeros(3)


def test_an_owner_has_its_own_and_takes_them_along():
    first: Kept = {}
    second: Kept = {}
    with keeping(first):
        mine = kept("a", make)
        with keeping(second):
            assert kept("a", make) is not mine
        assert kept("a", make) is mine
    assert kept("a", make) is kept("a", make) is not mine
    reference = weakref.ref(mine)
    del mine
    first.clear()
    assert reference() is None
    assert list(second) == ["a"]
