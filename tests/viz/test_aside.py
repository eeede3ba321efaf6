"""A task in a process of its own, which can be cancelled at any time."""

from __future__ import annotations

import os
import threading

import pytest

from voxserve.core.errors import VoxserveError
from voxserve.viz.aside import Aside, Send


class Echo:
    """Sends its items back."""

    def work(self, items: list[bytes], send: Send) -> None:
        for item in items:
            send("item", item)


def test_a_task_that_is_cancelled_before_it_took_its_items_says_so() -> None:
    aside = Aside(Echo(), [bytes(1000)] * 20_000)  # more than a pipe holds
    timer = threading.Timer(0.05, aside.cancel)
    timer.start()
    with pytest.raises(VoxserveError, match="another one took its place"):
        list(aside.messages())
    timer.join()
    assert aside._process is not None
    assert aside._process.returncode is not None


def test_ctrl_c_is_not_for_the_task() -> None:
    aside = Aside(Echo(), [b"x"])
    for _ in aside.messages():
        assert aside._process is not None
        assert os.getpgid(aside._process.pid) != os.getpgrp()
