"""What users do at the workbench, in a real browser, on an engine that is late when told to be."""

from __future__ import annotations

from collections.abc import Callable
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
engine = FakeEngine({arguments})
workbench = Workbench(engine, tap=True, text="one two three four five six seven eight")
workbench
"""
NO_WORKLET = {
    "plain http": """Object.defineProperty(
        AudioContext.prototype, 'audioWorklet', { value: undefined });""",
    "no scripts from blobs": """
        AudioWorklet.prototype.addModule = () => Promise.reject(new Error('forbidden'));""",
}
HEARD_ALL = (
    "bool(workbench.player.heard) and all(h.is_done for h in workbench.player.heard.values())"
)
EXACT = """all(
    np.array_equal(h.tap * 32768, tone(i, 0, len(h.tap))) and len(h.tap) == 32 * 1920
    for i, h in workbench.player.heard.items())"""
EXPORTS = {
    "Chunks as CSV": ".csv",
    "Perfetto JSON": ".json",
    "Figure as HTML": ".html",
    "Picture as PNG": ".png",
}
HEARD = "vars(workbench.player.heard[1]) | {'tap': 0}"


@pytest.fixture
def open_bench(port: int, notebook: Write) -> Callable[..., str]:
    def open_bench(page: lab.Page, name: str, arguments: str = "") -> str:
        cell = CELL.format(tests=str(lab.ROOT / "tests"), arguments=arguments)
        made = notebook(name, [cell])
        lab.open_workbench(page, port, made)
        return made

    return open_bench


def _speak(page: lab.Page) -> None:
    page.get_by_role("button", name="Speak").first.click()


def test_a_late_chunk_is_heard_as_a_stall_and_every_sample_still_comes(
    page: lab.Page, open_bench: Callable[..., str], shots: Path
) -> None:
    open_bench(page, "late", "late={3: 1.2}")
    _speak(page)
    lab.until(page, HEARD_ALL)
    heard = lab.evaluate(page, HEARD)
    assert lab.evaluate(page, EXACT)
    assert heard["underruns"] >= 1
    assert heard["silent_s"] > 0.1
    label = page.locator(".vs-timeline canvas").get_attribute("aria-label") or ""
    assert "lm lane" in label
    page.screenshot(path=shots / "late.png")
    assert page.locator(".vs-workbench").get_attribute("role") == "region"
    # The same stall, explained: step through the chunks from the newest with the keyboard.
    page.locator(".vs-timeline canvas").focus()
    detail = page.locator(".vs-detail")
    for _ in range(8):
        page.keyboard.press("ArrowLeft")
        page.wait_for_timeout(500)  # the story is told when the key rests
        if "playback stalled" in detail.inner_text():
            break
    assert "playback stalled" in detail.inner_text()
    page.wait_for_function(
        "/would have (been|avoided)/.test(document.querySelector('.vs-detail').textContent)"
    )


@pytest.mark.parametrize("why", NO_WORKLET)
def test_without_a_worklet_buffer_sources_play_the_same_samples(
    page: lab.Page, open_bench: Callable[..., str], why: str
) -> None:
    page.add_init_script(NO_WORKLET[why])
    # A notebook of its own: the same one would find the other test's kernel.
    open_bench(page, why.replace(" ", "-"))
    _speak(page)
    lab.until(page, HEARD_ALL)
    assert lab.evaluate(page, "workbench.player.audio_mode") == "buffer sources"
    assert lab.evaluate(page, EXACT)


def test_two_views_and_two_tabs_sound_once(
    browser: lab.BrowserContext, page: lab.Page, open_bench: Callable[..., str], port: int
) -> None:
    page.add_init_script(lab.COUNT_CONTEXTS)
    name = open_bench(page, "twice")
    lab.command(page, "notebook:create-output-view")
    page.wait_for_function("document.querySelectorAll('.vs-player').length === 2")
    _speak(page)
    lab.until(page, HEARD_ALL)
    assert page.evaluate("window.audioContexts") == 1
    assert lab.evaluate(page, EXACT)
    lab.command(page, "docmanager:save")
    page.wait_for_timeout(1000)

    other = lab.new_page(browser)
    other.add_init_script(lab.COUNT_CONTEXTS)
    lab.open_notebook(other, port, name)
    lab.show_workbench(other)
    assert other.evaluate("window.audioContexts") == 0
    other.get_by_role("button", name="Play in this tab").click()
    other.wait_for_function("window.audioContexts === 1")
    page.wait_for_function(
        "document.querySelector('.vs-player-label').textContent.includes('another tab')"
    )
    other.close()


def test_inspect_export_preset_and_undo(
    page: lab.Page, open_bench: Callable[..., str], folder: Path, shots: Path
) -> None:
    open_bench(page, "inspect", "late={3: 1.2}")
    _speak(page)
    lab.until(page, HEARD_ALL)
    page.get_by_role("button", name="Inspect").click()
    page.wait_for_selector(".vs-plot .barlayer path", timeout=30_000)
    page.screenshot(path=shots / "inspect.png")
    page.get_by_role("button", name="Live").click()
    page.wait_for_selector(".vs-plot", state="hidden")

    page.get_by_role("button", name="Table").click()
    assert "SLO attainment" in page.locator(".vs-numbers table").inner_text()
    page.get_by_role("button", name="Table").click()

    menus = page.locator(".vs-top select")
    menus.nth(0).select_option("Time sharing")
    lab.until(page, "engine.settings.lane_mode == 'time_sharing'")
    page.get_by_role("button", name="Undo").click()
    lab.until(page, "engine.settings.lane_mode == 'partitioned_urgent'")
    for kind, ending in EXPORTS.items():
        menus.nth(2).select_option(kind)
        page.wait_for_function(
            "(end) => document.querySelector('.vs-detail code')?.textContent.endsWith(end)",
            arg=ending,
        )
        (file,) = (folder / "notebooks").glob(f"voxserve-*{ending}")
        assert file.stat().st_size > 500


def test_a_stopped_engine_and_a_restarted_kernel_are_shown(
    page: lab.Page, open_bench: Callable[..., str], shots: Path
) -> None:
    open_bench(page, "restart")
    lab.evaluate(page, "0", "engine.state = 'stopped'")
    page.wait_for_selector(".vs-state-stopped")
    lab.until(page, "workbench.timeline.note == 'Engine stopped.'")
    page.screenshot(path=shots / "stopped.png")
    page.evaluate("""() => {
      window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart(); }""")
    page.wait_for_function(
        """() => { const gone = document.querySelector('.vs-gone');
        return gone && !gone.hidden && gone.textContent.includes('Re-run') }""",
        timeout=20_000,
    )


def test_a_slow_browser_does_not_hold_up_the_kernel(
    page: lab.Page, open_bench: Callable[..., str]
) -> None:
    open_bench(page, "slow")
    throttle = page.context.new_cdp_session(page)
    throttle.send("Emulation.setCPUThrottlingRate", {"rate": 8})
    ticks = "workbench._publisher.num_ticks"
    before = lab.evaluate(page, f"[{ticks}, engine.now_s()]")
    _speak(page)
    page.wait_for_timeout(4000)
    after = lab.evaluate(page, f"[{ticks}, engine.now_s()]")
    throttle.send("Emulation.setCPUThrottlingRate", {"rate": 1})
    assert (after[0] - before[0]) / (after[1] - before[1]) > 5
    lab.until(page, HEARD_ALL)
    assert lab.evaluate(page, EXACT)
