"""One chunk's life in words for the workbench."""

from __future__ import annotations

import html
from collections.abc import Iterable

from voxserve.core.errors import InvalidInput
from voxserve.core.events import ChunkLife, HostDelay, LaneSpan, Record
from voxserve.core.request import RequestState
from voxserve.sim.explain import Explanation, Label, explain
from voxserve.viz.hosts import busy_s, is_host_stall
from voxserve.viz.wire import ListenerStall, time_of
from voxserve.viz.words import duration, request_name

KEPT_S = 90.0  # of the trace, for stories: the view shows less
BEFORE_S = 10.0  # of the trace before the chunk's delivery that its story can need
# Who is to blame, where it is not the server's scheduling.
BLAME = {
    Label.INPUT: "The text came too late: this is the input's stall, not the server's, and no "
    "setting of the server would have prevented it.",
    Label.HOST: "The serving loop itself came late: the kernel was busy with other code.",
    Label.LISTENER: "The listener had reported audio in hand, so the server took its time.",
}


def chunk_words(records: Iterable[Record], request_id: int, index: int, text: str = "") -> str:
    """HTML sentences about one chunk; says so when the trace no longer holds it.

    Args:
        records: The engine's trace.
        request_id: Whose chunk.
        index: Which one, 0 first.
        text: What the request speaks, where people know it by that.
    """
    held = list(records)
    chunk = find(held, request_id, index)
    if chunk is None:
        return "The trace no longer holds this chunk."
    spans = (r for r in reversed(held) if isinstance(r, LaneSpan))
    span = next((one for one in spans if one.job_id == chunk.job_id), None)
    name = html.escape(request_name(request_id, text))
    told = [f"<b>{name[0].upper()}{name[1:]}, chunk {index}</b>: {_class_words(chunk)}."]
    if chunk.launched_s is None or chunk.delivered_s is None:
        return f"{told[0]} It was dropped before it was delivered."
    told.append(_life_words(chunk, span))
    found = explanation(held, chunk)
    if found is None:
        told.append(_lateness_words(chunk))
    elif is_late(chunk):
        told.append(f"<b>{html.escape(found.about_it)}</b> {_blame_words(held, chunk, found)}")
    else:
        told.append(html.escape(found.about_it))
    return " ".join(told).rstrip()


def heard_words(
    records: Iterable[Record],
    stall: ListenerStall,
    prebuffer_s: float,
    jitter_s: float,
    text: str = "",
) -> str:
    """Why the browser ran dry: because of the server, or on the way.

    Args:
        records: The engine's trace.
        stall: What the player reported.
        prebuffer_s: The player's.
        jitter_s: The player's imitated network.
        text: What the request speaks.
    """
    held = list(records)
    name = html.escape(request_name(stall.stream, text))
    when = f"<b>Listener stall</b> of {name}: the browser ran dry."
    chunks = [
        r
        for r in held
        if isinstance(r, ChunkLife) and r.request_id == stall.stream and r.delivered_s is not None
    ]
    late = [c for c in chunks if is_late(c) and c.stall_s > 0.0]
    near = [c for c in late if abs((c.deadline_s or 0.0) - stall.time_s) < prebuffer_s + 1.0]
    if near:
        late_words = chunk_words(held, stall.stream, near[0].index, text)
        return f"{when} The server was late. {late_words}"
    spare_s = min(
        (c.deadline_s - (c.delivered_s or 0.0) for c in chunks if c.deadline_s is not None),
        default=None,
    )
    in_time = "" if spare_s is None else f", the tightest with {duration(spare_s)} to spare"
    cause = (
        f"The imitated network delays each message by up to {duration(jitter_s)}"
        if jitter_s > 0.0
        else "The delay came on the way to the browser or in it"
    )
    more_s = max(jitter_s, prebuffer_s + 0.1)
    return (
        f"{when} The server delivered every chunk in time{in_time}. {cause}; the prebuffer held "
        f"{duration(prebuffer_s)}. <b>A prebuffer of {duration(more_s)} would have covered more "
        "of it.</b>"
    )


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


def _blame_words(records: list[Record], chunk: ChunkLife, found: Explanation) -> str:
    delays = [record for record in records if isinstance(record, HostDelay)]
    if not is_host_stall(chunk, delays):
        return BLAME.get(found.label, "")
    return (
        f"Host stall: the notebook kernel was busy for {duration(busy_s(chunk, delays))} while the "
        "audio before it was played, with a cell, a callback or another program."
    )


def _life_words(chunk: ChunkLife, span: LaneSpan | None) -> str:
    assert chunk.launched_s is not None, "was launched"
    assert chunk.delivered_s is not None, "was delivered"
    waited_s = chunk.launched_s - max(chunk.ready_s, chunk.head_s)
    others = 0 if span is None else span.batch - 1
    whom = {0: "alone", 1: "with one other"}.get(others, f"with {others} others")
    decode_s = chunk.delivered_s - chunk.launched_s
    return (
        f"Ready, it waited {duration(waited_s)} for the {chunk.lane} lane and was decoded {whom} "
        f"in {duration(decode_s)}."
    )


def _lateness_words(chunk: ChunkLife) -> str:
    """Where the trace no longer reaches back to the request's arrival."""
    if chunk.deadline_s is None or chunk.delivered_s is None:
        return "Nobody listens, so it has no deadline."
    spare_s = chunk.deadline_s - chunk.delivered_s
    if spare_s >= 0.0:
        return f"It came {duration(spare_s)} before its deadline."
    return f"<b>It came {duration(-spare_s)} after its deadline.</b>"


def _class_words(chunk: ChunkLife) -> str:
    words = f"{chunk.urgency} ({html.escape(str(chunk.reason))})"
    if chunk.promoted_s is not None:
        words += ", promoted from background while it waited"
    return words


def explanation(records: list[Record], chunk: ChunkLife) -> Explanation | None:
    """Why a chunk came when it did; None where the trace does not reach back far enough."""
    try:
        return explain(window(records, chunk), chunk.request_id, chunk.index)
    except InvalidInput:
        return None


def window(records: list[Record], chunk: ChunkLife) -> list[Record]:
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
