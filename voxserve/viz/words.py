"""Numbers and requests as the views write them."""

from __future__ import annotations

import re

NAME_CHARS = 32


def duration(value_s: float | None) -> str:
    """Such as "142 ms" or "1.50 s"; a dash for nothing."""
    if value_s is None:
        return "–"
    return f"{1000 * value_s:.0f} ms" if abs(value_s) < 1 else f"{value_s:.2f} s"


def request_name(request_id: int, text: str = "") -> str:
    """A spoken request by its text, which its row in the player shows; others by number.

    The pages' `words.js` writes them alike.
    """
    if not text:
        return f"request {request_id}"
    cut = re.sub(r"\s+\S*$", "", text[:NAME_CHARS])
    short = text if len(text) <= NAME_CHARS else f"{cut} …"
    return f"“{short}” (request {request_id})"


def progress_bar(share: float) -> str:
    """HTML of a bar and its share, 0 to 1, in words."""
    bar = f'<progress value="{share:.2f}" aria-label="progress"></progress>'
    return f"{bar} {100 * share:.0f} %"


def percent(share: float | None) -> str:
    """A share of 0 to 1, such as "93 %"; a dash for nothing."""
    return "–" if share is None else f"{100 * share:.0f} %"
