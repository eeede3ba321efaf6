"""Several streams at once, and a browser that plays nothing before a click."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browser import lab

Write = Callable[[str, list[str]], str]
CELL = """
import sys
sys.path.insert(0, {tests!r})
import numpy as np
from viz.fakes import FakeEngine, tone
from voxserve import Workbench
engine = FakeEngine()
workbench = Workbench(engine, tap=True)
workbench
"""
TEXT = "'one two three four five six seven eight'"
ALL_HEARD = "all(h.is_done for h in workbench.player.heard.values())"
# The tap is the sum up to the stream: with the first one muted, the second's samples alone.
SECOND_ALONE = "bool(np.array_equal(workbench.player.heard[2].tap * 32768, tone(2, 0, 32 * 1920)))"
NUM_PLAYED = "[h.num_played_samples for h in workbench.player.heard.values()]"


def _cell() -> str:
    return CELL.format(tests=str(lab.ROOT / "tests"))


def test_streams_are_mixed_by_keyboard_and_every_view_has_the_same_mix(
    page: lab.Page, port: int, notebook: Write, shots: Path
) -> None:
    page.add_init_script(lab.COUNT_CONTEXTS)
    lab.open_workbench(page, port, notebook("streams", [_cell()]))
    # Muted from the start: the mix is set before the first sample.
    lab.evaluate(page, "0", f"workbench.player.muted = [1]; workbench.speak({TEXT})")
    lab.evaluate(page, "0", f"workbench.speak({TEXT})")
    lab.until(page, "[number for number, _ in workbench.player.streams] == [1, 2]")
    page.get_by_role("button", name="Mute").first.focus()  # the newest stream's
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.ariaLabel").startswith("Solo")
    page.keyboard.press("Space")
    lab.until(page, "workbench.player.solo == [2]")
    lab.command(page, "notebook:create-output-view")
    page.wait_for_function("document.querySelectorAll('.vs-stream').length === 4")
    pressed = "button[aria-pressed='true']"
    other = page.locator(".vs-player").nth(1)
    names = [b.get_attribute("aria-label") for b in other.locator(pressed).all()]
    assert [name.split()[0] for name in names if name] == ["Solo", "Mute"]
    page.screenshot(path=shots / "streams.png")
    lab.until(page, ALL_HEARD)
    assert lab.evaluate(page, SECOND_ALONE)
    assert lab.evaluate(page, "workbench.player.solo") == []
    assert page.evaluate("window.audioContexts") == 1
    # Muted or not, both players told the scheduler how much they hold, while it had work to do.
    assert lab.evaluate(page, "sorted({rid for rid, _ in engine.reports})") == [1, 2]
    told = lab.evaluate(page, "len(engine.reports)")
    page.wait_for_timeout(500)
    assert lab.evaluate(page, "len(engine.reports)") == told


@pytest.fixture
def strict_page(driver: lab.Playwright, tmp_path: Path) -> Iterator[lab.Page]:
    """Of a browser that plays nothing before a user's gesture, as Chrome on a desktop."""
    # (`user-gesture-required` binds only frames of other origins where sound is made by scripts.)
    flags = ["--autoplay-policy=document-user-activation-required"]
    context = lab.launch(driver, tmp_path, flags)
    yield lab.new_page(context)
    context.close()


def test_sound_waits_for_a_click_and_then_starts_from_its_beginning(
    strict_page: lab.Page, port: int, notebook: Write, shots: Path
) -> None:
    page = lab.Untouched(strict_page, port, notebook("click", [_cell()]))
    page.js("void window.jupyterapp.commands.execute('notebook:run-all-cells')")
    page.wait("document.querySelector('.vs-tile') !== null")
    page.js("document.querySelector('.vs-workbench').scrollIntoView()")
    page.kernel("0", f"workbench.speak({TEXT})")
    page.wait("/Click to hear: [12]/.test(document.querySelector('.vs-enable').textContent)")
    assert page.kernel("workbench.player.audio_state") == "suspended"
    assert page.kernel("[h.played_s for h in workbench.player.heard.values()]") == [0.0]
    assert page.kernel("engine.reports") == []
    strict_page.screenshot(path=shots / "click_to_hear.png")
    page.click(".vs-enable")
    page.wait("document.querySelector('.vs-enable').hidden")
    page.wait("/played/.test(document.querySelector('.vs-stream-words').textContent)", 20)
    assert page.kernel("workbench.player.audio_state") == "running"
    assert page.kernel(NUM_PLAYED) == [32 * 1920]
    exact = "bool(np.array_equal(workbench.player.heard[1].tap * 32768, tone(1, 0, 32 * 1920)))"
    assert page.kernel(exact)
