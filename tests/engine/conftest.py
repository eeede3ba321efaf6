"""Engines over the fake model; nothing may be left of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from fake_model import FakeModel
from waiting import assert_no_threads

from voxserve.engine import engine as engine_module
from voxserve.engine.build import Built
from voxserve.engine.engine import Engine
from voxserve.runtime.cpu import CpuExecutor

Maker = Callable[..., Engine]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Maker]:
    """Makes engines over a fake model (`make(model=FakeModel(...), **Engine's)`); stops them."""
    models: dict[str, FakeModel] = {}
    made: list[Engine] = []

    def build(
        model: str, device: str, *, weights: object, clock: object, name: str, **_: object
    ) -> Built:
        fake = models.setdefault(name, FakeModel())
        return Built(CpuExecutor(fake, clock, name), fake)

    def make_engine(model: FakeModel | None = None, name: str = "default", **options) -> Engine:
        if model is not None:
            models[name] = model
        made.append(Engine(name=name, **options))
        return made[-1]

    monkeypatch.setattr(engine_module, "build_executor", build)
    yield make_engine
    for engine in made:
        engine.stop()
    assert_no_threads()
