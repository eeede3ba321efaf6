"""How fast the simulator is: a minute of load on one core, capacity on all.

`python -m voxserve.bench.sim_speed` writes the results file.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from voxserve.bench import machine
from voxserve.bench.sim_capacity import find_capacity
from voxserve.bench.tables import RESULTS_DIR, Figure, Results
from voxserve.core.profile import Profile
from voxserve.sim.api import simulate

NAME = "simulator-speed"
RATE_RPS, SECONDS, REPEATS = 100.0, 60.0, 3


def simulator_figures(
    profile: Profile | str = "h200", seeds: Sequence[int] = (0, 1, 2)
) -> list[Figure]:
    """Times one run on one core (fastest of three) and one capacity search on all cores."""
    run = simulate(profile, rate_rps=RATE_RPS, seconds=SECONDS)  # caches are warm after it
    run_s: list[float] = []
    for _ in range(REPEATS):
        start_s = time.perf_counter()
        simulate(profile, rate_rps=RATE_RPS, seconds=SECONDS)
        run_s.append(time.perf_counter() - start_s)
    start_s = time.perf_counter()
    capacity = find_capacity(profile, thresholds=(0.9,), seconds=SECONDS, seeds=seeds)
    capacity_s = time.perf_counter() - start_s
    jobs = sum(lane.num_jobs for lane in run.lanes.values())
    load = f"{SECONDS:g} s of libritts load at {RATE_RPS:g} requests/s"
    seen = f"{run.summary.attainment:.0%} attainment, {jobs} jobs"
    found = f"{capacity.rps[0.9]:g} requests/s after {capacity.num_runs} runs"
    search = f"capacity at 90 % by bracketing, {len(seeds)} seeds, all cores ({found})"
    return [
        Figure(f"{load}, one core ({seen})", round(min(run_s), 2), "s", must=3, aim=1),
        Figure(search, round(capacity_s, 1), "s", must=60, aim=20),
    ]


def main() -> None:
    """Measures and writes the results file."""
    parser = argparse.ArgumentParser(description="measure the simulator's speed")
    parser.add_argument("--profile", default="h200")
    args = parser.parse_args()
    results = Results(
        device=machine.cpu_name(),
        date=datetime.now(UTC).date().isoformat(),
        versions=machine.versions("numpy"),
        settings={"profile": args.profile, "workload": "libritts", **machine.revision()},
        command=f"python -m voxserve.bench.sim_speed --profile {args.profile}",
        rows=tuple(simulator_figures(args.profile)),
    )
    RESULTS_DIR.mkdir(parents=True, exist_ok=True)
    results.save(RESULTS_DIR / f"{NAME}.json")


if __name__ == "__main__":
    main()
