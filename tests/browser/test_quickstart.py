"""The quickstart as a newcomer runs it: real engine, real browser, real sound path."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import nbformat
from browser import lab

QUICKSTART = lab.ROOT / "notebooks" / "00_quickstart.ipynb"
# Remembers what is sent to the player, to compare with what the worklet played.
RECORD = """
import numpy as np
sent = {}
push = workbench.player.push
def record(stream, pcm, **options):
    sent.setdefault(stream, []).append(np.array(pcm))
    push(stream, pcm, **options)
workbench.player.push = record
workbench.player.tap = True
"""
SPOKEN = "int(max(sent)) if sent and workbench.player.heard[max(sent)].is_done else None"
PLAYED_IS_SENT = """bool(np.array_equal(
    workbench.player.heard[max(sent)].tap * 32768, np.concatenate(sent[max(sent)])))"""
CHANGES = """[(c.time_s + time.time() - engine.now_s()) * 1000
    for c in engine.trace if getattr(c, 'name', None) == 'urgency_margin_s']"""


def _copy_without_last_cell(folder: Path) -> str:
    """The last cell frees the engine, which the test still needs."""
    notebook = nbformat.read(QUICKSTART, as_version=4)
    notebook.cells.pop()
    nbformat.write(notebook, folder / "notebooks" / QUICKSTART.name)
    return QUICKSTART.name


def _slider_latencies_ms(page: lab.Page) -> list[float]:
    """From the key press in the browser to the setting in force, by the machine's clock."""
    lab.evaluate(page, "0", "import time; engine.set(urgency_margin_s=0.1)")
    page.wait_for_timeout(500)
    before = len(lab.evaluate(page, CHANGES))
    handle = lab.slider(page, "Margin")
    handle.focus()
    page.evaluate("""() => { window.pressed = [];
      document.addEventListener('keydown', () => window.pressed.push(Date.now()), true) }""")
    for _ in range(7):
        page.keyboard.press("ArrowRight")
        page.wait_for_timeout(400)
    changes = lab.evaluate(page, CHANGES)[before:]
    pressed = page.evaluate("window.pressed")
    assert len(changes) == len(pressed)
    return [applied - key for applied, key in zip(changes, pressed, strict=True)]


def test_quickstart(page: lab.Page, port: int, folder: Path, shots: Path) -> None:
    lab.open_workbench(page, port, _copy_without_last_cell(folder))
    lab.until(page, "len(measured_ms['long']) == 3", 90)
    lab.evaluate(page, "0", RECORD)
    page.evaluate("document.querySelector('.vs-workbench').scrollIntoView()")

    latencies_ms = _slider_latencies_ms(page)
    assert lab.evaluate(page, "round(1000 * engine.settings.urgency_margin_s)") == 170

    page.get_by_role("button", name="Speak").click()
    page.wait_for_timeout(2500)
    page.screenshot(path=shots / "quickstart.png")
    lab.until(page, SPOKEN, 60)
    assert lab.evaluate(page, "workbench.player.audio_mode") == "worklet"
    assert lab.evaluate(page, PLAYED_IS_SENT)
    assert lab.evaluate(page, "sum(map(len, sent[max(sent)]))") > 24000

    figures = {
        "slider_to_setting_ms_median": statistics.median(latencies_ms),
        "slider_to_setting_ms_max": max(latencies_ms),
        "publisher_share_of_core": lab.evaluate(page, "workbench._publisher.share_of_core"),
    }
    (shots / "quickstart.json").write_text(json.dumps(figures, indent=1))
    lab.evaluate(page, "0", "workbench.close(); engine.stop()")
    threads = "[t.name for t in __import__('threading').enumerate() if 'voxserve' in t.name]"
    assert lab.evaluate(page, threads) == []
