"""One chunk's life in words for the workbench: its story at once, a cure after some simulation."""

from __future__ import annotations

import html
from collections.abc import Iterable

from voxserve.core.errors import InvalidInput
from voxserve.core.events import ChunkLife, LaneSpan, Record, SettingChange
from voxserve.core.protocols import SpeechEngine
from voxserve.core.request import RequestState
from voxserve.core.settings import Prepared, Settings
from voxserve.sim.explain import explain
from voxserve.sim.what_if import Context
from voxserve.viz.wire import time_of

BEFORE_S = 10.0  # of the trace before the chunk's delivery that its story can need
MAX_CURE_RECORDS = 6000  # a cure replays the trace many times: not where that takes minutes


def chunk_words(records: Iterable[Record], request_id: int, index: int) -> str:
    """HTML sentences about one chunk; says so when the trace no longer holds it."""
    held = list(records)
    chunk = find(held, request_id, index)
    if chunk is None:
        return "The trace no longer holds this chunk."
    spans = (r for r in reversed(held) if isinstance(r, LaneSpan))
    span = next((one for one in spans if one.job_id == chunk.job_id), None)
    told = sentences(chunk, span)
    if is_late(chunk):
        told += _attribution(held, chunk)
    return " ".join(told)


def find(records: list[Record], request_id: int, index: int) -> ChunkLife | None:
    """The record of one chunk."""
    for record in reversed(records):
        if isinstance(record, ChunkLife) and record.request_id == request_id:
            if record.index == index:
                return record
    return None


def is_late(chunk: ChunkLife) -> bool:
    """Whether it came after its deadline."""
    if chunk.deadline_s is None or chunk.delivered_s is None:
        return False
    return chunk.delivered_s > chunk.deadline_s


def cure_words(engine: SpeechEngine, request_id: int, index: int) -> str:
    """The smallest setting change that would have avoided a late chunk; takes seconds."""
    held = engine.trace.records()
    chunk = find(held, request_id, index)
    if chunk is None or not is_late(chunk):
        return ""
    window = _window(held, chunk)
    if len(window) > MAX_CURE_RECORDS:
        return "Too much went on to look for a cure here; “What if …” simulates the whole load."
    settings = _settings_at(engine, held, time_of(window[0]))
    samples = round(engine.frame_s * engine.sample_rate_hz)
    context = Context(settings, engine.prepared, samples, engine.sample_rate_hz)
    try:
        cure = explain(window, request_id, index, context).cure
    except InvalidInput:
        return ""
    if cure is None:
        return "No single setting that was tried would have avoided it."
    return f"<b>{html.escape(cure.sentence())}</b>"


def sentences(chunk: ChunkLife, span: LaneSpan | None) -> list[str]:
    """The story of a chunk in order of time."""
    told = [f"<b>Request {chunk.request_id}, chunk {chunk.index}</b>: {_class_words(chunk)}."]
    if chunk.launched_s is None or chunk.delivered_s is None:
        told.append("It was dropped before it was delivered.")
        return told
    waited_s = chunk.launched_s - max(chunk.ready_s, chunk.head_s)
    with_whom = f"with {span.batch - 1} others" if span and span.batch > 1 else "alone"
    decode_s = chunk.delivered_s - chunk.launched_s
    told.append(
        f"It waited {_ms(waited_s)} for the {chunk.lane} lane and was decoded {with_whom} "
        f"in {_ms(decode_s)}."
    )
    if chunk.deadline_s is not None and not is_late(chunk):
        told.append(f"It came {_ms(chunk.deadline_s - chunk.delivered_s)} before its deadline.")
    elif chunk.deadline_s is not None:
        late_s = chunk.delivered_s - chunk.deadline_s
        told.append(f"It came <b>{_ms(late_s)} after its deadline</b>.")
    return told


def _class_words(chunk: ChunkLife) -> str:
    words = f"{chunk.urgency} ({html.escape(str(chunk.reason))})"
    if chunk.promoted_s is not None:
        words += ", promoted from background while it waited"
    return words


def _attribution(records: list[Record], chunk: ChunkLife) -> list[str]:
    """What the lateness consists of, where the trace reaches back far enough."""
    try:
        parts = explain(_window(records, chunk), chunk.request_id, chunk.index).parts
    except InvalidInput:
        return []
    sums: dict[str, float] = {}
    for part in parts:
        sums[part.words()] = sums.get(part.words(), 0.0) + part.seconds
    largest = sorted(sums.items(), key=lambda item: -item[1])[:3]
    return ["Of that: " + ", ".join(f"{_ms(s)} {html.escape(words)}" for words, s in largest) + "."]


def _window(records: list[Record], chunk: ChunkLife) -> list[Record]:
    """From before the request's arrival to the chunk's delivery."""
    end_s = chunk.delivered_s or chunk.ready_s
    arrivals = [
        time_of(record)
        for record in records
        if getattr(record, "request_id", None) == chunk.request_id
        and getattr(record, "state", None) is RequestState.WAITING
    ]
    from_s = min([end_s - BEFORE_S, *arrivals])
    return [record for record in records if from_s <= time_of(record) <= end_s]


def _settings_at(engine: SpeechEngine, records: list[Record], time_s: float) -> Settings:
    """The settings in force at an earlier time: today's with later changes taken back."""
    settings = engine.settings
    for record in reversed(records):
        if isinstance(record, SettingChange) and record.time_s > time_s:
            settings = _taken_back(settings, engine.prepared, record)
    return settings


def _taken_back(settings: Settings, prepared: Prepared, change: SettingChange) -> Settings:
    """Recorded values are text; one that cannot be read back changes nothing."""
    text = change.old.strip("()").rstrip(",")
    is_number = isinstance(getattr(settings, change.name, None), int | float)
    try:
        value = float(text) if is_number else text
        return settings.changed(prepared, **{change.name: value})
    except ValueError:  # InvalidSetting is one, too
        return settings


def _ms(value_s: float) -> str:
    return f"{1000 * value_s:.0f} ms" if abs(value_s) < 1 else f"{value_s:.2f} s"
