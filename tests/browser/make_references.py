"""Writes the reference outputs into a notebook: text as text, everything else as small pictures.

Run it on a quiet machine after changing a notebook:
    python tests/browser/make_references.py notebooks/00_quickstart.ipynb
"""

from __future__ import annotations

import base64
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from browser import lab

ALL_RUN = """() => {
  const panel = window.jupyterapp.shell.currentWidget;
  const code = panel.content.widgets.filter((cell) => cell.model.type === "code");
  return code.every((cell) => cell.model.executionCount && cell.model.executionState === "idle");
}"""
TEXTUAL = {"text/plain"}
ALT = "Picture of this output in the reference run; run the cell for the live one."
LIVELY = "workbench.rate.value = 0.3 if DEVICE == 'cpu' else 20.0"  # lanes at work in the picture


def make(path: Path) -> None:
    """Runs all cells but the last, which frees the engine, and keeps what they showed."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "notebooks").mkdir()
        trimmed = nbformat.from_dict({**notebook, "cells": notebook.cells[:-1]})
        nbformat.write(trimmed, folder / "notebooks" / path.name)
        with lab.jupyterlab(folder, folder / "notebooks") as port, sync_playwright() as driver:
            page = lab.new_page(lab.launch(driver, folder))
            _fill(page, port, path.name, notebook)
    notebook.metadata.pop("widgets", None)
    nbformat.write(notebook, path)


def _fill(page: lab.Page, port: int, name: str, notebook: Any) -> None:
    lab.open_notebook(page, port, name)
    lab.command(page, "notebook:run-all-cells")
    page.wait_for_function(ALL_RUN, timeout=300_000)
    page.wait_for_timeout(3000)
    for index, cell in enumerate(notebook.cells[:-1]):
        if cell.cell_type == "code":
            cell.outputs = _outputs(page, index)


def _outputs(page: lab.Page, index: int) -> list[Any]:
    """The outputs of one cell as they stay readable without a kernel."""
    saved = page.evaluate(
        """(index) => {
          const cells = window.jupyterapp.shell.currentWidget.content.widgets;
          return cells[index].model.sharedModel.outputs ?? [];
        }""",
        index,
    )
    kept: list[Any] = []
    for place, output in enumerate(saved):
        assert output["output_type"] != "error", f"cell {index}: {output['evalue']}"
        if output["output_type"] == "stream":
            kept.append(nbformat.v4.new_output("stream", name="stdout", text=output["text"]))
        elif set(output["data"]) <= TEXTUAL:
            kept.append(nbformat.v4.new_output("display_data", {"text/plain": _plain(output)}))
        else:
            data = {"text/plain": ALT, "image/png": _picture(page, index, place)}
            kept.append(nbformat.v4.new_output("display_data", data))
    return kept


def _picture(page: lab.Page, index: int, place: int) -> str:
    area = page.locator(".jp-Notebook .jp-Cell").nth(index).locator(".jp-OutputArea-output")
    area = area.nth(place)
    area.scroll_into_view_if_needed()
    speak = area.get_by_role("button", name="Speak")
    if speak.count():
        lab.evaluate(page, "0", LIVELY)
        page.wait_for_timeout(9000)
        speak.click()
        page.wait_for_timeout(6000)
    return base64.b64encode(area.screenshot()).decode()


def _plain(output: dict[str, Any]) -> str:
    text = output["data"].get("text/plain", "")
    return text if isinstance(text, str) else "".join(text)


if __name__ == "__main__":
    if shutil.which("chromium") is None:
        sys.exit("needs Chromium")
    for argument in sys.argv[1:]:
        make(Path(argument))
