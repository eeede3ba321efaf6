"""Renders the letters of exported pictures in Chromium, once: `voxserve/data/glyphs.npz`.

Run it where DejaVu Sans is installed:
    python tests/browser/make_glyphs.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from browser import lab

LETTERS = "".join(map(chr, range(32, 127))) + "→−–·×…↳“”°µ"
DRAW = """(letters) => {
  const canvas = document.createElement("canvas");
  const g = canvas.getContext("2d");
  const font = '22px "DejaVu Sans"';
  g.font = font;
  const widths = [...letters].map((letter) => Math.ceil(g.measureText(letter).width));
  canvas.width = widths.reduce((a, b) => a + b, 0);
  canvas.height = 28;
  g.font = font;  // setting the size forgets it
  let x = 0;
  [...letters].forEach((letter, i) => {
    g.fillText(letter, x, 21);
    x += widths[i];
  });
  const { data } = g.getImageData(0, 0, canvas.width, canvas.height);
  return { widths, alpha: Array.from(data).filter((_, i) => i % 4 === 3) };
}"""


def main() -> None:
    """Writes the sheet: code points, widths in pixels, coverage [28, sum of widths] uint8."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=lab.chromium(), args=lab.FLAGS)
        drawn = browser.new_page().evaluate(DRAW, LETTERS)
        browser.close()
    np.savez_compressed(
        lab.ROOT / "voxserve" / "data" / "glyphs.npz",
        chars=np.array([ord(letter) for letter in LETTERS], np.int32),
        widths=np.array(drawn["widths"], np.int32),
        alpha=np.array(drawn["alpha"], np.uint8).reshape(28, -1),
    )


if __name__ == "__main__":
    main()
