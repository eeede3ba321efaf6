"""What another setting would have done: the recorded arrivals, simulated under both settings."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# (plotly's types are incomplete)

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from voxserve.core import profile as profiles
from voxserve.core import workload as workloads
from voxserve.core.errors import InvalidInput
from voxserve.core.events import LaneSpan, Record
from voxserve.core.jobs import JobKind, LaneName
from voxserve.core.profile import Profile
from voxserve.core.protocols import SpeechEngine
from voxserve.core.settings import Settings
from voxserve.sim.device import prepared_of
from voxserve.sim.simulator import SimulationResult, simulate_load
from voxserve.viz.figures import CODEC, DECODE, PREFILL, URGENT
from voxserve.viz.wire import time_of

SETTLE_S = 10.0  # the newest requests have not ended, so their lengths are not known yet
_SIM = "sim:"


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The same arrivals under the settings in force and under others.

    Attributes:
        changes: What differs, as text.
        before, after: Simulated runs. Both are simulations, so that they can be compared.
    """

    changes: dict[str, str]
    before: SimulationResult
    after: SimulationResult

    def rows(self) -> list[tuple[str, str, str]]:
        """Name, before and after of each figure."""
        pairs = [_figures(result) for result in (self.before, self.after)]
        return [(name, pairs[0][name], pairs[1][name]) for name in pairs[0]]

    def _repr_html_(self) -> str:
        return self.as_html()

    def as_html(self) -> str:
        """Both runs' figures side by side."""
        changed = ", ".join(f"{name} {value}" for name, value in self.changes.items())
        count = len(self.before.outcomes)
        heads = "".join(f"<th>{name}" for name, _, _ in self.rows())
        before = "".join(f"<td>{value}" for _, value, _ in self.rows())
        after = "".join(f"<td><b>{value}</b>" for _, _, value in self.rows())
        return (
            f"What if <b>{html.escape(changed or 'nothing changed')}</b>: {count} recorded "
            f'requests, simulated under both settings<table class="vs-table"><tr><th>{heads}</tr>'
            f"<tr><td>as it is{before}</tr><tr><td>what if{after}</tr></table>"
        )

    def figure(self, window_s: float = 4.0) -> Any:
        """The middle of both runs: lanes as they are, and below each its ghost."""
        middle_s = self.before.seconds / 2
        figure = go.Figure()
        for result, prefix, opacity in ((self.before, "", 1.0), (self.after, "what if: ", 0.55)):
            for lane, kind, colour in _LOOKS:
                spans = _within(result.records, lane, kind, middle_s, window_s)
                figure.add_trace(_bar(spans, f"{prefix}{lane}", colour, middle_s, opacity))
        rows = [f"{prefix}{lane}" for lane in LaneName for prefix in ("", "what if: ")]
        figure.update_layout(
            template="plotly_white",
            barmode="overlay",
            bargap=0.1,
            height=320,
            showlegend=False,
            margin={"l": 150, "r": 20, "t": 20, "b": 40},
            xaxis={"title": "seconds", "range": [0, window_s]},
            yaxis={"categoryorder": "array", "categoryarray": rows[::-1]},
        )
        return figure


_LOOKS = (
    (LaneName.LM, JobKind.PREFILL, PREFILL),
    (LaneName.LM, JobKind.DECODE, DECODE),
    (LaneName.BACKGROUND, JobKind.CODEC, CODEC),
    (LaneName.URGENT, JobKind.CODEC, URGENT),
)


def what_if(
    engine: SpeechEngine,
    seconds: float = 20.0,
    *,
    profile: Profile | str | None = None,
    **changes: Any,
) -> WhatIf:
    """Simulates the arrivals of the last seconds again, with other settings.

    Both runs start empty, and the newest ten seconds are left out: their requests' lengths are
    not known yet.

    Args:
        engine: Whose trace and settings.
        seconds: How much of the past.
        profile: Stage times of the device; known for a simulated one.
        changes: Settings by name.

    Raises:
        InvalidInput: No profile, or no request arrived and ended in that time.
        InvalidSetting: Says what is possible.
    """
    if profile is None:
        if not engine.device_name.startswith(_SIM):
            raise InvalidInput(
                f"what_if: no profile of {engine.device_name} is known; give one, such as "
                'profile="h200", or use a simulated device'
            )
        profile = engine.device_name.removeprefix(_SIM)
    found = profile if isinstance(profile, Profile) else profiles.load(profile)
    prepared = prepared_of(found)
    now = Settings().changed(prepared, **_known(engine.settings))
    then = now.changed(prepared, **changes)
    until_s = engine.now_s() - SETTLE_S
    recorded = [r for r in engine.trace.records() if time_of(r) >= until_s - seconds]
    load = workloads.offered(workloads.replay(recorded, engine.frame_s), 0.0, seconds, 0)
    before, after = (
        simulate_load(
            found, prepared, settings, load, rate_rps=0.0, seconds=seconds, seed=0, with_trace=True
        )
        for settings in (now, then)
    )
    told = {name: f"{_text(now, name)} → {_text(then, name)}" for name in changes}
    return WhatIf(told, before, after)


def _known(settings: Settings) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in Settings.__dataclass_fields__}


def _text(settings: Settings, name: str) -> str:
    return str(getattr(settings, name))


def _figures(result: SimulationResult) -> dict[str, str]:
    ttfas = sorted(o.ttfa_s for o in result.outcomes if o.ttfa_s is not None)
    p50, p90 = (ttfas[int(q * (len(ttfas) - 1))] if ttfas else float("nan") for q in (0.5, 0.9))
    stalled = sum(outcome.is_stalled for outcome in result.outcomes)
    busy = result.lanes
    codec = 100 * busy["background"].busy_share, 100 * busy["urgent"].busy_share
    return {
        "TTFA p50 / p90": f"{1000 * p50:.0f} / {1000 * p90:.0f} ms",
        "stalled requests": f"{stalled} of {len(result.outcomes)}",
        "SLO attainment": f"{100 * result.summary.attainment:.0f} %",
        "LM lane busy": f"{100 * (busy['prefill'].busy_share + busy['decode'].busy_share):.0f} %",
        "codec lanes busy": f"{codec[0]:.0f} + {codec[1]:.0f} %",
    }


def _within(
    records: tuple[Record, ...], lane: LaneName, kind: JobKind, from_s: float, window_s: float
) -> list[LaneSpan]:
    return [
        record
        for record in records
        if isinstance(record, LaneSpan)
        and (record.lane, record.kind) == (lane, kind)
        and from_s <= record.end_s <= from_s + window_s
    ]


def _bar(spans: list[LaneSpan], row: str, colour: str, from_s: float, opacity: float) -> Any:
    return go.Bar(
        orientation="h",
        base=[span.start_s - from_s for span in spans],
        x=[span.end_s - span.start_s for span in spans],
        y=[row] * len(spans),
        marker={"color": colour, "opacity": opacity, "line": {"width": 0}},
        hovertext=[f"{span.kind} of {span.batch}" for span in spans],
    )
