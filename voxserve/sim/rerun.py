"""The load of a trace served again, under the settings it had and under others, up to its end.

Stage times come from a profile, with lanes that slow each other down, or from the trace's own
spans. Times stay those of the trace, so that both can be drawn over each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from voxserve.core.errors import InvalidInput, InvalidSetting
from voxserve.core.events import (
    ChunkLife,
    LaneSpan,
    Packed,
    Record,
    RequestChange,
    SettingChange,
    unpacked,
)
from voxserve.core.jobs import LaneName, SettingsChanged
from voxserve.core.playback import STALL_LIMIT_S
from voxserve.core.profile import Profile
from voxserve.core.request import RequestState
from voxserve.core.settings import Prepared, Settings
from voxserve.core.workload import Offered, Utterance
from voxserve.sim.fake import FakeWorld
from voxserve.sim.simulator import Simulator
from voxserve.sim.what_if import FittedCost, applied, frames_made, prompt_tokens

WARM_S = 8.0  # served before the window, so that it begins with requests under way


@dataclass(frozen=True, slots=True)
class PastRequest:
    """One request of a trace.

    Attributes:
        is_guessed: It was refused or has not ended, so its length is what others' came to.
    """

    arrival_s: float
    num_frames: int
    prompt_tokens: int
    is_guessed: bool


@dataclass(frozen=True, slots=True)
class Past:
    """What happened to an engine from the outside, ready to happen again.

    Attributes:
        from_s, until_s: The window that figures are about; `requests` begin before it.
        settings: (when, what was in force from then on), ascending; the first from the start.
    """

    requests: tuple[PastRequest, ...]
    settings: tuple[tuple[float, Settings], ...]
    prepared: Prepared
    frame_s: float
    sample_rate_hz: int
    from_s: float
    until_s: float

    @property
    def num_guessed(self) -> int:
        """Requests of the window whose length had to be guessed."""
        return sum(r.is_guessed and r.arrival_s >= self.from_s for r in self.requests)


@dataclass(frozen=True, slots=True)
class SoFar:
    """A window's figures, of requests that arrived in it at least a TTFA target before its end.

    Attributes:
        ttfa_p50_s, ttfa_p90_s: Where no audio has come yet, the wait so far counts.
        num_stalled: Stalled so far, 10 ms or more in all.
        attainment: Share with audio in time and no stall so far; None without requests.
        lane_busy: Share of the window each lane ran something.
    """

    num_requests: int
    ttfa_p50_s: float | None
    ttfa_p90_s: float | None
    num_stalled: int
    attainment: float | None
    lane_busy: dict[LaneName, float]


def past_of(
    records: Sequence[Record],
    settings: Settings,
    prepared: Prepared,
    *,
    frame_s: float,
    sample_rate_hz: int,
    from_s: float,
    until_s: float,
) -> Past:
    """Reads a load from a trace.

    Args:
        records: A trace that reaches back `WARM_S` before the window, where it can.
        settings: In force at the end of the trace.
        prepared: What the device has executables for.
        frame_s: Seconds of audio per frame.
        sample_rate_hz: Of that audio.
        from_s: Where the window begins.
        until_s: Where it ends.

    Raises:
        InvalidInput: No request arrived in the window.
    """
    start_s = from_s - WARM_S
    arrivals: dict[int, float] = {}
    ends: dict[int, RequestChange] = {}
    for record in records:
        if isinstance(record, RequestChange) and record.time_s <= until_s:
            arrivals.setdefault(record.request_id, record.time_s)
            if record.state.is_final:
                ends[record.request_id] = record
    shown = {rid: at_s for rid, at_s in arrivals.items() if at_s >= start_s}
    if not any(at_s >= from_s for at_s in shown.values()):
        raise InvalidInput(
            f"no request arrived in the last {until_s - from_s:.0f} s, so there is nothing to "
            "serve differently; speak a text or set a load"
        )
    made, tokens = frames_made(records), prompt_tokens(records)
    lengths = sorted(end.num_frames for end in ends.values() if end.state is RequestState.DONE)
    requests: list[PastRequest] = []
    for rid, at_s in sorted(shown.items(), key=lambda item: item[1]):
        end = ends.get(rid)
        is_guessed = end is None or end.state is RequestState.REJECTED
        frames = _guess(made.get(rid, 1), lengths) if end is None or is_guessed else end.num_frames
        requests.append(PastRequest(at_s, max(1, frames), tokens.get(rid, 20), is_guessed))
    changes = _settings_then(records, settings, prepared, start_s, until_s)
    return Past(tuple(requests), changes, prepared, frame_s, sample_rate_hz, from_s, until_s)


def rerun(
    past: Past,
    cost: Profile | FittedCost,
    overrides: Mapping[str, Any],
    on_record: Callable[[Record], None],
) -> None:
    """Serves the past's requests until its end.

    Args:
        past: From `past_of`.
        cost: Stage times: of a profiled device, or as they were in the trace.
        overrides: Settings that have these values throughout; the others as they were.
        on_record: Takes the trace as it comes.

    Raises:
        InvalidInput: Nothing has run yet, so that no stage times are known.
        InvalidSetting: An override that is not prepared, or whose times are not known.
    """
    history = [
        (at_s, settings.changed(past.prepared, **overrides)) for at_s, settings in past.settings
    ]

    def each(item: Record | Packed) -> None:
        for record in unpacked((item,)):
            on_record(record)

    split = history[-1][1].sm_split
    if isinstance(cost, FittedCost):
        if cost.is_empty:
            raise InvalidInput("nothing has run lately, so no stage times are known: wait a moment")
        if "sm_split" in overrides and not split.is_none and not cost.knows(split):
            raise InvalidSetting(
                f"sm_split {split}: nothing ran on it lately, so its stage times are not known; "
                "try it for a moment, or give a profile"
            )
        _rerun_fitted(past, cost, history, each)
    else:
        simulator = Simulator(cost, past.prepared, history[0][1], record=each)
        simulator.run([_offered(past, r) for r in past.requests], past.until_s, changes=history[1:])


def so_far(records: Sequence[Record], from_s: float, until_s: float, ttfa_target_s: float) -> SoFar:
    """Sums up a window; records after its end don't count."""
    arrivals: dict[int, float] = {}
    ttfas: dict[int, float] = {}
    stalls: dict[int, float] = {}
    refused: set[int] = set()
    busy = dict.fromkeys(LaneName, 0.0)
    for record in records:
        if isinstance(record, RequestChange):
            arrivals.setdefault(record.request_id, record.time_s)
            if record.state in (RequestState.REJECTED, RequestState.FAILED):
                refused.add(record.request_id)
            elif record.state is RequestState.CANCELLED:
                arrivals[record.request_id] = until_s  # offered, then taken back: no miss
        elif isinstance(record, ChunkLife) and (record.delivered_s or until_s) < until_s:
            rid, at_s = record.request_id, record.delivered_s or 0.0
            if record.audio_s > 0.0 and rid in arrivals:
                ttfas.setdefault(rid, at_s - arrivals[rid])
            stalls[rid] = stalls.get(rid, 0.0) + record.stall_s
        elif isinstance(record, LaneSpan):
            busy[record.lane] += max(0.0, min(record.end_s, until_s) - max(record.start_s, from_s))
    counted = [r for r, at_s in arrivals.items() if from_s <= at_s <= until_s - ttfa_target_s]
    waits = sorted(ttfas.get(rid, until_s - arrivals[rid]) for rid in counted if rid not in refused)
    stalled = {rid for rid in counted if stalls.get(rid, 0.0) >= STALL_LIMIT_S}
    met = [
        rid
        for rid in counted
        if rid not in refused | stalled and ttfas.get(rid, ttfa_target_s + 1.0) <= ttfa_target_s
    ]
    return SoFar(
        num_requests=len(counted),
        ttfa_p50_s=_quantile(waits, 0.5),
        ttfa_p90_s=_quantile(waits, 0.9),
        num_stalled=len(stalled),
        attainment=len(met) / len(counted) if counted else None,
        lane_busy={lane: seconds / (until_s - from_s) for lane, seconds in busy.items()},
    )


