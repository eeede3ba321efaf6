"""How a kernel is compared with its reference in float64, on fresh random inputs.

Both sides see the same values, rounded to the kernel's type first: the kernel's own error is what
remains.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from voxserve.kernels.backend import forced_reference

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class ParityCase:
    """One comparison: how to make inputs and what to compute from them.

    build: makes the inputs from a generator; float tensors become the kernel's type, those named
        in `keep` excepted.
    call: runs the op on a dictionary of inputs (which it may change) and returns all results.
    keep: names of float inputs that stay float32.
    """

    name: str
    build: Callable[[torch.Generator], Tensors]
    call: Callable[[Tensors], list[torch.Tensor]]
    keep: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ParityResult:
    """Error of one case: the largest `|out - ref| / |ref|` (norms) over its results."""

    name: str
    relative_error: float


def run_case(
    case: ParityCase, device: torch.device | str, dtype: torch.dtype, seed: int
) -> ParityResult:
    """Runs one case on `device` in `dtype` against float64 on the same device."""
    inputs = case.build(torch.Generator().manual_seed(seed))
    rounded = {
        name: value.to(dtype) if value.is_floating_point() and name not in case.keep else value
        for name, value in inputs.items()
    }
    results = case.call({name: value.clone().to(device) for name, value in rounded.items()})
    exact = {
        name: (value.double() if value.is_floating_point() else value.clone()).to(device)
        for name, value in rounded.items()
    }
    with forced_reference():
        expected = case.call(exact)
    errors = [
        relative_error(result, reference)
        for result, reference in zip(results, expected, strict=True)
    ]
    return ParityResult(case.name, max(errors))


def relative_error(result: torch.Tensor, reference: torch.Tensor) -> float:
    """Returns `|result - reference| / |reference|` (Euclidean norms); NaN counts as infinite."""
    result, reference = result.detach().cpu().double(), reference.cpu().double()
    error = float((result - reference).norm() / reference.norm().clamp(min=1e-30))
    return error if error == error else float("inf")


def normal(gen: torch.Generator, *shape: int, scale: float = 1.0) -> torch.Tensor:
    """Normal values of the given size."""
    return torch.randn(*shape, generator=gen) * scale


def around_one(gen: torch.Generator, *shape: int) -> torch.Tensor:
    """Scales, as norms have them."""
    return 1.0 + 0.2 * torch.randn(*shape, generator=gen)


def poison(*shape: int, like: torch.Tensor) -> torch.Tensor:
    """NaN everywhere: what an op does not write shows."""
    return torch.full(shape, float("nan"), dtype=like.dtype, device=like.device)
