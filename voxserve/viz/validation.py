"""The validation report's figure: predicted beside stated or measured, from its results file.

`python -m voxserve.viz.validation FILE.json` writes FILE.html next to it.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from voxserve.viz.sweeps import bars_figure

_STATED = re.compile(r"(?P<what>.*?) \(paper: (?P<low>[\d.]+)(-(?P<high>[\d.]+))?\)$")


def validation_figure(results: dict[str, Any]) -> Any:
    """Bars of each predicted rate with what the paper states (a range by its middle).

    Args:
        results: A results file of `voxserve.bench.validate`, parsed.

    Returns:
        A `plotly.graph_objects.Figure`.
    """
    groups: list[tuple[str, dict[str, float]]] = []
    for row in results["rows"]:
        if row["value"] is None or row["unit"] != "requests/s":
            continue
        found = _STATED.match(row["figure"])
        label = found["what"] if found else row["figure"]
        values = {"simulated": float(row["value"])}
        if found:
            low = float(found["low"])
            values["paper"] = (low + float(found["high"] or low)) / 2
        groups.append((label, values))
    return bars_figure(groups, f"Predicted on {results['device']}")


def main(paths: list[str]) -> int:
    """Writes an HTML page beside each results file."""
    for path in map(Path, paths):
        figure = validation_figure(json.loads(path.read_text(encoding="utf-8")))
        figure.write_html(path.with_suffix(".html"), include_plotlyjs="cdn")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
