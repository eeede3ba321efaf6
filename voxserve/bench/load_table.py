"""The load table's rows: which measured figure answers which promise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from voxserve.bench.load_cases import FALLS_BEHIND
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
SHORT = "-short"


def figures_of(sweeps: Mapping[str, Report], others: Mapping[str, Report]) -> list[Figure]:
    """All rows that the measured files have an answer to.

    Args:
        sweeps: Reports by name: figure, SHORT for runs that only looked for the capacity, and
            after a dot the split, like "libritts-4-10-short.92-40".
        others: "idle-..." and "host" files.
    """
    found = [
        Measured.of(name, sweeps)
        for name in sorted({name.replace(SHORT, "") for name in sweeps})
        if not name.startswith("overload")
    ]
    rows: list[Figure] = []
    ramps = [item for item in found if item.kind == "ramp"]
    best_ramp = max(ramps, key=Measured.rank, default=None)
    for item in found:
        if not item.is_synchronous:
            # The promise is about the best of the ramps that start with 4 frames.
            is_promised = item.kind != "ramp" or item.figure == getattr(best_ramp, "figure", "")
            rows += _capacities(item, item.kind if is_promised else "")
    rows += _ratio(found)
    for name in sorted(sweeps):
        if name.startswith("overload"):
            rows += _overload(sweeps[name], found)
    rows += _idle(others)
    rows += _host({item.name: item.long for item in found if item.long is not None}, others)
    return rows


@dataclass(frozen=True, slots=True)
class Capacity:
    """A capacity and what it stands on.

    Attributes:
        rps: 0 where none is known.
        told: How it was found.
    """

    rps: float
    told: str


@dataclass(frozen=True, slots=True)
class Measured:
    """One figure on one split.

    Attributes:
        name: Figure, a dot, split.
        long, short: Reports of the counted runs and of those that looked for the capacity.
    """

    name: str
    long: Report | None
    short: Report | None

    @classmethod
    def of(cls, name: str, sweeps: Mapping[str, Report]) -> Measured:
        """Both reports of a name without SHORT."""
        figure, dot, split = name.partition(".")
        return cls(name, sweeps.get(name), sweeps.get(f"{figure}{SHORT}{dot}{split}"))

    @property
    def figure(self) -> str:
        """Workload, ramp and, where it is not the usual one, lane mode."""
        return self.name.partition(".")[0]

    @property
    def about(self) -> Mapping[str, Any]:
        """Its configuration."""
        report = self.long or self.short
        assert report is not None, "a name comes from a report"
        return report["configuration"]

    @property
    def kind(self) -> str:
        """Which promise its capacity answers, or ""."""
        workload, *parts = self.figure.split("-")
        if workload == "seedtts":
            return "seedtts" if parts == ["10"] else ""
        if parts == ["10"]:
            return "fixed"
        return "ramp" if parts[:1] == ["4"] and parts[-1] in ("4", "10") else ""

    @property
    def is_synchronous(self) -> bool:
        """Whether one loop issues both streams."""
        return self.figure.endswith(_SYNCHRONOUS)

    def rank(self) -> tuple[float, ...]:
        """For the choice between alternatives."""
        return tuple(self.capacity(limit).rps for limit in _LIMITS)

    def capacity(self, limit: str) -> Capacity:
        """From counted runs; where none holds the limit, from short ones at lower rates."""
        rps = float(self.long["capacity_rps"][limit]) if self.long else 0.0
        if self.long and rps:
            return Capacity(rps, _certainty(self.long, rps))
        rates = [row["rate_rps"] for row in self.long["rates"]] if self.long else []
        fails_rps = min(rates, default=math.inf)
        rps = _short_capacity(self.short, float(limit), fails_rps) if self.short else 0.0
        fails = (
            f"no longer run holds it, {fails_rps:g} fails" if rates else "no longer run was made"
        )
        seconds = self.short["configuration"]["seconds"] if self.short else 0.0
        return Capacity(rps, f"1 seed of {seconds:g} s, {fails}" if rps else fails)


def _short_capacity(report: Report, limit: float, below_rps: float) -> float:
    """Highest rate up to which every short run held the limit without falling behind."""
    held_rps = 0.0
    for row in sorted(report["rates"], key=lambda row: row["rate_rps"]):
        is_held = row["attainment"] >= limit and not row["stopped"]
        if not is_held or row.get("lag_growth", 0.0) > FALLS_BEHIND or row["rate_rps"] >= below_rps:
            break
        held_rps = float(row["rate_rps"])
    return held_rps


def _capacities(item: Measured, kind: str) -> list[Figure]:
    settings = item.about["settings"]
    ramp = " ".join(map(str, settings["chunk_ramp"]))
    where = f"{item.about['workload']}, chunk_ramp {ramp}, split {settings['sm_split']}"
    rows: list[Figure] = []
    promised = _PROMISED.get(kind, ((None, None), (None, None)))
    for limit, (must, aim) in zip(_LIMITS, promised, strict=True):
        found = item.capacity(limit)
        label = f"capacity at {float(limit):.0%}, {where} ({found.told})"
        # Where even the lowest rate fails, the capacity is somewhere below it: not known.
        rows.append(Figure(label, found.rps or None, "req/s", must, aim, better="higher"))
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


def _ratio(found: Sequence[Measured]) -> list[Figure]:
    """The three lanes against one loop with two streams, same kernels and admission."""
    rows: list[Figure] = []
    for item in found:
        if not item.is_synchronous:
            continue
        figure = item.figure.removesuffix(f"-{_SYNCHRONOUS}")
        usual = [other for other in found if other.figure == figure]
        for limit, must, aim in ((_LIMITS[0], None, None), (_LIMITS[1], 1.4, 1.8)):
            own = item.capacity(limit)
            told = f"two_streams at {float(limit):.0%} ({own.told})"
            rows.append(Figure(f"capacity, {told}", own.rps or None, "req/s", better="higher"))
            if item.long is not None:  # runs of one length against each other
                ours, length = [other.capacity(limit).rps for other in usual], item.long
            else:
                short = [other.short for other in usual if other.short is not None]
                ours = [_short_capacity(report, float(limit), math.inf) for report in short]
                length = item.short
            if own.rps and any(ours) and length is not None:
                seconds = f"runs of {length['configuration']['seconds']:g} s"
                label = f"capacity at {float(limit):.0%} over that of two_streams, {seconds}"
                rows.append(Figure(label, max(ours) / own.rps, "x", must, aim, better="higher"))
    return rows


def _overload(report: Report, found: Sequence[Measured]) -> list[Figure]:
    row = max(report["rates"], key=lambda item: item["rate_rps"])
    about = report["configuration"]
    split = about["settings"]["sm_split"]
    usual = [
        item
        for item in found
        if item.figure == about["figure"] and item.about["settings"]["sm_split"] == split
    ]
    where = f"at {row['rate_rps']:g} req/s offered, split {split}"
    completed = float(row["completed_steady_rps"])
    rows = [Figure(f"completed {where}, from 15 s on", completed, "req/s", better="higher")]
    if usual and (capacity := usual[0].capacity(_LIMITS[0]).rps):
        label = f"completed {where}, over the capacity at 90%"
        rows.append(Figure(label, completed / capacity, "share", 0.95, 0.95, better="higher"))
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