def _rerun_fitted(
    past: Past,
    cost: FittedCost,
    history: Sequence[tuple[float, Settings]],
    on_record: Callable[[Record | Packed], None],
) -> None:
    world = FakeWorld(
        history[0][1],
        past.prepared,
        cost,
        frame_samples=round(past.frame_s * past.sample_rate_hz),
        on_record=on_record,
        is_checked=False,
    )
    for request_id, request in enumerate(past.requests):
        tokens, frames = (request.prompt_tokens,), request.num_frames
        world.arrive(request.arrival_s, request_id, frames, prompt_tokens=tokens, max_frames=frames)
    for at_s, settings in history[1:]:
        world.send(at_s, SettingsChanged(settings))
    world.run(until_s=past.until_s)


def _offered(past: Past, request: PastRequest) -> Offered:
    audio_s = request.num_frames * past.frame_s
    return Offered(request.arrival_s, Utterance(1, audio_s, request.prompt_tokens))


def _guess(made: int, lengths: list[int]) -> int:
    """Frames of a request that has made so many: the median of those that got as far."""
    longer = [length for length in lengths if length >= made]
    return round(median(longer)) if longer else made


def _settings_then(
    records: Sequence[Record],
    settings: Settings,
    prepared: Prepared,
    start_s: float,
    until_s: float,
) -> tuple[tuple[float, Settings], ...]:
    """Settings over time, told backwards from what is in force now."""
    history: list[tuple[float, Settings]] = []
    for record in reversed(records):
        if isinstance(record, SettingChange) and record.time_s > start_s:
            if record.time_s <= until_s:
                history.append((record.time_s, settings))
            settings = applied(settings, prepared, record.name, record.old)
    return ((start_s, settings), *reversed(history))


def _quantile(ascending: list[float], share: float) -> float | None:
    return ascending[round(share * (len(ascending) - 1))] if ascending else None
