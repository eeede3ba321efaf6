"""Batch sizes at which a matrix product gives a row the same bits wherever it stands.

Sampling turns the last bit of a logit into another token once in a while, so "same text, same
seed, same tokens, alone or in any batch" needs products whose rows do not depend on the batch.
Libraries choose kernels by the number of rows and treat a tile's last rows differently (AVX2
kernels: every size that leaves 1, 2 or 3 rows over after tiles of 6; AVX-512 ones: a single row).
`stable_sizes` finds the sizes that agree on this machine; batches are padded to one of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

_REFERENCE_ROWS = 16
_LARGEST = 24


def stable_sizes(weights: Sequence[torch.Tensor]) -> tuple[int, ...]:
    """Row counts at which every row of `x @ w` equals the same row at 16 rows.

    Args:
        weights: One [in, out] matrix of each shape that is used.

    Returns:
        Ascending sizes up to 24 that agree, and whose double agrees (the depth transformer
        starts with two positions per row); (1,) when there is none, which runs rows one by one.
    """
    probes = [_probe(weight) for weight in weights]
    agreeing = {
        n for n in range(1, 2 * _LARGEST + 1) if all(_agrees(*probe, n) for probe in probes)
    }
    sizes = [n for n in range(1, _LARGEST + 1) if n in agreeing and 2 * n in agreeing]
    return tuple(sizes) or (1,)


def _probe(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    row = torch.randn(1, weight.shape[0], generator=generator)
    return row, weight, torch.mm(row.repeat(_REFERENCE_ROWS, 1), weight)[:1]


def _agrees(row: torch.Tensor, weight: torch.Tensor, expected: torch.Tensor, rows: int) -> bool:
    result = torch.mm(row.repeat(rows, 1), weight)
    return torch.equal(result, expected.expand_as(result))


def groups(rows: Sequence[int], sizes: Sequence[int]) -> list[list[int]]:
    """Cuts rows into groups of stable size, each filled up by repeating its last row.

    Args:
        rows: Anything hashable to repeat, here slots.
        sizes: From `stable_sizes`.

    Returns:
        Groups whose lengths are in `sizes`; repeats come after the real rows.
    """
    largest = sizes[-1]
    cut = [list(rows[i : i + largest]) for i in range(0, len(rows), largest)]
    for group in cut:
        size = next(n for n in sizes if n >= len(group))
        group.extend(group[-1:] * (size - len(group)))
    return cut
