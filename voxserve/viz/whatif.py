"""What another setting would have done: the last seconds' load, simulated under both settings."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from voxserve.core import profile as profiles
from voxserve.core.events import ChunkLife, LaneSpan, Record
from voxserve.core.jobs import LaneName
from voxserve.core.profile import Profile
from voxserve.core.protocols import SpeechEngine
from voxserve.sim.rerun import WARM_S, Past, PastRequest, SoFar, past_of, rerun, so_far
from voxserve.sim.what_if import FittedCost
from voxserve.viz import checks
from voxserve.viz.aside import Aside, Send, parts
from voxserve.viz.figures import timeline_figure
from voxserve.viz.wire import recent, time_of
from voxserve.viz.words import duration, percent

PROGRESS_STEP = 0.05
_SIM = "sim:"


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The last seconds as they were and as they would have been.

    Attributes:
        name: What was changed, for people.
        changes: Setting -> "old → new".
        seconds: Length of the window, which ended at `until_s` on the engine's clock.
        measured: Figures of what did happen.
        before, after: Simulated with the settings as they were and as they were not. Both are
            simulations, so that they can be compared.
        num_guessed: Requests that were refused or had not ended: their lengths were guessed.
        ghost: What the lanes would have done.
        recorded: What they did.
    """

    name: str
    changes: dict[str, str]
    seconds: float
    until_s: float
    measured: SoFar
    before: SoFar
    after: SoFar
    num_guessed: int
    ghost: tuple[Record, ...] = field(repr=False)
    recorded: tuple[Record, ...] = field(repr=False)

    def rows(self) -> list[tuple[str, str, str]]:
        """Name, before and after of each figure."""
        before, after = _figures(self.before), _figures(self.after)
        return [(name, before[name], after[name]) for name in before]

    def words(self) -> str:
        """The difference in one line."""
        old, new = _short(self.before), _short(self.after)
        parts = [f"{label} {old[label]} → {new[label]}" for label in old]
        return f"{self.name}, last {self.seconds:.0f} s: {'; '.join(parts)}"

    def as_html(self) -> str:
        """The line, and the figures side by side."""
        return f"<b>{html.escape(self.words())}</b>{self.table_html()}"

    def table_html(self) -> str:
        """The figures side by side."""
        changed = ", ".join(f"{name} {value}" for name, value in self.changes.items())
        measured = _figures(self.measured)
        rows = {
            "measured": list(measured.values()),
            "simulated as it was": [before for _, before, _ in self.rows()],
            "simulated otherwise": [f"<b>{after}</b>" for _, _, after in self.rows()],
        }
        body = "".join(
            f"<tr><th>{name}" + "".join(f"<td>{cell}" for cell in cells) + "</tr>"
            for name, cells in rows.items()
        )
        heads = "".join(f"<th>{name}" for name in measured)
        guessed = (
            f", lengths guessed of {self.num_guessed} that were refused or still running"
            if self.num_guessed
            else ""
        )
        return (
            f'<table class="vs-table"><tr><th>{heads}</tr>{body}</table>'
            f"{html.escape(changed or 'nothing changed')} · {self.after.num_requests} requests"
            f"{guessed}"
        )

    def _repr_html_(self) -> str:
        return self.as_html()

    def figure(self, window_s: float = 8.0) -> Any:
        """The end of the window: lanes as they were, and under each its ghost."""
        return timeline_figure(
            self.recorded, window_s=window_s, end_s=self.until_s, ghost=(self.name, self.ghost)
        )


@dataclass(frozen=True, slots=True)
class _Task:
    """The past, served as it was and with other settings (see `viz.aside`).

    Attributes:
        past: Without its requests, which come as the items.
    """

    past: Past
    cost: Profile | FittedCost
    overrides: dict[str, Any]

    def work(self, items: list[PastRequest], send: Send) -> None:
        """Sends "progress", the second run's "records", and the "figures" of both."""
        past = replace(self.past, requests=tuple(items))
        figures: list[SoFar] = []
        records: list[Record] = []
        for turn, overrides in enumerate(({}, self.overrides)):
            taker = _Taker(past, turn, send)
            rerun(past, self.cost, overrides, taker.take)
            records = taker.records
            target_s = overrides.get("ttfa_target_s", past.settings[-1][1].ttfa_target_s)
            figures.append(so_far(records, past.from_s, past.until_s, target_s))
        shown = [r for r in map(_slim, records) if r is not None]
        for part in parts(shown):
            send("records", part)
        send("figures", tuple(figures))


class _Taker:
    """Keeps a run's records and tells how far both runs are."""

    def __init__(self, past: Past, turn: int, send: Send) -> None:
        self.records: list[Record] = []
        self._from_s = past.requests[0].arrival_s
        self._length_s = max(1e-9, past.until_s - self._from_s)
        self._turn = turn
        self._send = send
        self._told = 0.0

    def take(self, record: Record) -> None:
        """A record of the simulation."""
        self.records.append(record)
        share = (self._turn + (time_of(record) - self._from_s) / self._length_s) / 2
        if share >= self._told + PROGRESS_STEP:
            self._told = share
            self._send("progress", min(1.0, share))


