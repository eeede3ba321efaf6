"""Results files and the README tables made from them.

A results file is JSON: device, date, versions, settings, command and rows of figures. The README
holds `<!-- results: NAME -->` ... `<!-- end -->` blocks; `python -m voxserve.bench.tables`
rewrites each from `voxserve/data/results/NAME.json`.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

RESULTS_DIR = Path(__file__).resolve().parent.parent / "data" / "results"
_BLOCK = re.compile(
    r"(?P<head><!-- results: (?P<name>[\w.-]+)(?: figures=(?P<pick>[^>]*?))? -->\n)"
    r".*?(?P<tail><!-- end -->)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure.

    Attributes:
        figure: What was measured, in words.
        value: The number; None when it could not be measured (the figure says why).
        unit: Of the value, and of must and aim.
        must, aim: Bounds, or None where nobody set one.
        better: "lower" or "higher".
    """

    figure: str
    value: float | None
    unit: str
    must: float | None = None
    aim: float | None = None
    better: str = "lower"

    def verdict(self) -> str:
        """ "aim", "must", "missed" or "" where there is no bound."""
        if self.value is None:
            return "not measured"
        sign = 1.0 if self.better == "lower" else -1.0
        if self.aim is not None and sign * self.value <= sign * self.aim:
            return "aim"
        if self.must is not None:
            return "must" if sign * self.value <= sign * self.must else "missed"
        return "" if self.aim is None else "missed"


@dataclass(frozen=True, slots=True)
class Results:
    """A results file's content."""

    device: str
    date: str
    versions: dict[str, str]
    settings: dict[str, Any]
    command: str
    rows: tuple[Figure, ...]

    def save(self, path: Path) -> None:
        """Writes the file, rows one a line so that diffs read well."""
        head = {
            "device": self.device,
            "date": self.date,
            "versions": self.versions,
            "settings": self.settings,
            "command": self.command,
        }
        rows = ",\n".join(
            "  "
            + json.dumps(
                {
                    "figure": row.figure,
                    "value": row.value,
                    "unit": row.unit,
                    "must": row.must,
                    "aim": row.aim,
                    "better": row.better,
                }
            )
            for row in self.rows
        )
        text = json.dumps(head, indent=1, default=str)[:-2]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'{text},\n "rows": [\n{rows}\n ]\n}}\n', encoding="utf-8")


def load_results(path: Path) -> Results:
    """Reads a results file.

    Raises:
        ValueError: The file is not a results file; says what is wrong.
    """
    try:
        raw = cast("dict[str, Any]", json.loads(path.read_text(encoding="utf-8")))
        rows = tuple(Figure(**cast("dict[str, Any]", row)) for row in raw["rows"])
        return Results(
            device=raw["device"],
            date=raw["date"],
            versions=raw["versions"],
            settings=raw["settings"],
            command=raw["command"],
            rows=rows,
        )
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not a results file: {error}") from error


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def markdown_table(results: Results, pick: str | None = None) -> str:
    """The table of a results file; `pick` keeps figures that contain one of its `|` parts."""
    parts = [part.strip() for part in pick.split("|")] if pick else [""]
    lines = [
        f"Measured on {results.device}, {results.date}: `{results.command}`",
        "",
        "| figure | measured | must | aim | |",
        "|---|---|---|---|---|",
    ]
    for row in results.rows:
        if any(part in row.figure for part in parts):
            value = f"{_number(row.value)} {row.unit}".strip()
            lines.append(
                f"| {row.figure} | {value} | {_number(row.must)} | {_number(row.aim)} "
                f"| {row.verdict()} |"
            )
    return "\n".join(lines) + "\n"


def rendered(readme: str, results_dir: Path = RESULTS_DIR) -> str:
    """The README text with every results block made anew."""

    def block(match: re.Match[str]) -> str:
        results = load_results(results_dir / f"{match['name']}.json")
        return match["head"] + markdown_table(results, match["pick"]) + match["tail"]

    return _BLOCK.sub(block, readme)


def main() -> int:
    """Rewrites README.md in the current folder."""
    path = Path("README.md")
    path.write_text(rendered(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
