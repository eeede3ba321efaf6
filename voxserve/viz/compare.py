"""A figure that sets what was measured beside what was guessed."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# (plotly's types are incomplete)

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

MEASURED, GUESSED = "#0072B2", "#D55E00"


def guess_figure(
    measured: Mapping[str, Sequence[float]], guess: Mapping[str, float], unit: str = "ms"
) -> Any:
    """Dots for each measured value, a dashed line for each guess.

    Args:
        measured: Name of a case -> its values.
        guess: The same names -> what was expected.
        unit: Of both.

    Returns:
        A `plotly.graph_objects.Figure`.
    """
    names = list(measured)
    figure = go.Figure(
        go.Scatter(
            name="measured",
            mode="markers",
            x=[name for name in names for _ in measured[name]],
            y=[value for name in names for value in measured[name]],
            marker={"size": 13, "color": MEASURED, "opacity": 0.7},
        )
    )
    for place, name in enumerate(names):
        if name in guess:
            ends = {"x0": place - 0.3, "x1": place + 0.3, "y0": guess[name], "y1": guess[name]}
            figure.add_shape(type="line", **ends, line={"dash": "dash", "color": GUESSED})
            text = f"your guess: {guess[name]:g} {unit}"
            figure.add_annotation(
                x=place, y=guess[name], text=text, yshift=10, showarrow=False, font_color=GUESSED
            )
    figure.update_layout(
        template="plotly_white",
        height=320,
        margin={"l": 60, "r": 20, "t": 20, "b": 40},
        xaxis={"range": [-0.6, len(names) - 0.4]},
        yaxis={"title": unit, "rangemode": "tozero"},
    )
    return figure
