"""The numbers of the last seconds, kept up to date from trace deltas. No widgets here."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from voxserve.core.events import ChunkLife, HostDelay, LaneSpan, Record, RequestChange
from voxserve.core.jobs import JobKind, LaneName
from voxserve.core.playback import STALL_LIMIT_S
from voxserve.core.request import RequestState
from voxserve.viz.hosts import HostStalls

LANES_OVER_S = 2.0  # what lanes do is told of so long: short, so that a knob's effect shows
_DONE, _CANCELLED = RequestState.DONE, RequestState.CANCELLED  # looking them up costs as much


@dataclass(slots=True)
class RequestLife:
    """One request as far as the numbers need it; times in engine seconds."""

    arrival_s: float
    ttfa_s: float | None = None
    stall_s: float = 0.0
    ended_s: float | None = None
    state: RequestState = RequestState.WAITING

    def meets(self, ttfa_target_s: float) -> bool:
        """Whether a finished request met the objective."""
        if self.ttfa_s is None or self.ttfa_s > ttfa_target_s:
            return False
        return self.stall_s < STALL_LIMIT_S and self.state is _DONE


@dataclass(frozen=True, slots=True)
class Numbers:
    """A window's summary; None where nothing happened. Shares are 0 to 1.

    Attributes:
        num_stalls, num_host_stalls: Chunks that came late, and those the host made late.
    """

    window_s: float
    ttfa_p50_s: float | None
    ttfa_p90_s: float | None
    attainment: float | None
    goodput_rps: float
    num_stalled: int
    stall_s: float
    num_stalls: int
    num_host_stalls: int
    lane_busy: dict[LaneName, float]
    decode_batch: float | None
    codec_batch: float | None
    num_ended: int


@dataclass
class LiveNumbers:
    """Rolling summary over the last `window_s` seconds.

    Cancelled requests are no offered load that was missed: they don't enter attainment.
    """

    window_s: float = 30.0
    requests: dict[int, RequestLife] = field(default_factory=dict[int, RequestLife])
    hosts: HostStalls = field(default_factory=HostStalls)
    _spans: deque[LaneSpan] = field(default_factory=deque[LaneSpan])
    _ttfas: deque[tuple[float, float]] = field(default_factory=deque[tuple[float, float]])
    _first_s: float | None = None

    def add(self, records: Iterable[Record]) -> None:
        """Takes in a delta of the trace."""
        for record in records:
            if isinstance(record, LaneSpan):
                self._spans.append(record)
            elif isinstance(record, RequestChange):
                self._change(record)
            elif isinstance(record, ChunkLife):
                self._chunk(record)
            elif isinstance(record, HostDelay):
                self.hosts.delay(record)

    def _change(self, change: RequestChange) -> None:
        life = self.requests.setdefault(change.request_id, RequestLife(change.time_s))
        life.state = change.state
        if self._first_s is None:
            self._first_s = change.time_s
        if change.state.is_final:
            life.ended_s = change.time_s

    def _chunk(self, chunk: ChunkLife) -> None:
        life = self.requests.get(chunk.request_id)
        if life is None or chunk.delivered_s is None:
            return
        if life.ttfa_s is None and chunk.audio_s > 0:
            life.ttfa_s = chunk.delivered_s - life.arrival_s
            self._ttfas.append((chunk.delivered_s, life.ttfa_s))
        life.stall_s += chunk.stall_s
        if chunk.stall_s:
            self.hosts.stall(chunk)

    def summary(self, now_s: float, ttfa_target_s: float) -> Numbers:
        """Forgets what is too old and sums up the rest."""
        self._forget(now_s)
        self.hosts.settle(now_s, self.window_s)
        lives = self.requests.values()
        ended = [
            life for life in lives if life.ended_s is not None and life.state is not _CANCELLED
        ]
        stalls_s = [life.stall_s for life in lives if life.stall_s]
        since_s = now_s if self._first_s is None else self._first_s
        seen_s = max(1.0, min(self.window_s, now_s - since_s))
        met = sum(life.meets(ttfa_target_s) for life in ended)
        p50_s, p90_s = _percentiles([ttfa_s for _, ttfa_s in self._ttfas], (50, 90))
        return Numbers(
            window_s=self.window_s,
            ttfa_p50_s=p50_s,
            ttfa_p90_s=p90_s,
            attainment=met / len(ended) if ended else None,
            goodput_rps=met / seen_s,
            num_stalled=sum(stall_s >= STALL_LIMIT_S for stall_s in stalls_s),
            stall_s=sum(stalls_s),
            num_stalls=len(self.hosts.all_s),
            num_host_stalls=len(self.hosts.host_s),
            lane_busy=self._busy(now_s),
            decode_batch=self._mean_batch(JobKind.DECODE),
            codec_batch=self._mean_batch(JobKind.CODEC),
            num_ended=len(ended),
        )

    def _forget(self, now_s: float) -> None:
        from_s = now_s - self.window_s
        while self._spans and self._spans[0].end_s < now_s - LANES_OVER_S:
            self._spans.popleft()
        while self._ttfas and self._ttfas[0][0] < from_s:
            self._ttfas.popleft()
        old = [
            request_id
            for request_id, life in self.requests.items()
            if life.ended_s is not None and life.ended_s < from_s
        ]
        for request_id in old:
            del self.requests[request_id]

    def _busy(self, now_s: float) -> dict[LaneName, float]:
        from_s = now_s - LANES_OVER_S
        busy: dict[LaneName, float] = {}
        for lane in LaneName:
            spans = [span for span in self._spans if span.lane is lane]
            busy_s = sum([span.end_s - max(span.start_s, from_s) for span in spans])
            busy[lane] = min(1.0, busy_s / LANES_OVER_S)
        return busy

    def _mean_batch(self, kind: JobKind) -> float | None:
        sizes = [span.batch for span in self._spans if span.kind is kind]
        return sum(sizes) / len(sizes) if sizes else None


def _percentiles(values: list[float], percents: tuple[int, ...]) -> list[float | None]:
    if not values:
        return [None] * len(percents)
    return [float(value) for value in np.percentile(values, percents)]
