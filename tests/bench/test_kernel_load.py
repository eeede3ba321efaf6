"""Capacity beside a busy cell, in a real ipykernel with a simulated GPU."""

from __future__ import annotations

import pytest

from voxserve.bench.kernel_load import measure
from voxserve.core.errors import EngineFailed

OPTIONS = {
    "model": "vox-tiny",
    "device": "sim:h200",
    "weights": None,
    "settings": {"chunk_ramp": "10"},
    "workload": "seedtts",
    "start": 4.0,
    "seconds": 2.0,
    "most_runs": 1,
}


@pytest.mark.notebook
def test_both_searches_run_in_the_kernel():
    found = measure(OPTIONS)
    assert list(found["quiet"]["attainment"]) == ["4.0"]
    assert len(found["busy"]["attainment"]) == 1
    assert 0.0 <= found["kept_share"]


@pytest.mark.notebook
def test_an_error_in_the_kernel_is_told():
    with pytest.raises(EngineFailed, match="no model 'nothing'"):
        measure({**OPTIONS, "model": "nothing"})
