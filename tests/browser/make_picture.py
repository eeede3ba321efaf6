"""Renews the README's picture of the workbench: a simulated H200 under load, speaking, two changes.

Run it on a quiet machine, from the project's folder:
    python tests/browser/make_picture.py voxserve/data/pictures/workbench.png
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from browser import lab

CELL = """
import voxserve
engine = voxserve.Engine("vox-tiny", "sim:h200", sm_split="100/32")
engine.load("libritts", rate_rps=14)
workbench = voxserve.Workbench(engine)
workbench.timeline.window_s = 4.0
workbench
"""
PLAYING = "any(h.played_s > 0.5 and h.is_playing for h in workbench.player.heard.values())"
SETTLE_MS = 15_000  # until the numbers' spark lines say something


def make(target: Path) -> None:
    """Takes the picture while a text is heard and both changes are in view."""
    with lab.workbench_page("workbench", [CELL]) as page:
        page.wait_for_timeout(SETTLE_MS)
        page.get_by_role("button", name="Speak").first.click()
        lab.until(page, PLAYING, 60)
        lab.evaluate(page, "0", "engine.set(sm_split='84/48')")
        page.wait_for_timeout(1000)
        lab.evaluate(page, "0", "engine.set(background_batch=12)")
        page.wait_for_timeout(1200)
        page.screenshot(path=target)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
