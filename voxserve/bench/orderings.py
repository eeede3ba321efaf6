"""What each mechanism of the scheduler is worth: the same load, one mechanism after the other.

Capacities in virtual time on two cost tables (the paper's stage figures, and today's H200 profile),
what the policies are worth, and what happens past capacity with each kind of overload control.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from datetime import date
from itertools import chain
from typing import Any

from voxserve.bench import machine
from voxserve.bench.sim_capacity import find_capacity
from voxserve.bench.tables import RESULTS_DIR, Figure, Results
from voxserve.core import profile as profiles
from voxserve.sim.api import simulate
from voxserve.sim.device import default_settings, prepared_of
from voxserve.sim.simulator import SimulationResult

# Profile -> a rate near the capacities, and an offered rate past all of them.
TABLES: dict[str, tuple[float, float]] = {
    "h100-qwen3-tts-1.7b-paper": (44.0, 80.0),
    "h200-qwen3-tts-1.7b": (204.0, 320.0),
}
_OFF: dict[str, Any] = {"overload": "off"}
_FIRST: dict[str, Any] = {"admission": "prefill_first", **_OFF}
PAST_SECONDS = 40.0


def chosen_split(name: str) -> str:
    """The split that a profile chooses."""
    profile = profiles.load(name)
    return str(default_settings(profile, prepared_of(profile)).sm_split)


def rungs(split: str) -> dict[str, dict[str, Any]]:
    """Settings of each rung of the ladder, in the order of the mechanisms."""
    return {
        "time_sharing": {"lane_mode": "time_sharing", **_FIRST},
        "two_streams": {"lane_mode": "two_streams", **_FIRST},
        "partitioned, no split": {"lane_mode": "partitioned", "sm_split": "none", **_FIRST},
        "partitioned_urgent, no split": {"sm_split": "none", **_FIRST},
        f"partitioned_urgent, {split}": {"sm_split": split, **_FIRST},
        "the same with deadline_aware, no split": {"sm_split": "none", **_OFF},
        f"the same with deadline_aware, {split}": {"sm_split": split, **_OFF},
    }


def capacity_rows(profile: str, seconds: float, seeds: tuple[int, ...]) -> Iterator[Figure]:
    """Capacity at 90 % and 99 % of each rung, then of each policy."""
    split, start_rps = chosen_split(profile), TABLES[profile][0]
    asked = dict(rungs(split))
    for policy in ("startup_steady", "throughput"):
        asked[f"policy {policy}, {split}"] = {"sm_split": split, "policy": policy, **_OFF}
    for name, settings in asked.items():
        found = find_capacity(
            profile,
            thresholds=(0.9, 0.99),
            seconds=seconds,
            seeds=seeds,
            start_rps=start_rps,
            **settings,
        )
        for limit, rps in found.rps.items():
            figure = f"{profile}: {name}, capacity at {limit:.0%}"
            yield Figure(figure, rps, "requests/s", better="higher")


def attainment_rows(profile: str, seconds: float) -> Iterator[Figure]:
    """Attainment of each rung at one rate between their capacities, to tell close ones apart."""
    split, rate_rps = chosen_split(profile), TABLES[profile][0]
    for name, settings in rungs(split).items():
        run = simulate(profile, rate_rps=rate_rps, seconds=seconds, **settings)
        figure = f"{profile}: {name}, attainment at {rate_rps:g} requests/s"
        yield Figure(figure, run.summary.attainment, "share", better="higher")


def past_capacity_rows(profile: str) -> Iterator[Figure]:
    """Goodput and completions at an offered rate far past capacity, by overload control."""
    split, rate_rps = chosen_split(profile), TABLES[profile][1]
    asked: dict[str, dict[str, Any]] = {
        "prefill_first, off": _FIRST,
        "deadline_aware, off": _OFF,
        "deadline_aware, prefill_first": {"overload": "prefill_first"},
        "deadline_aware, shed": {"overload": "shed"},
    }
    for name, settings in asked.items():
        run = simulate(profile, rate_rps=rate_rps, seconds=PAST_SECONDS, sm_split=split, **settings)
        where = f"{profile}: {name} at {rate_rps:g} requests/s"
        goodput = run.summary.goodput_rps
        yield Figure(f"{where}, goodput", goodput, "requests/s", better="higher")
        refused = run.summary.num_rejected / PAST_SECONDS
        yield Figure(f"{where}, refused", refused, "requests/s")
        late = _served_late(run) / PAST_SECONDS
        yield Figure(f"{where}, served but outside the SLO", late, "requests/s")


def _served_late(run: SimulationResult) -> int:
    target_s = run.settings.ttfa_target_s
    return sum(item.is_done and not item.meets(target_s) for item in run.outcomes)


def main() -> None:
    """Writes the report into the package's results."""
    parser = argparse.ArgumentParser(description="what each mechanism of the scheduler is worth")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seeds", default="0,1,2")
    args = parser.parse_args()
    seeds = tuple(int(part) for part in args.seeds.split(","))
    rows: list[Figure] = []
    for profile in TABLES:
        for row in chain(
            capacity_rows(profile, args.seconds, seeds),
            attainment_rows(profile, args.seconds),
            past_capacity_rows(profile),
        ):
            sys.stderr.write(f"{row.figure}: {row.value:g} {row.unit}\n")
            rows.append(row)
    Results(
        device="a simulated device, in virtual time",
        date=date.today().isoformat(),
        versions=machine.versions("numpy"),
        settings={
            "workload": "libritts",
            "seconds": args.seconds,
            "seeds": list(seeds),
            "seconds past capacity": PAST_SECONDS,
        }
        | machine.revision(),
        command=(
            f"python -m voxserve.bench.orderings --seconds {args.seconds:g} --seeds {args.seeds}"
        ),
        rows=tuple(rows),
    ).save(RESULTS_DIR / "scheduler-orderings.json")


if __name__ == "__main__":
    main()
