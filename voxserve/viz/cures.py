"""What would have prevented a late chunk: a setting, or less load; found by simulation aside."""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import dataclass, replace

from voxserve.core.errors import InvalidInput
from voxserve.core.events import ChunkLife, Record, RequestChange, SettingChange
from voxserve.core.profile import Profile
from voxserve.core.protocols import SpeechEngine
from voxserve.core.settings import Settings, Split
from voxserve.sim.explain import Label
from voxserve.sim.possible import PROMISE, Possible, possible
from voxserve.sim.rerun import WARM_S, Past, PastRequest, past_of
from voxserve.sim.what_if import (
    Context,
    FittedCost,
    applied,
    shows_lateness,
    single_changes,
    smallest_change,
)
from voxserve.viz.aside import Aside, Send
from voxserve.viz.explain import explanation, find, is_late, window
from voxserve.viz.whatif import cost_of
from voxserve.viz.wire import time_of
from voxserve.viz.words import percent

LOAD_S = 20.0  # before the chunk's delivery: was that load possible at all?
MIN_REQUESTS = 20  # fewer are no load that could be too much
MANY_RECORDS = 12_000  # replays of more take seconds each: only one step of each setting is tried
WELL = "served well (first audio in time, no stall)"
NOT_REPRODUCED = (
    "Simulated again, with the settings as they were, it comes in time: what made it late is not "
    "in the scheduling but in the machine or before these seconds."
)


@dataclass(frozen=True, slots=True)
class _Search:
    """Whether the load was possible at all; if so, which setting saves the chunk.

    Attributes:
        past: Without its requests, which come as items like the records of the chunk's life; None
            where hardly anything arrived.
    """

    past: Past | None
    cost: Profile | FittedCost
    chunk: ChunkLife
    is_first: bool
    context: Context

    def work(self, items: list[Record | PastRequest], send: Send) -> None:
        """Sends "progress" and the "cure" in words."""
        requests = tuple(item for item in items if isinstance(item, PastRequest))
        records = [item for item in items if not isinstance(item, PastRequest)]
        send("cure", self._load_words(requests, send) or self._chunk_words(records))

    def _load_words(self, requests: tuple[PastRequest, ...], send: Send) -> str:
        if self.past is None:
            return ""
        past = replace(self.past, requests=requests)
        settings, prepared = past.settings[-1][1], past.prepared
        changes = list(single_changes(settings, prepared, self._knows, max_steps=1))
        found = possible(past, self.cost, changes, lambda share: send("progress", share))
        return "" if found.is_kept else load_words(found)

    def _knows(self, split: Split) -> bool:
        return isinstance(self.cost, Profile) or self.cost.knows(split)

    def _chunk_words(self, records: list[Record]) -> str:
        steps = 1 if len(records) > MANY_RECORDS else None
        late = records, self.chunk, self.is_first, self.context
        cure = smallest_change(*late, steps)
        if cure is not None:
            return f"<b>{html.escape(cure.sentence())}</b>"
        if not shows_lateness(*late):
            return NOT_REPRODUCED
        return "No single setting that was tried would have avoided it."


def load_words(found: Possible) -> str:
    """HTML sentences about a load that was not served well."""
    came = (
        f"{_rate(found.offered_rps)} came in the {found.seconds:.0f} s before; simulated with the "
        f"settings as they were, {percent(found.attainment)} of them are {WELL}."
    )
    if found.cure is not None:
        cure = html.escape(found.cure.words())
        return f"{came} <b>With {cure} it is at least {percent(PROMISE)}.</b>"
    tried = f"<b>Too much load: none of {found.num_tried} other settings prevents it.</b> {came}"
    if found.rate_rps is None:
        return f"{tried} Not even a thirtieth of it can be: the target is out of reach here."
    over = found.offered_rps / found.rate_rps - 1.0
    return (
        f"{tried} <b>Of about {_rate(found.rate_rps)}, {percent(PROMISE)} would have been: "
        f"{percent(over)} too much came.</b>"
    )


def _rate(rps: float) -> str:
    return f"{rps:.{0 if rps >= 10 else 1}f} requests/s"


class CureSearch:
    """Looks for the smallest change that would have avoided a late chunk.

    Args:
        engine: Whose settings.
        records: Its trace of late.
        request_id, index: The chunk; nothing is looked for when it was not late.
    """

    def __init__(
        self, engine: SpeechEngine, records: list[Record], request_id: int, index: int
    ) -> None:
        self._aside: Aside | None = None
        chunk = find(records, request_id, index)
        found = None if chunk is None else explanation(records, chunk)
        if chunk is None or not is_late(chunk) or found is None or found.label is Label.INPUT:
            return
        held = window(records, chunk)
        settings = _settings_at(engine, records, time_of(held[0]))
        samples = round(engine.frame_s * engine.sample_rate_hz)
        context = Context(settings, engine.prepared, samples, engine.sample_rate_hz)
        past, cost = _past(engine, records, chunk), cost_of(engine, records)
        requests = () if past is None else past.requests
        past = None if past is None else replace(past, requests=())
        search = _Search(past, cost, chunk, found.is_first, context)
        self._aside = Aside(search, [*requests, *held])

    def words(self, progress: Callable[[float], None] = lambda share: None) -> str:
        """HTML; "" where there is nothing to cure. Takes seconds.

        Args:
            progress: Told the share of the longest search that is done, 0 to 1.

        Raises:
            VoxserveError: Cancelled, or the process ended.
        """
        words = ""
        for kind, content in () if self._aside is None else self._aside.messages():
            if kind == "progress":
                progress(content)
            else:
                words = content
        return words

    @property
    def is_cancelled(self) -> bool:
        """Whether its answer is no longer wanted."""
        return self._aside is not None and self._aside.is_cancelled

    def cancel(self) -> None:
        """Ends the search; `words` raises. Harmless afterwards."""
        if self._aside is not None:
            self._aside.cancel()


def _past(engine: SpeechEngine, records: list[Record], chunk: ChunkLife) -> Past | None:
    """The load that led to a chunk's delivery; None when hardly anything arrived."""
    assert chunk.delivered_s is not None, "a late chunk was delivered"
    arrivals = [time_of(r) for r in records if isinstance(r, RequestChange)]
    from_s = max(chunk.delivered_s - LOAD_S, min(arrivals, default=0.0))
    try:
        past = past_of(
            [record for record in records if time_of(record) >= from_s - WARM_S],
            engine.settings,
            engine.prepared,
            frame_s=engine.frame_s,
            sample_rate_hz=engine.sample_rate_hz,
            from_s=from_s,
            until_s=chunk.delivered_s,
        )
    except InvalidInput:
        return None
    return past if len(past.requests) >= MIN_REQUESTS else None


def _settings_at(engine: SpeechEngine, records: list[Record], time_s: float) -> Settings:
    """The settings in force at an earlier time: today's with later changes taken back."""
    settings = engine.settings
    for record in reversed(records):
        if isinstance(record, SettingChange) and record.time_s > time_s:
            settings = applied(settings, engine.prepared, record.name, record.old)
    return settings
