"""One JupyterLab for all browser tests, a Chromium for each file, a fresh page for each test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browser import lab

playwright = pytest.importorskip("playwright.sync_api")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)
            if lab.chromium() is None:
                item.add_marker(pytest.mark.skip(reason="needs Chromium or Chrome on the path"))


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lab")
    (path / "notebooks").mkdir()
    return path


@pytest.fixture(scope="session")
def port(folder: Path) -> Iterator[int]:
    with lab.jupyterlab(folder, folder / "notebooks") as port:
        yield port


@pytest.fixture(scope="module")  # while it lives, no test can run an event loop of its own
def driver() -> Iterator[lab.Playwright]:
    with playwright.sync_playwright() as driver:
        yield driver


@pytest.fixture(scope="module")
def browser(
    driver: lab.Playwright, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[lab.BrowserContext]:
    context = lab.launch(driver, tmp_path_factory.mktemp("browser"))
    yield context
    context.close()


@pytest.fixture
def page(browser: lab.BrowserContext) -> Iterator[lab.Page]:
    page = lab.new_page(browser)
    yield page
    page.close()
    assert not page.problems, page.problems  # type: ignore[attr-defined]


@pytest.fixture
def notebook(folder: Path) -> Callable[[str, list[str]], str]:
    """Writes a notebook of code cells and returns its name."""

    def write(name: str, cells: list[str]) -> str:
        return lab.write_notebook(folder / "notebooks", name, cells)

    return write


@pytest.fixture(scope="session")
def shots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots go: $VOXSERVE_SHOTS, or a temporary folder."""
    path = Path(os.environ.get("VOXSERVE_SHOTS") or tmp_path_factory.mktemp("shots"))
    path.mkdir(parents=True, exist_ok=True)
    return path
