"""Kernels against their references, and the references' own consistency on the CPU."""

from __future__ import annotations

import pytest
import torch

from voxserve.runtime.kernel_parity import ParityCase, run_case, small_cases

CASES = small_cases()


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_kernel_matches_its_reference(case: ParityCase, kernel_device: str) -> None:
    """float32 kernels stay within rounding of float64."""
    torch.backends.cuda.matmul.allow_tf32 = False
    assert run_case(case, kernel_device, torch.float32, seed=1).relative_error < 2e-5


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_reference_in_float32_matches_float64(case: ParityCase) -> None:
    """The CPU path, which is what a machine without a GPU runs."""
    assert run_case(case, "cpu", torch.float32, seed=2).relative_error < 2e-6