def _slim(record: Record) -> Record | None:
    """What is drawn: spans without their rows, and chunks."""
    if isinstance(record, LaneSpan):
        return replace(record, rows=())
    return record if isinstance(record, ChunkLife) else None


class Question:
    """One simulation of the past in a process of its own.

    Args:
        engine: Whose trace and settings.
        seconds: How much of the past.
        profile: Stage times of the device; known for a simulated one, else those of the trace.
        name: What is changed, for people; the settings' names unless given.
        changes: Settings by name.

    Raises:
        InvalidInput: No engine, no such window, or no request arrived in it.
        InvalidSetting: Says what is possible.
    """

    def __init__(
        self,
        engine: SpeechEngine,
        seconds: float = 20.0,
        *,
        profile: Profile | str | None = None,
        name: str = "",
        **changes: Any,
    ) -> None:
        engine, seconds = checks.engine(engine), checks.window(seconds)
        now = engine.settings
        then = now.changed(engine.prepared, **changes)
        until_s = engine.now_s()
        self._recorded = recent(engine.trace, until_s - seconds - WARM_S)
        self._past = past_of(
            self._recorded,
            now,
            engine.prepared,
            frame_s=engine.frame_s,
            sample_rate_hz=engine.sample_rate_hz,
            from_s=until_s - seconds,
            until_s=until_s,
        )
        cost = cost_of(engine, self._recorded, profile)
        overrides = {setting: getattr(then, setting) for setting in changes}
        self._changes = {s: f"{getattr(now, s)} → {getattr(then, s)}" for s in changes}
        told = ", ".join(f"{setting} {value}" for setting, value in overrides.items())
        self.name = name or told or "nothing changed"
        self.seconds = seconds
        self._aside = Aside(
            _Task(replace(self._past, requests=()), cost, overrides), self._past.requests
        )

    def answer(self, progress: Callable[[float], None] = lambda share: None) -> WhatIf:
        """Simulates; the caller waits, the engine does not.

        Args:
            progress: Told the share done, 0 to 1.

        Raises:
            InvalidInput: A setting whose stage times are not known.
            VoxserveError: Cancelled, or the process ended.
        """
        ghost: list[Record] = []
        figures: tuple[SoFar, SoFar] | None = None
        for kind, content in self._aside.messages():
            if kind == "progress":
                progress(content)
            elif kind == "records":
                ghost += content
            else:
                figures = content
        assert figures is not None, "a task that ends has sent them"
        return self._told(*figures, ghost)

    @property
    def is_cancelled(self) -> bool:
        """Whether its answer is no longer wanted."""
        return self._aside.is_cancelled

    def cancel(self) -> None:
        """Ends the simulation; `answer` raises. Harmless afterwards."""
        self._aside.cancel()

    def _told(self, before: SoFar, after: SoFar, ghost: list[Record]) -> WhatIf:
        past = self._past
        target_s = past.settings[-1][1].ttfa_target_s
        return WhatIf(
            name=self.name,
            changes=self._changes,
            seconds=past.until_s - past.from_s,
            until_s=past.until_s,
            measured=so_far(self._recorded, past.from_s, past.until_s, target_s),
            before=before,
            after=after,
            num_guessed=past.num_guessed,
            ghost=tuple(r for r in ghost if time_of(r) >= past.from_s),
            recorded=tuple(r for r in self._recorded if isinstance(r, LaneSpan | ChunkLife)),
        )


def what_if(
    engine: SpeechEngine,
    seconds: float = 20.0,
    *,
    profile: Profile | str | None = None,
    **changes: Any,
) -> WhatIf:
    """Simulates the last seconds again with other settings; waits for the answer.

    Arguments and errors as for `Question`.
    """
    return Question(engine, seconds, profile=profile, **changes).answer()


def cost_of(
    engine: SpeechEngine, records: Sequence[Record], given: Profile | str | None = None
) -> Profile | FittedCost:
    """Stage times: of a profile that is given or simulated, else those of the records."""
    if isinstance(given, Profile):
        return given
    if given is None and engine.device_name.startswith(_SIM):
        given = engine.device_name.removeprefix(_SIM)
    return FittedCost(records) if given is None else profiles.load(given)


def _short(figures: SoFar) -> dict[str, str]:
    return {
        "TTFA p90": duration(figures.ttfa_p90_s),
        "stalled": str(figures.num_stalled),
        "attainment": percent(figures.attainment),
    }


def _figures(figures: SoFar) -> dict[str, str]:
    busy = figures.lane_busy
    codec = busy[LaneName.BACKGROUND], busy[LaneName.URGENT]
    return {
        "TTFA p50 / p90": f"{duration(figures.ttfa_p50_s)} / {duration(figures.ttfa_p90_s)}",
        "stalled requests": f"{figures.num_stalled} of {figures.num_requests}",
        "SLO attainment": percent(figures.attainment),
        "LM lane busy": percent(busy[LaneName.LM]),
        "codec lanes busy": f"{100 * codec[0]:.0f} + {100 * codec[1]:.0f} %",
    }
