"""Matrix products that give a row the same bits whatever else is in the batch.

Sampling turns the last bit of a logit into another token once in a while, and the last bit of a
pitch adds up over a stream. So "same text, same seed, same audio, alone or in any batch" needs
products whose rows do not depend on the batch. Libraries choose kernels by the number of rows and
treat a tile's last rows differently (AVX2 kernels: wherever 1, 2 or 3 rows are left over after
tiles of 6; AVX-512 ones: a single row). `StableRows` finds the row counts that agree on this
machine; batches are padded to one of them, larger ones cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

_REFERENCE_ROWS = 16
_PROBED = (*range(1, 25), 30, 36, 40, 48, 60, 64, 72, 80, 96)


class StableRows:
    """Row counts at which `x @ w` gives every row the bits it has at 16 rows."""

    def __init__(self, matrices: Iterable[torch.Tensor]) -> None:
        """Probes this machine's products.

        Args:
            matrices: [in, out] matrices; one of each shape is tried.
        """
        shapes = {tuple(matrix.shape): matrix for matrix in matrices}
        agreeing = list(_PROBED)
        for matrix in shapes.values():
            agreeing = _agreeing(matrix, agreeing)
        # No common size: rows then run one by one.
        self.sizes = tuple(agreeing) if len(agreeing) > 1 else (1,)
        self._known = frozenset(self.sizes)

    def product(
        self, bias: torch.Tensor | None, x: torch.Tensor, weight: torch.Tensor
    ) -> torch.Tensor:
        """`x @ weight + bias`, in stable tiles.

        Args:
            bias: [out] or None.
            x: [rows, in].
            weight: [in, out].

        Returns:
            [rows, out].
        """
        rows = len(x)
        if rows in self._known:
            return _multiply(bias, x, weight)
        tiles = [x[i : i + self.sizes[-1]] for i in range(0, rows, self.sizes[-1])]
        return torch.cat([_multiply(bias, self._padded(t), weight)[: len(t)] for t in tiles])

    def _padded(self, x: torch.Tensor) -> torch.Tensor:
        missing = fitting(len(x), self.sizes) - len(x)
        return torch.cat([x, x[-1:].expand(missing, -1)]) if missing else x


def fitting(rows: int, sizes: Sequence[int]) -> int:
    """Smallest of the ascending sizes that holds `rows`."""
    return next(n for n in sizes if n >= rows)


def groups(rows: Sequence[int], sizes: Sequence[int]) -> list[list[int]]:
    """Cuts rows into groups of stable size, each filled up by repeating its last row.

    Args:
        rows: What stands for a row, here slots.
        sizes: Ascending stable sizes.

    Returns:
        Groups whose lengths are in `sizes`; repeats come after the real rows.
    """
    largest = sizes[-1]
    cut = [list(rows[i : i + largest]) for i in range(0, len(rows), largest)]
    for group in cut:
        group.extend(group[-1:] * (fitting(len(group), sizes) - len(group)))
    return cut


def _multiply(bias: torch.Tensor | None, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.mm(x, weight) if bias is None else torch.addmm(bias, x, weight)


def _agreeing(weight: torch.Tensor, candidates: Sequence[int]) -> list[int]:
    generator = torch.Generator().manual_seed(0)
    row = torch.randn(1, weight.shape[0], generator=generator)
    expected = torch.mm(row.repeat(_REFERENCE_ROWS, 1), weight)[:1]
    same = row.repeat(_PROBED[-1], 1)
    kept = []
    for rows in candidates:
        result = torch.mm(same[:rows], weight)
        if torch.equal(result, expected.expand_as(result)):
            kept.append(rows)
    return kept
