"""Presets, two tabs, a frozen tab, a stopped engine and a restarted kernel, beside real load."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from browser import lab

Write = Callable[[str, list[str]], str]
CELL = """
import voxserve
engine = voxserve.Engine("vox-tiny", "sim:h200", sm_split="100/32")
engine.set(urgency_margin_s=0.2, background_batch=2)
workbench = voxserve.Workbench(engine, max_rate_rps=20)
workbench
"""
TEXT = "'The small model speaks while you move the sliders, and every chunk has a deadline. ' * 6"
SETTINGS = """{name: str(getattr(engine.settings, name)) for name in
    ("lane_mode", "sm_split", "urgency_margin_s", "background_batch")} | {
    "rate_rps": engine.stats().rate_rps}"""
START = {
    "lane_mode": "partitioned_urgent",
    "sm_split": "100/32",
    "urgency_margin_s": "0.2",
    "background_batch": "2",
    "rate_rps": 0.0,
}
PAPER: dict[str, object] = {"urgency_margin_s": "0.1", "background_batch": "8"}
# What each preset changes, and what is written on the timeline where it does.
PRESETS: dict[str, tuple[dict[str, object], str]] = {
    "Paper default": (PAPER, "urgency_margin_s 0.2 → 0.1 · background_batch 2 → 8"),
    "Time sharing": (
        PAPER | {"lane_mode": "time_sharing", "rate_rps": 5.0},
        "lane_mode partitioned_urgent → time_sharing",
    ),
    "No urgent lane": (
        PAPER | {"lane_mode": "partitioned", "rate_rps": 5.0},
        "lane_mode partitioned_urgent → partitioned",
    ),
    "Codec starved": (PAPER | {"sm_split": "124/8", "rate_rps": 6.0}, "sm_split 100/32 → 124/8"),
    "Overload": (PAPER | {"rate_rps": 20.0}, "load none → libritts 20/s"),
}
# For a page's start: what was written on its canvases lately.
DRAWN = """
window.drawn = [];
const write = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
  window.drawn = [...window.drawn.slice(-500), text];
  return write.call(this, text, ...place);
};
"""
HIDE = """(hidden) => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


@pytest.fixture
def open_bench(port: int, notebook: Write) -> Callable[[lab.Page, str], str]:
    def open_bench(page: lab.Page, name: str) -> str:
        made = notebook(name, [CELL])
        lab.open_workbench(page, port, made)
        return made

    return open_bench


def test_each_preset_acts_is_marked_and_is_taken_back_by_one_undo(
    page: lab.Page, open_bench: Callable[[lab.Page, str], str], shots: Path
) -> None:
    page.add_init_script(DRAWN)
    open_bench(page, "presets")
    assert lab.evaluate(page, SETTINGS) == START
    for name, (changes, mark) in PRESETS.items():
        page.locator(".vs-top select").first.select_option(name)
        wanted = START | changes
        lab.until(page, f"{SETTINGS} == {wanted!r}")
        page.wait_for_function(
            "(mark) => window.drawn.some((text) => text.includes(mark))", arg=mark
        )
        assert page.locator(".vs-detail b").inner_text() == name
        page.screenshot(path=shots / f"preset_{name.replace(' ', '_')}.png")
        page.get_by_role("button", name="Undo").click()
        lab.until(page, f"{SETTINGS} == {START!r}")
    lab.evaluate(page, "0", "engine.load(rate_rps=5)")
    lab.until(page, "engine.stats().running > 0")
    lab.evaluate(page, "0", "engine.stop()")
    page.wait_for_selector(".vs-state-stopped")
    page.wait_for_function("window.drawn.includes('Engine stopped.')")
    lab.evaluate(page, "0", "workbench.close()")


def test_sound_moves_on_when_its_tab_closes_and_ends_with_its_kernel(
    browser: lab.BrowserContext,
    page: lab.Page,
    port: int,
    open_bench: Callable[[lab.Page, str], str],
    shots: Path,
) -> None:
    page.add_init_script(lab.COUNT_CONTEXTS)
    name = open_bench(page, "tabs")
    lab.evaluate(page, "0", f"engine.load('seedtts', rate_rps=5); workbench.speak({TEXT})")
    lab.until(page, "any(h.is_playing for h in workbench.player.heard.values())")
    lab.command(page, "docmanager:save")
    page.wait_for_timeout(1000)

    other = lab.new_page(browser)
    other.add_init_script(lab.COUNT_CONTEXTS)
    lab.open_notebook(other, port, name)
    lab.show_workbench(other)
    assert other.locator(".vs-player-label").inner_text() == "Sound plays in another tab."
    assert other.evaluate("window.audioContexts") == 0
    page.evaluate(HIDE, True)  # as a browser does when a tab is closed, not as Playwright does
    page.close()
    other.wait_for_function("window.audioContexts === 1", timeout=40_000)
    lab.evaluate(other, "0", f"workbench.speak({TEXT})")  # all of the first was sent before
    lab.until(other, "any(h.is_playing for h in workbench.player.heard.values())")
    other.screenshot(path=shots / "moved_on.png")

    # Nobody looks, then the tab does not run at all: the engine serves on.
    other.evaluate(HIDE, True)
    lab.until(other, "workbench.timeline._visible == {}")
    session = other.context.new_cdp_session(other)
    session.send("Page.setWebLifecycleState", {"state": "frozen"})
    before = lab.evaluate(other, "engine.stats().done")
    session.send("Page.setWebLifecycleState", {"state": "active"})
    other.evaluate(HIDE, False)
    lab.until(other, f"engine.stats().done > {before} + 5")
    lab.until(other, "len(workbench.timeline._visible) == 1")
    assert lab.evaluate(other, "bool(engine.turns()[:, 0].max() < 1.0)")  # never held up

    other.evaluate("""() => {
      window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart(); }""")
    gone = "document.querySelector('.vs-player-label').textContent.startsWith('The kernel is gone')"
    other.wait_for_function(gone, timeout=20_000)
    assert other.evaluate("window.contexts.map((c) => c.state)") == ["closed"]
    assert other.locator(".vs-stream-words").first.inner_text().startswith("stopped")
    other.locator(".vs-gone").wait_for(timeout=20_000)
    other.screenshot(path=shots / "restarted.png")
    other.close()
    assert not other.problems, other.problems  # type: ignore[attr-defined]
