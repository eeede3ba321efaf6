"""What an engine does without a load: first audio when idle, host time when held full."""

from __future__ import annotations

from typing import Any

from voxserve.bench.client import Client
from voxserve.bench.observed import HOST_REQUESTS, observed_figures
from voxserve.bench.target import EngineTarget
from voxserve.core.slo import percentiles
from voxserve.core.workload import Offered, Utterance
from voxserve.engine.engine import Engine

TEXT = "The kettle is boiling, and the bread is still warm."
_FRAMES = 24
_UNCOUNTED = 2
_HELD_WORDS, _HELD_S = 20, 40.0


def idle_ttfa(engine: Engine, ramp: tuple[int, ...], requests: int = 12) -> dict[str, float]:
    """Milliseconds from the request to the first samples, one request at a time.

    Args:
        engine: Left with this `chunk_ramp`.
        ramp: The chunk sizes.
        requests: How many; the first two are not counted.
    """
    engine.set(chunk_ramp=ramp)
    options: dict[str, Any] = {"min_frames": _FRAMES, "max_frames": _FRAMES}
    times_s: list[float] = []
    for seed in range(requests):
        audio = engine.stream(TEXT, seed=seed, **options).read()
        times_s.append(audio.chunks[0].delivered_s - audio.arrival_s)
    counted = times_s[_UNCOUNTED:]
    p50, p90 = percentiles(counted, (50, 90))
    return {"p50_ms": p50 * 1e3, "p90_ms": p90 * 1e3, "requests": len(counted)}


def held_full(engine: Engine, target: EngineTarget, audio_s: float = _HELD_S) -> dict[str, float]:
    """The serving thread's turns while 256 requests (or all slots) run side by side.

    Args:
        engine: With any settings.
        target: Of the same engine.
        audio_s: Speech of each request.

    Returns:
        `observed_figures` of the time they run.
    """
    count = min(HOST_REQUESTS, engine.prepared.num_slots)
    utterance = Utterance(_HELD_WORDS, audio_s, _HELD_WORDS)
    load = [Offered(0.0, utterance)] * count
    result = Client(target, timeout_s=60.0).run(load, 0.0, seed=7, gives_up=False)
    ends_s = [item.end_s for item in result.outcomes if item.end_s is not None]
    figures = observed_figures(
        result.records, result.turns, result.start_s, max(0.5, min(ends_s, default=0.5))
    )
    return {"requests": float(count), **figures}
