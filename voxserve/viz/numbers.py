"""The numbers column: tiles with spark lines, and the same numbers as a table."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# (anywidget carries no complete types)

from __future__ import annotations

from dataclasses import asdict, dataclass

import anywidget

from voxserve.core.jobs import LaneName
from voxserve.core.protocols import EngineStats
from voxserve.viz import esm
from voxserve.viz.metrics import Numbers
from voxserve.viz.words import duration, percent


@dataclass(frozen=True, slots=True)
class Tile:
    """One number: text shown, note under it, value for the spark line, and whether it is bad."""

    key: str
    label: str
    value: str
    note: str
    spark: float | None
    bad: bool
    help: str


class NumbersView(anywidget.AnyWidget):
    """Shows tiles; keeps one minute of history in the browser."""

    _esm = esm.module("numbers.js")
    _css = esm.text("workbench.css")

    def show(self, tiles: list[Tile]) -> None:
        """Sends the current tiles; at most twice a second."""
        self.send({"type": "numbers", "tiles": [asdict(tile) for tile in tiles]})


def tiles(numbers: Numbers, stats: EngineStats, ttfa_target_s: float) -> list[Tile]:
    """Puts a window's numbers into words."""
    target = f"target {duration(ttfa_target_s)}"
    p90 = numbers.ttfa_p90_s
    share = numbers.attainment
    busy = numbers.lane_busy
    window = f"last {numbers.window_s:.0f} s"
    codec_busy = busy[LaneName.BACKGROUND] + busy[LaneName.URGENT]
    return [
        Tile(
            "ttfa",
            "TTFA p50",
            duration(numbers.ttfa_p50_s),
            f"p90 {duration(p90)} · {target}",
            numbers.ttfa_p50_s,
            p90 is not None and p90 > ttfa_target_s,
            f"Time to first audio: request made to first samples delivered, {window}.",
        ),
        Tile(
            "stalls",
            "Stalled requests",
            str(numbers.num_stalled),
            _stalls_note(numbers),
            float(numbers.num_stalled),
            numbers.num_stalled > 0,
            f"Requests whose audio ran out for 10 ms or more in all, {window}; a late chunk is the "
            "host's stall where the kernel was busy with other code, else the server's.",
        ),
        Tile(
            "attainment",
            "SLO attainment",
            percent(share),
            f"goodput {numbers.goodput_rps:.2f}/s",
            share,
            share is not None and share < 0.9,
            f"Share of the requests that ended in the {window} with TTFA in target and no stall.",
        ),
        Tile(
            "running",
            "Running",
            str(stats.running + stats.draining),
            f"{stats.waiting} waiting · {stats.done} done",
            float(stats.running + stats.draining),
            stats.waiting > 4,
            "Requests being generated or drained now.",
        ),
        Tile(
            "lm",
            "LM lane busy",
            percent(busy[LaneName.LM]),
            f"decode batch {_mean(numbers.decode_batch)}",
            busy[LaneName.LM],
            False,  # a full LM lane is how it should be: it generates ahead
            "Share of the last 2 s with a prefill or a decode step running.",
        ),
        Tile(
            "codec",
            "Codec lanes busy",
            f"{100 * busy[LaneName.BACKGROUND]:.0f} + {100 * busy[LaneName.URGENT]:.0f} %",
            f"codec batch {_mean(numbers.codec_batch)}",
            codec_busy,
            busy[LaneName.BACKGROUND] > 0.97,
            "Share of the last 2 s with work running: background + urgent lane.",
        ),
    ]


def _stalls_note(numbers: Numbers) -> str:
    if not numbers.num_host_stalls:
        return f"{numbers.stall_s:.1f} s of silence, last {numbers.window_s:.0f} s"
    num_server = numbers.num_stalls - numbers.num_host_stalls
    return f"{numbers.stall_s:.1f} s: {num_server} server, {numbers.num_host_stalls} host"


def _mean(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"
