"""Numbers that no view can show are told to whoever passed them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from viz.fakes import FakeEngine

from voxserve.core.errors import InvalidInput
from voxserve.viz.workbench import Workbench


@pytest.fixture
def bench() -> Iterator[Workbench]:
    made = Workbench(FakeEngine())
    yield made
    made.close()


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf"), 1e9, "x", None, True])
def test_a_window_that_cannot_be_shown_is_told(bench: Workbench, wrong: Any) -> None:
    for show in (bench.figure, bench.png, bench.what_if):
        with pytest.raises(InvalidInput, match="window"):
            show(wrong)


@pytest.mark.parametrize("seconds", [1e-3, np.float32(0.5), 3600])
def test_every_window_that_is_taken_can_be_drawn(bench: Workbench, seconds: float) -> None:
    bench.speak("one")
    assert bench.figure(seconds).data
    assert bench.png(seconds)[:4] == b"\x89PNG"


@pytest.mark.parametrize("wrong", [-1, 0, float("nan"), "x"])
def test_a_wrong_rate_leaves_the_workbench_that_is_open(bench: Workbench, wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="max_rate_rps"):
        Workbench(bench.engine, max_rate_rps=wrong)
    assert not bench._is_closed
