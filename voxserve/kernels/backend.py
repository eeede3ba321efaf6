"""Chooses between a Triton kernel and its plain-torch reference; stands in for a missing Triton.

Every op of this room has both. Tensors on a CPU, or any tensor while `VOXSERVE_REFERENCE=1`,
take the reference; tensors on an NVIDIA GPU take the kernel. `TRITON_INTERPRET=1` sends CPU
tensors through the kernel's source in Triton's interpreter, which is how kernel logic is tested
without a GPU.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET", "0") == "1"

HAS_TRITON = importlib.util.find_spec("triton") is not None

if TYPE_CHECKING:
    # Triton has no types: kernels are opaque callables to the type checker.

    class _Language(type):
        def __getattr__(cls, name: str) -> Any: ...

    class tl(metaclass=_Language):  # noqa: N801
        constexpr = Any

    triton: Any = None
    TensorDescriptor: Any = None
elif HAS_TRITON:
    import triton
    import triton.language as tl
    from triton.tools.tensor_descriptor import TensorDescriptor
else:

    class _NoTriton:
        """Lets kernel sources be imported (never launched) where Triton is not installed."""

        constexpr = Any

        def jit(self, function: Any = None, **_: Any) -> Any:
            return function if function is not None else self.jit

    triton = tl = TensorDescriptor = _NoTriton()

_forced = False


@contextmanager
def forced_reference() -> Iterator[None]:
    """Sends every op inside the block to its reference; for comparisons."""
    global _forced
    before, _forced = _forced, True
    try:
        yield
    finally:
        _forced = before


def use_reference(x: torch.Tensor) -> bool:
    """Tells whether an op on `x` runs as plain torch rather than as a Triton kernel."""
    if _forced or not HAS_TRITON or os.environ.get("VOXSERVE_REFERENCE", "0") == "1":
        return True
    return not x.is_cuda and not INTERPRETED


def cdiv(a: int, b: int) -> int:
    """Returns `a / b` rounded up."""
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    """Returns the smallest power of two that is at least `n`."""
    return 1 << (max(n, 1) - 1).bit_length()
