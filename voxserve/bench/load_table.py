"""The load table's rows: which measured figure answers which promise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from voxserve.bench.tables import Figure

Report = Mapping[str, Any]
# Must and aim at 90 % and 99 % attainment, requests/s.
_PROMISED: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "fixed": ((80.0, 150.0), (74.0, 140.0)),
    "ramp": ((98.0, 160.0), (96.0, 155.0)),
    "seedtts": ((112.0, 200.0), (100.0, 190.0)),
}
_LIMITS = ("0.9", "0.99")
_IDLE = {"idle-2-10": (2, 25.0, 15.0), "idle-4-10": (4, None, None), "idle-10": (10, 80.0, 50.0)}
_SYNCHRONOUS = "two_streams"


def figures_of(sweeps: Mapping[str, Report], others: Mapping[str, Report]) -> list[Figure]:
    """All rows that the measured files have an answer to.

    Args:
        sweeps: Reports by name; of several of one figure the one with the highest capacity.
        others: "idle-..." and "host" files.
    """
    found = _best_of(sweeps)
    rows: list[Figure] = []
    ramps = [name for name in found if _kind(name) == "ramp"]
    best_ramp = max(ramps, key=lambda name: _rank(found[name]), default="")
    for name, report in found.items():
        if name != "overload" and _SYNCHRONOUS not in name:
            kind = _kind(name)
            # The promise is about the best of the ramps that start with 4 frames.
            rows += _capacities(report, "" if kind == "ramp" and name != best_ramp else kind)
    rows += _ratio(found)
    if "overload" in found:
        rows += _overload(found["overload"], found)
    rows += _idle(others)
    rows += _host(found, others)
    return rows


def _best_of(sweeps: Mapping[str, Report]) -> dict[str, Report]:
    best: dict[str, Report] = {}
    for name in sorted(sweeps):
        figure, report = name.partition(".")[0], sweeps[name]
        if figure not in best or _rank(report) > _rank(best[figure]):
            best[figure] = report
    return dict(sorted(best.items()))


def _rank(report: Report) -> tuple[float, float]:
    return _capacity(report, _LIMITS[0]), _capacity(report, _LIMITS[1])


def _capacity(report: Report, limit: str) -> float:
    return float(report["capacity_rps"][limit])


def _kind(name: str) -> str:
    """Which promise a figure's capacity answers, or ""."""
    workload, *parts = name.split("-")
    if workload == "seedtts":
        return "seedtts" if parts == ["10"] else ""
    if parts == ["10"]:
        return "fixed"
    return "ramp" if parts[:1] == ["4"] and parts[-1] in ("4", "10") else ""


def _capacities(report: Report, kind: str) -> list[Figure]:
    about = report["configuration"]
    ramp = " ".join(map(str, about["settings"]["chunk_ramp"]))
    where = f"{about['workload']}, chunk_ramp {ramp}, split {about['settings']['sm_split']}"
    rows: list[Figure] = []
    promised = _PROMISED.get(kind, ((None, None), (None, None)))
    for limit, (must, aim) in zip(_LIMITS, promised, strict=True):
        rps = _capacity(report, limit)
        label = f"capacity at {float(limit):.0%}, {where} ({_certainty(report, rps)})"
        # Where even the lowest rate fails, the capacity is somewhere below it: not known.
        rows.append(Figure(label, rps or None, "req/s", must, aim, better="higher"))
    return rows


def _certainty(report: Report, rps: float) -> str:
    """On how many runs a capacity stands."""
    rates = {row["rate_rps"]: row for row in report["rates"]}
    above = min((rate for rate in rates if rate > rps), default=None)
    seeds = [rates[rate]["seeds"] for rate in (rps, above) if rate in rates]
    seconds = f"{report['configuration']['seconds']:g} s"
    count = min(seeds, default=0)
    tested = f"{count} seed{'' if count == 1 else 's'} of {seconds}"
    return f"{tested}, no higher rate tested" if above is None else f"{tested}, {above:g} fails"


def _ratio(found: Mapping[str, Report]) -> list[Figure]:
    """The three lanes against one loop with two streams, same kernels and admission."""
    rows: list[Figure] = []
    for name, report in found.items():
        if not name.endswith(_SYNCHRONOUS):
            continue
        usual = found.get(name.removesuffix(f"-{_SYNCHRONOUS}"))
        for limit, must, aim in ((_LIMITS[0], None, None), (_LIMITS[1], 1.4, 1.8)):
            own = _capacity(report, limit)
            told = f"two_streams at {float(limit):.0%} ({_certainty(report, own)})"
            rows.append(Figure(f"capacity, {told}", own or None, "req/s", better="higher"))
            ours = 0.0 if usual is None else _capacity(usual, limit)
            if own and ours:
                label = f"capacity at {float(limit):.0%} over that of two_streams, same chunks"
                rows.append(Figure(label, ours / own, "x", must, aim, better="higher"))
    return rows


def _overload(report: Report, found: Mapping[str, Report]) -> list[Figure]:
    row = max(report["rates"], key=lambda item: item["rate_rps"])
    figure = report["configuration"]["figure"]
    usual = found.get(figure)
    where = f"at {row['rate_rps']:g} req/s offered, usual settings"
    completed = float(row["completed_steady_rps"])
    rows = [Figure(f"completed {where}, from 15 s on", completed, "req/s", better="higher")]
    if usual is not None and (capacity := _capacity(usual, _LIMITS[0])):
        share = completed / capacity
        label = f"completed {where}, over the capacity at 90%"
        rows.append(Figure(label, share, "share", 0.95, 0.95, better="higher"))
    rows.append(
        Figure(f"TTFA of admitted requests {where}, p90", row["ttfa_p90_ms"], "ms", None, 250.0)
    )
    rows.append(Figure(f"refused {where}", row["rejected"] / row["offered"], "share"))
    return rows


def _idle(others: Mapping[str, Report]) -> list[Figure]:
    rows: list[Figure] = []
    for name, (frames, must, aim) in _IDLE.items():
        if name in others:
            label = f"idle TTFA, first chunk of {frames} frames, median"
            rows.append(Figure(label, others[name]["p50_ms"], "ms", must, aim))
    return rows


def _host(found: Mapping[str, Report], others: Mapping[str, Report]) -> list[Figure]:
    """Under arrivals where a rate had enough such turns, and held at exactly 256."""
    rows: list[Figure] = []
    loaded = [
        (row["turns_at_256"], name, row)
        for name, report in found.items()
        if _SYNCHRONOUS not in name
        for row in report["rates"]
        if row.get("turn_at_256_p99_ms")
    ]
    if loaded:
        _, name, row = max(loaded, key=lambda item: item[:2])
        where = f"256 running (+- 15%), {name} at {row['rate_rps']:g} req/s"
        rows += _turns(where, row)
    if "host" in others and "turn_at_256_p99_ms" in others["host"]:
        rows += _turns("256 requests held running, no arrivals", others["host"])
    return rows


def _turns(where: str, row: Report) -> list[Figure]:
    p50, p99 = row["turn_at_256_p50_ms"], row["turn_at_256_p99_ms"]
    return [
        Figure(f"host time between steps, {where}, median", p50, "ms", 1.0, 0.3),
        Figure(f"host time between steps, {where}, p99", p99, "ms", 3.0, 1.0),
    ]
