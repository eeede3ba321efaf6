"""The kernel draws its own PNG: shapes, text, and a trace with what would have been."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from viz.records import change, chunk, span, state

from voxserve.core.jobs import JobKind, LaneName
from voxserve.core.request import RequestState
from voxserve.viz.picture import HEIGHT, WIDTH, picture
from voxserve.viz.raster import SCALE, Raster, text_width

RED = np.array([255, 0, 0])


def _pixels(png: bytes) -> np.ndarray:
    """Decodes what `Raster.png` wrote, checking every chunk."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, data, size = 8, b"", (0, 0)
    while at < len(png):
        length, name = struct.unpack(">I4s", png[at : at + 8])
        body = png[at + 8 : at + 8 + length]
        (check,) = struct.unpack(">I", png[at + 8 + length : at + 12 + length])
        assert check == zlib.crc32(name + body)
        if name == b"IHDR":
            size = struct.unpack(">II", body[:8])
        elif name == b"IDAT":
            data += body
        at += 12 + length
    width, height = size
    rows = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, 1 + 3 * width)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, 3)


def test_shapes_are_where_they_should_be() -> None:
    canvas = Raster(40, 20)
    canvas.rect(2, 2, 4, 4, "#ff0000")
    canvas.disc(15, 10, 4, "#ff0000")
    canvas.diamond(25, 10, 4, "#ff0000")
    canvas.triangle(35, 10, 4, "#ff0000")
    seen = _pixels(canvas.png())
    assert seen.shape == (20 * SCALE, 40 * SCALE, 3)
    assert (seen[8, 8] == RED).all()
    assert (seen[20, 30] == RED).all()
    assert (seen[20, 50] == RED).all()
    assert (seen[14, 70] == RED).all()  # wide above,
    assert (seen[27, 64] == 255).all()  # a point below
    assert (seen[0, 0] == 255).all()


def test_half_transparent_paint_is_mixed_and_nothing_is_drawn_outside() -> None:
    canvas = Raster(10, 10)
    canvas.rect(-5, -5, 8, 8, "#ff0000", 0.5)
    canvas.rect(8, 8, 50, 50, "#000000")
    canvas.disc(0, 0, 5, "#000000")
    canvas.text(-20, 5, "outside", "#000000")
    seen = _pixels(canvas.png())
    assert (seen[5, 5] != 255).any()
    assert (seen[-1, -1] == 0).all()


def test_text_is_as_wide_as_it_says_and_unknown_letters_are_marked() -> None:
    canvas = Raster(120, 20)
    canvas.text(110, 15, "TTFA 100 ms → ☃", "#000000", "right")
    ink = np.flatnonzero((_pixels(canvas.png()) < 255).any(axis=(0, 2)))
    assert ink.max() <= 110 * SCALE
    assert ink.min() >= 110 * SCALE - SCALE * text_width("TTFA 100 ms → ☃") - 1
    assert text_width("☃") == text_width("?")


def test_a_trace_with_everything_in_it() -> None:
    records = [
        state(1, RequestState.WAITING, 0.5),
        span(LaneName.LM, JobKind.PREFILL, 0.6, 0.7),
        span(LaneName.LM, JobKind.DECODE, 0.7, 1.5, batch=4),
        span(LaneName.BACKGROUND, JobKind.HANDOFF, 1.0, 1.2),
        chunk(1, 0, delivered_s=1.0, deadline_s=1.2),
        chunk(1, 1, delivered_s=2.5, deadline_s=2.0, stall_s=0.5),
        change(1.5, "background_batch", "8", "4"),
    ]
    light = _pixels(picture(records, end_s=4.0, title="a run"))
    assert light.shape == (HEIGHT * SCALE, WIDTH * SCALE, 3)
    stall = np.array([0xD5, 0x5E, 0x00])
    assert (abs(light.astype(int) - stall).sum(axis=2) < 3).sum() > 50
    dark = _pixels(picture(records, end_s=4.0, ghost=("Time sharing", records), is_dark=True))
    assert dark.mean() < 100 < light.mean()
    assert _pixels(picture([], end_s=1.0)).shape == light.shape
