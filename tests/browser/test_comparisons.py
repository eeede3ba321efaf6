"""Replaying a trace, asking what if, and switching between A and B, in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from browser import lab

Write = Callable[[str, list[str]], str]
REPLAY = """
import voxserve
from voxserve.viz.replay import Replay
result = voxserve.simulate("h200", rate_rps=20, seconds=6, sm_split="100/32", trace=True)
replay = Replay(result.trace(), speed=0.5)
replay
"""
WHAT_IF = """
import voxserve
engine = voxserve.Engine("vox-tiny", "sim:h200", sm_split="100/32")
engine.load("seedtts", rate_rps=10)
workbench = voxserve.Workbench(engine)
workbench
"""
A_B = """
import sys
sys.path.insert(0, {tests!r})
import numpy as np
from viz.fakes import FakeEngine
from voxserve.viz.ab import AB
engine = FakeEngine(speed=20.0)
ab = AB(engine, {{}}, {{"chunk_ramp": (10,)}}, "one two three four")
ab.player.tap = True
ab
"""

AS_HEARD = """
heard = {name: side.spoken[0].as_heard(24000)[0] for name, side in ab.sides.items()}
"""
OUTPUT_IS_A_THEN_B = """[
    bool(np.array_equal(ab.player.heard[3].tap[:9600] * 32768, heard["A"][:9600])),
    bool(np.array_equal(ab.player.heard[4].tap[-12000:-7200] * 32768, heard["B"][-4800:]))]"""


def test_a_simulated_trace_is_replayed_and_inspected(
    page: lab.Page, port: int, notebook: Write, shots: Path
) -> None:
    lab.open_workbench(page, port, notebook("replay", [REPLAY]))
    lab.evaluate(page, "0", "replay.seek(2.0)")
    page.get_by_role("button", name="Play").click()
    lab.until(page, "replay.now_s - replay._first_s > 2.5")
    page.get_by_role("button", name="Pause").click()
    label = page.locator(".vs-timeline canvas").get_attribute("aria-label") or ""
    assert "chunks under way" in label
    page.screenshot(path=shots / "replay.png")
    lab.until(page, "not replay._play.value")
    page.get_by_role("button", name="Inspect").click()
    page.wait_for_selector(".vs-plot .barlayer path", timeout=30_000)
    lab.evaluate(page, "0", "replay.close()")


def _suppose(page: lab.Page, setting: str, value: str) -> None:
    page.locator(".vs-top select").nth(1).select_option("One setting …")
    row = page.locator(".vs-suppose")
    row.locator("select").nth(0).select_option(label=setting)
    row.locator("input").fill(value)
    row.locator("input").press("Tab")
    row.locator("select").nth(1).select_option(label="last 10 s")
    row.get_by_role("button", name="Simulate").click()


def test_what_if_is_answered_beside_the_running_engine(
    page: lab.Page, port: int, notebook: Write, shots: Path
) -> None:
    lab.open_workbench(page, port, notebook("what_if", [WHAT_IF]))
    lab.until(page, "workbench.numbers.summary(engine.now_s(), 0.2).num_ended > 40", 60)
    menu = page.locator(".vs-top select").nth(1)
    menu.select_option("Codec starved")
    menu.select_option("Time sharing")  # takes the place of the first question
    page.wait_for_selector(".vs-detail .vs-table", timeout=60_000)
    assert "attainment" in page.locator(".vs-detail").inner_text()
    words = page.locator(".vs-words")
    assert words.inner_text().startswith("↳ What if Time sharing, last 20 s: TTFA p90")
    _suppose(page, "Batch B", "3")
    page.wait_for_selector(".vs-words:has-text('What if Batch B 3, last 10 s')", timeout=60_000)
    page.screenshot(path=shots / "what_if.png")
    page.locator(".vs-timeline canvas").focus()
    page.keyboard.press("g")
    words.wait_for(state="hidden")
    page.keyboard.press("g")
    words.wait_for(state="visible")
    page.get_by_role("button", name="Zoom").click()
    page.wait_for_selector(".vs-plot .barlayer path", timeout=30_000)
    assert "↳ LM" in page.locator(".vs-plot").inner_text()
    page.get_by_role("button", name="Live").click()
    page.wait_for_selector(".vs-plot", state="hidden")
    page.locator(".vs-haunt").wait_for(state="hidden", timeout=20_000)  # the window has moved on
    assert not words.is_visible()
    assert page.locator(".vs-haunted").count() == 0
    assert lab.evaluate(page, "bool(engine.turns()[:, 0].max() < 1.0)")  # never held up
    lab.evaluate(page, "0", "workbench.close(); engine.stop()")


def test_a_and_b_play_in_step_and_one_is_heard(
    page: lab.Page, port: int, notebook: Write, shots: Path
) -> None:
    lab.open_notebook(page, port, notebook("a_b", [A_B.format(tests=str(lab.ROOT / "tests"))]))
    lab.command(page, "notebook:run-all-cells")
    page.wait_for_selector(".vs-table meter", timeout=60_000)
    lab.until(page, "ab.player.audio_state == 'running'")
    page.get_by_role("button", name="Play both").click()
    page.wait_for_timeout(500)
    page.get_by_role("button", name="B", exact=True).click()
    page.screenshot(path=shots / "a_b.png")
    lab.until(page, "[h.is_done for h in ab.player.heard.values()] == [True, True]")
    # The tap is the sum that the worklet put out: A's samples at first, B's at the end.
    first, last = lab.evaluate(page, OUTPUT_IS_A_THEN_B, AS_HEARD)
    assert first
    assert last
