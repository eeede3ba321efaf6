"""Page-locked host buffers, used again and again, for what goes to a device and comes back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class PinnedBuffer:
    """One buffer as the device's copies see it and as the host does: the same memory.

    Attributes:
        tensor, array: [size], the same elements.
        address: Of the first.
    """

    tensor: torch.Tensor
    array: NDArray[Any]
    address: int

    @classmethod
    def made(cls, size: int, dtype: torch.dtype, is_pinned: bool) -> PinnedBuffer:
        """A buffer of zeros."""
        tensor = torch.zeros(size, dtype=dtype, pin_memory=is_pinned)
        return cls(tensor, tensor.numpy(), tensor.data_ptr())


class PinnedPool:
    """Buffers of one size and type.

    Args:
        size: Elements of each buffer.
        dtype: Of the elements.
        is_pinned: Page-locked, so that copies are asynchronous.
        count: Buffers made at once; more are made when all are in use.
    """

    def __init__(self, size: int, dtype: torch.dtype, is_pinned: bool, count: int = 2) -> None:
        self._size, self._dtype, self._is_pinned = size, dtype, is_pinned
        self.num_buffers = 0
        self._free = [self._made() for _ in range(count)]

    def take(self) -> PinnedBuffer:
        """A buffer nobody uses; its content is what it was."""
        return self._free.pop() if self._free else self._made()

    def give_back(self, buffer: PinnedBuffer) -> None:
        """Returns a buffer that no copy in flight uses."""
        self._free.append(buffer)

    @property
    def num_free(self) -> int:
        """Buffers nobody uses."""
        return len(self._free)

    def _made(self) -> PinnedBuffer:
        self.num_buffers += 1
        return PinnedBuffer.made(self._size, self._dtype, self._is_pinned)
