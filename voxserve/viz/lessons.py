"""Figures and self-checks of the guided notebooks; the answers stay in here."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# (plotly's types are incomplete)

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from voxserve.viz.compare import GUESSED, MEASURED
from voxserve.viz.figures import CODEC, STALL

Deadlines = Callable[[Sequence[float], Sequence[float]], Sequence[float]]


def playback(delivered_s: Sequence[float], audio_s: Sequence[float]) -> tuple[list[float], float]:
    """When each chunk starts to play, and the silence between them in all.

    Args:
        delivered_s: Delivery time of each chunk.
        audio_s: Length of each chunk.
    """
    starts: list[float] = []
    silence_s = 0.0
    free_s = delivered_s[0]
    for came_s, length_s in zip(delivered_s, audio_s, strict=True):
        starts.append(max(came_s, free_s))
        silence_s += starts[-1] - free_s
        free_s = starts[-1] + length_s
    return starts, silence_s


def playback_figure(delivered_s: Sequence[float], audio_s: Sequence[float]) -> Any:
    """One row per chunk: when it came, when it was due, when it played; silence in between."""
    starts, _ = playback(delivered_s, audio_s)
    due_s = [start + length for start, length in zip(starts, audio_s, strict=True)][:-1]
    rows = [f"chunk {index}" for index in range(len(starts))]
    figure = go.Figure()
    figure.add_bar(
        name="plays", orientation="h", base=starts, x=list(audio_s), y=rows, marker_color=CODEC
    )
    gaps = [(due, start) for due, start in zip(due_s, starts[1:], strict=True)]
    figure.add_bar(
        name="silence",
        orientation="h",
        base=[due for due, _ in gaps],
        x=[start - due for due, start in gaps],
        y=rows[1:],
        marker={"color": STALL, "pattern": {"shape": "/"}},
    )
    ticks = {"mode": "markers", "y": rows[1:], "x": due_s}
    style = {"symbol": "line-ns", "size": 16, "line": {"width": 2, "color": "#222"}}
    figure.add_scatter(name="due", marker=style, **ticks)
    came = {"symbol": "triangle-down", "size": 10, "color": MEASURED}
    figure.add_scatter(name="delivered", mode="markers", x=list(delivered_s), y=rows, marker=came)
    figure.update_layout(
        template="plotly_white",
        barmode="overlay",
        height=120 + 26 * len(rows),
        margin={"l": 70, "r": 20, "t": 20, "b": 40},
        xaxis={"title": "seconds after the request", "rangemode": "tozero"},
        yaxis={"autorange": "reversed"},
    )
    return figure


def check_deadlines(function: Deadlines) -> None:
    """Tries a learner's `deadlines(delivered_s, audio_s)` and prints what it gets wrong.

    It must return the deadline of every chunk after the first.
    """
    cases = (
        ("everything in time", [0.2, 0.5, 0.9], [0.8, 0.8, 0.8]),
        ("the second chunk late", [0.2, 1.4, 1.6], [0.8, 0.8, 0.8]),
        ("late twice, chunks of different length", [0.1, 0.4, 1.0, 2.2], [0.2, 0.4, 0.8, 0.8]),
    )
    for name, delivered_s, audio_s in cases:
        starts, _ = playback(delivered_s, audio_s)
        wanted = [start + length for start, length in zip(starts, audio_s, strict=True)][:-1]
        got = [float(value) for value in function(delivered_s, audio_s)]
        if len(got) != len(wanted):
            print(f"not yet: {name}: {len(wanted)} deadlines are needed, you return {len(got)}")  # noqa: T201
            return
        for index, (is_s, should_s) in enumerate(zip(got, wanted, strict=True), start=1):
            if abs(is_s - should_s) > 1e-6:
                hint = _hint(is_s, should_s)
                print(f"not yet: {name}: chunk {index}: you say {is_s:.3f} s.\n{hint}")  # noqa: T201
                return
    print("right: your deadlines are the engine's")  # noqa: T201


def _hint(is_s: float, should_s: float) -> str:
    if is_s < should_s:
        return "A late chunk starts late: what comes after it may come later, too."
    return "The player does not wait: it starts a chunk as soon as it is there and it is its turn."


def share_figure(shares: Mapping[str, float], guess: str, title: str) -> Any:
    """Bars of shares (0 to 1) by name; the guessed one is outlined.

    Args:
        shares: Name -> share.
        guess: One of the names.
        title: Of the vertical axis.
    """
    names = list(shares)
    widths = [3 if name == guess else 0 for name in names]
    figure = go.Figure(
        go.Bar(
            x=names,
            y=[100 * shares[name] for name in names],
            text=[f"{100 * shares[name]:.0f} %" for name in names],
            marker={"color": MEASURED, "line": {"color": GUESSED, "width": widths}},
        )
    )
    if guess in shares:
        note = {"x": guess, "y": 100 * shares[guess], "text": "your guess", "yshift": 10}
        figure.add_annotation(**note, showarrow=False, font_color=GUESSED)
    figure.update_layout(
        template="plotly_white",
        height=320,
        margin={"l": 60, "r": 20, "t": 20, "b": 60},
        xaxis={"type": "category", "title": "LM / codec SMs"},
        yaxis={"title": title, "range": [0, 112]},
    )
    return figure
