"""A nap leaves the switch interval as acting needs it."""

from __future__ import annotations

import sys

import pytest

from voxserve.runtime import nap as module


def test_the_interval_is_short_asleep_and_long_awake(monkeypatch):
    seen: list[float] = []
    monkeypatch.setattr(module.time, "sleep", lambda _: seen.append(sys.getswitchinterval()))
    before_s = sys.getswitchinterval()
    try:
        module.nap(0.001)
        awake_s = sys.getswitchinterval()
    finally:
        sys.setswitchinterval(before_s)
    assert seen == [pytest.approx(module.WAITING_S)]
    assert awake_s == pytest.approx(module.ACTING_S)
