"""Numbers as the views write them."""

from __future__ import annotations


def duration(value_s: float | None) -> str:
    """Such as "142 ms" or "1.50 s"; a dash for nothing."""
    if value_s is None:
        return "–"
    return f"{1000 * value_s:.0f} ms" if abs(value_s) < 1 else f"{value_s:.2f} s"


def percent(share: float | None) -> str:
    """A share of 0 to 1, such as "93 %"; a dash for nothing."""
    return "–" if share is None else f"{100 * share:.0f} %"
