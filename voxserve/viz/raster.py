"""A small canvas that becomes a PNG in the kernel itself: no browser, no graphics library.

Coordinates are CSS pixels; the picture has twice as many each way, so that it is sharp when shown
large. Text is set from a sheet of rendered letters (DejaVu Sans, 11 px).
"""

from __future__ import annotations

import io
import struct
import zlib
from functools import cache
from importlib.resources import files

import numpy as np

from voxserve.core.playback import FloatArray

SCALE = 2
_BASELINE = 21  # of the letters' rows, which are 28 high
_ROWS = 28
_PNG_HEAD = b"\x89PNG\r\n\x1a\n"


@cache
def _sheet() -> dict[str, FloatArray]:
    """Coverage of each letter, 0 to 1: [28, width] float64."""
    raw = files("voxserve").joinpath("data", "glyphs.npz").read_bytes()
    with np.load(io.BytesIO(raw)) as sheet:
        chars, widths, alpha = sheet["chars"], sheet["widths"], sheet["alpha"]
    ends = np.cumsum(widths)
    letters = zip(chars.tolist(), (ends - widths).tolist(), ends.tolist(), strict=True)
    return {chr(code): (alpha[:, a:b] / 255.0).astype(np.float64) for code, a, b in letters}


def text_width(text: str) -> float:
    """CSS pixels that a text takes."""
    sheet = _sheet()
    return sum(sheet.get(letter, sheet["?"]).shape[1] for letter in text) / SCALE


class Raster:
    """An RGB picture.

    Args:
        width, height: CSS pixels.
        ground: Colour behind everything, "#rrggbb".
    """

    def __init__(self, width: int, height: int, ground: str = "#ffffff") -> None:
        self.width, self.height = width, height
        shape = (height * SCALE, width * SCALE, 3)
        self._pixels = np.empty(shape, np.float64)
        self._pixels[:] = _rgb(ground)

    def rect(
        self, x: float, y: float, width: float, height: float, colour: str, alpha: float = 1.0
    ) -> None:
        """Fills a rectangle; at least one physical pixel each way."""
        left, top = round(x * SCALE), round(y * SCALE)
        right = max(left + 1, round((x + width) * SCALE))
        bottom = max(top + 1, round((y + height) * SCALE))
        part = self._pixels[max(top, 0) : max(bottom, 0), max(left, 0) : max(right, 0)]
        part += alpha * (_rgb(colour) - part)

    def dashed(self, x0: float, x1: float, y: float, colour: str) -> None:
        """A horizontal dashed line."""
        at = x0
        while at < x1:
            self.rect(at, y, min(5.0, x1 - at), 1, colour)
            at += 9.0

    def disc(self, x: float, y: float, radius: float, colour: str, alpha: float = 1.0) -> None:
        """A filled circle."""
        dx, dy = self._offsets(x, y, radius)
        self._blend(x, y, radius, colour, alpha * _edge(radius * SCALE - np.hypot(dx, dy)))

    def diamond(self, x: float, y: float, radius: float, colour: str, alpha: float = 1.0) -> None:
        """A square on its corner."""
        dx, dy = self._offsets(x, y, radius)
        self._blend(x, y, radius, colour, alpha * _edge(radius * SCALE - abs(dx) - abs(dy)))

    def triangle(self, x: float, y: float, radius: float, colour: str) -> None:
        """Pointing down."""
        dx, dy = self._offsets(x, y, radius)
        inside = np.minimum(radius * SCALE - dy - 2 * abs(dx), dy + radius * SCALE)
        self._blend(x, y, radius, colour, _edge(inside))

    def cross(self, x: float, y: float, radius: float, colour: str) -> None:
        """An x."""
        dx, dy = self._offsets(x, y, radius)
        arms = np.minimum(abs(dx - dy), abs(dx + dy))
        ends = _edge(radius * SCALE - np.maximum(abs(dx), abs(dy)))
        self._blend(x, y, radius, colour, _edge(2.0 - arms) * ends)

    def text(self, x: float, y: float, text: str, colour: str, align: str = "left") -> None:
        """One line; `y` is the baseline, `align` left, center or right."""
        x -= {"left": 0.0, "center": 0.5, "right": 1.0}[align] * text_width(text)
        left, top = round(x * SCALE), round(y * SCALE) - _BASELINE
        sheet = _sheet()
        for letter in text:
            cover = sheet.get(letter, sheet["?"])
            right = left + cover.shape[1]
            if 0 <= left and right <= self._pixels.shape[1] and 0 <= top:
                part = self._pixels[top : top + _ROWS, left:right]
                part += cover[: len(part), :, None] * (_rgb(colour) - part)
            left = right

    def png(self) -> bytes:
        """The picture as a PNG file."""
        rows = np.clip(np.rint(self._pixels), 0, 255).astype(np.uint8)
        height, width, _ = rows.shape
        lines = np.concatenate([np.zeros((height, 1), np.uint8), rows.reshape(height, -1)], axis=1)
        head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
        chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(lines.tobytes(), 6)), (b"IEND", b""))
        return _PNG_HEAD + b"".join(_chunk(name, data) for name, data in chunks)

    def _box(self, x: float, y: float, radius: float) -> tuple[slice, slice]:
        cx, cy, reach = round(x * SCALE), round(y * SCALE), int(radius * SCALE) + 1
        rows = slice(max(0, cy - reach), max(0, cy + reach + 1))
        return rows, slice(max(0, cx - reach), max(0, cx + reach + 1))

    def _offsets(self, x: float, y: float, radius: float) -> tuple[FloatArray, FloatArray]:
        """Physical pixels right of and below a centre, for the pixels around it."""
        rows, columns = self._box(x, y, radius)
        height, width, _ = self._pixels.shape
        dy = np.arange(rows.start, min(rows.stop, height), dtype=np.float64) - y * SCALE
        dx = np.arange(columns.start, min(columns.stop, width), dtype=np.float64) - x * SCALE
        return dx[None, :], dy[:, None]

    def _blend(self, x: float, y: float, radius: float, colour: str, alpha: FloatArray) -> None:
        part = self._pixels[self._box(x, y, radius)]
        part += alpha[..., None] * (_rgb(colour) - part)


def _edge(inside: FloatArray) -> FloatArray:
    """Coverage from the distance inside a border: softened over one pixel."""
    return np.clip(inside + 0.5, 0.0, 1.0)


@cache
def _rgb(colour: str) -> FloatArray:
    return np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)], np.float64)


def _chunk(name: bytes, data: bytes) -> bytes:
    check = zlib.crc32(name + data)
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", check)
