"""Would another setting have helped? The trace's own load and costs, replayed in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np

from voxserve.core.errors import InvalidSetting
from voxserve.core.events import ChunkLife, LaneSpan, Record, RequestChange, SettingChange
from voxserve.core.jobs import Cancel, JobKind, Partition, SettingsChanged
from voxserve.core.playback import FloatArray
from voxserve.core.request import RequestState
from voxserve.core.settings import ADMISSIONS, Prepared, Settings, Split
from voxserve.sim.fake import FakeWorld

_STEPS = (1, 3, 6)  # decode steps per prefill
_MARGINS_S = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class Context:
    """What a trace was recorded under.

    Attributes:
        settings: At the start of the trace (its changes are in the trace).
        prepared: What the device had executables for.
        frame_samples: Samples per frame.
    """

    settings: Settings
    prepared: Prepared
    frame_samples: int = 1920
    sample_rate_hz: int = 24_000
    codec_delay_samples: int = 0
    lookahead_frames: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """One setting with another value."""

    name: str
    old: Any
    new: Any

    def words(self) -> str:
        """Such as "background_batch 4 instead of 8"."""
        return f"{self.name} {_text(self.new)} instead of {_text(self.old)}"

    def sentence(self) -> str:
        """What it would have done."""
        return f"With {self.words()} it would have been in time."


class FittedCost:
    """Costs from a trace's own spans: the median per bucket and SMs, interpolated between."""

    def __init__(self, records: Sequence[Record]) -> None:
        seconds: dict[tuple[JobKind, int, int], dict[int, list[float]]] = {}
        for span in records:
            if isinstance(span, LaneSpan) and not span.failed:
                frames = span.num_frames if span.kind is JobKind.CODEC else 0
                curve = seconds.setdefault((span.kind, span.sms, frames), {})
                curve.setdefault(span.bucket, []).append(span.end_s - span.start_s)
        self._curves = {
            key: (
                np.array(sorted(curve), dtype=np.float64),
                np.array([median(curve[bucket]) for bucket in sorted(curve)]),
            )
            for key, curve in seconds.items()
        }

    @property
    def is_empty(self) -> bool:
        """Whether the trace holds no stage times at all."""
        return not self._curves

    def knows(self, split: Split) -> bool:
        """Whether both partitions of a split occur in the trace."""
        seen = {(kind, sms) for kind, sms, _ in self._curves}
        return {(JobKind.DECODE, split.lm_sms), (JobKind.CODEC, split.codec_sms)} <= seen

    @property
    def revision(self) -> int:
        """Never corrected."""
        return 0

    def decode_s(self, rows: int, split: Split, partition: Partition) -> float:
        """One decode step."""
        return self._at(JobKind.DECODE, _sms(split, partition), 0, rows)

    def prefill_s(self, num_tokens: int, num_prompts: int, split: Split) -> float:
        """One prefill."""
        return self._at(JobKind.PREFILL, 0, 0, num_tokens)

    def codec_s(self, rows: int, num_frames: int, split: Split, partition: Partition) -> float:
        """One codec batch."""
        return self._at(JobKind.CODEC, _sms(split, partition), num_frames, rows)

    def _at(self, kind: JobKind, sms: int, num_frames: int, size: int) -> float:
        curve = self._nearest(kind, sms, num_frames)
        if curve is None:
            return 0.0
        sizes, seconds = curve
        inside_s = float(np.interp(size, sizes, seconds))
        return inside_s * max(1.0, size / sizes[-1])  # past the largest seen: in proportion

    def _nearest(
        self, kind: JobKind, sms: int, num_frames: int
    ) -> tuple[FloatArray, FloatArray] | None:
        keys = [key for key in self._curves if key[0] is kind]
        if not keys:
            return None
        return self._curves[
            min(keys, key=lambda key: (key[1] != sms, abs(key[1] - sms), abs(key[2] - num_frames)))
        ]


def smallest_change(
    records: Sequence[Record],
    chunk: ChunkLife,
    is_first: bool,
    context: Context,
    max_steps: int | None = None,
) -> Change | None:
    """The change of one setting, smallest first, under which the chunk comes in time.

    Args:
        records: A trace that holds the chunk's request.
        chunk: A late one.
        is_first: Its request's first with audio.
        context: What the trace was recorded under.
        max_steps: As for `single_changes`.

    Returns:
        None when none of those tried helps, or when the replay with the settings as they were
        does not show the lateness (then it could not tell either; see `shows_lateness`).
    """
    cost = FittedCost(records)
    if not _is_late(records, chunk, is_first, context, cost, None):
        return None
    for change in single_changes(context.settings, context.prepared, cost.knows, max_steps):
        if not _is_late(records, chunk, is_first, context, cost, change):
            return change
    return None


def shows_lateness(
    records: Sequence[Record], chunk: ChunkLife, is_first: bool, context: Context
) -> bool:
    """Whether a replay with the settings as they were makes the chunk late, too."""
    return _is_late(records, chunk, is_first, context, FittedCost(records), None)


def _is_late(
    records: Sequence[Record],
    chunk: ChunkLife,
    is_first: bool,
    context: Context,
    cost: FittedCost,
    change: Change | None,
) -> bool:
    assert chunk.delivered_s is not None, "only delivered chunks are late"
    world = _world(records, context, cost, change)
    world.run(until_s=chunk.delivered_s + 5.0)
    heard = [c for c in world.records(ChunkLife) if c.request_id == chunk.request_id]
    if is_first:
        first = next((c for c in heard if c.audio_s > 0.0), None)
        return first is None or first.delivered_s > first.deadline_s
    return not any(c.index == chunk.index and c.stall_s == 0.0 for c in heard) or any(
        c.stall_s > 0.0 for c in heard if c.index <= chunk.index
    )


def _world(
    records: Sequence[Record], context: Context, cost: FittedCost, change: Change | None
) -> FakeWorld:
    def changed(settings: Settings) -> Settings:
        return settings if change is None else replace(settings, **{change.name: change.new})

    world = FakeWorld(
        changed(context.settings),
        context.prepared,
        cost,
        frame_samples=context.frame_samples,
        codec_delay_samples=context.codec_delay_samples,
        lookahead_frames=context.lookahead_frames,
        is_checked=False,
    )
    _send_requests(world, records)
    settings = context.settings
    for record in records:
        if isinstance(record, SettingChange):
            settings = applied(settings, context.prepared, record.name, record.new)
            world.send(record.time_s, SettingsChanged(changed(settings)))
    return world


def _send_requests(world: FakeWorld, records: Sequence[Record]) -> None:
    changes = [r for r in records if isinstance(r, RequestChange)]
    last = {r.request_id: r for r in changes}
    tokens = prompt_tokens(records)
    files = {r.request_id for r in records if isinstance(r, ChunkLife) and r.deadline_s is None}
    made = frames_made(records)
    for record in changes:
        if record.state is RequestState.WAITING:
            request_id = record.request_id
            frames = max(last[request_id].num_frames, made.get(request_id, 1))
            world.arrive(
                record.time_s,
                request_id,
                frames,
                prompt_tokens=(tokens.get(request_id, 20),),
                max_frames=frames,
                has_listener=request_id not in files,
            )
        elif record.state in (RequestState.CANCELLED, RequestState.FAILED):
            world.send(record.time_s, Cancel(record.request_id))


def prompt_tokens(records: Sequence[Record]) -> dict[int, int]:
    """Prompt lengths are not in a trace; its prefills' buckets, shared out, bound them."""
    return {
        request_id: max(1, span.bucket // span.batch)
        for span in records
        if isinstance(span, LaneSpan) and span.kind is JobKind.PREFILL
        for request_id in span.rows
    }


def frames_made(records: Sequence[Record]) -> dict[int, int]:
    """Frames in the chunks seen: for requests that had not ended when the trace was taken."""
    made: dict[int, int] = {}
    for r in records:
        if isinstance(r, ChunkLife):
            made[r.request_id] = max(made.get(r.request_id, 1), r.first_frame + r.num_frames)
    return made


def single_changes(
    settings: Settings,
    prepared: Prepared,
    knows: Callable[[Split], bool],
    max_steps: int | None = None,
) -> Iterator[Change]:
    """Changes of one setting by size: one step of each, then two steps, and so on.

    Args:
        settings: As they are.
        prepared: What the device has.
        knows: Whether a split's stage times are known.
        max_steps: The largest change, in steps; all that are prepared when None.
    """
    ladders = _ladders(settings, prepared, knows)
    longest = max(len(ladder) for _, ladder in ladders)
    for step in range(min(longest, max_steps or longest)):
        for name, ladder in ladders:
            if step < len(ladder):
                old = getattr(settings, name)
                try:
                    new = settings.changed(prepared, **{name: ladder[step]})
                except InvalidSetting:
                    continue
                yield Change(name, old, getattr(new, name))


def _ladders(
    settings: Settings, prepared: Prepared, knows: Callable[[Split], bool]
) -> list[tuple[str, list[Any]]]:
    margin, batch = settings.urgency_margin_s, settings.background_batch
    smaller = [n for n in reversed(prepared.chunk_frames) if n < settings.chunk_ramp[0]]
    splits = [s for s in prepared.splits if s != settings.sm_split and knows(s)]
    return [
        ("urgency_margin_s", [m for m in _MARGINS_S if m > margin]),
        ("background_batch", sorted({max(1, batch // 2), max(1, batch // 4), 1}, reverse=True)),
        ("max_prefill_defer_s", [settings.max_prefill_defer_s * f for f in (0.5, 0.25, 0.0)]),
        ("max_background_batch", _below(prepared.codec_buckets, settings.max_background_batch)),
        ("max_decode_batch", _above(prepared.decode_buckets, settings.max_decode_batch)),
        ("admission", [a for a in ADMISSIONS if a != settings.admission]),
        ("sm_split", splits),
        ("chunk_ramp", [(n, *settings.chunk_ramp) for n in smaller]),
        ("lane_mode", [m for m in ("partitioned_urgent",) if m != settings.lane_mode]),
        ("decode_steps_per_prefill", [n for n in _STEPS if n != settings.decode_steps_per_prefill]),
        ("max_running", [prepared.num_slots] if settings.max_running < prepared.num_slots else []),
    ]


def _below(sizes: tuple[int, ...], size: int) -> list[int]:
    return [n for n in reversed(sizes) if n < size]


def _above(sizes: tuple[int, ...], size: int) -> list[int]:
    return [n for n in sizes if n > size]


def applied(settings: Settings, prepared: Prepared, name: str, recorded: str) -> Settings:
    """A recorded value, which is text; one that this build does not know changes nothing."""
    text = recorded.strip("()").rstrip(",")
    for value in (text, *_numbers(text)):
        try:
            return settings.changed(prepared, **{name: value})
        except InvalidSetting:
            continue
    return settings


def _numbers(text: str) -> list[float]:
    try:
        return [float(text)]
    except ValueError:
        return []


def _sms(split: Split, partition: Partition) -> int:
    if partition is Partition.LM:
        return split.lm_sms
    return split.codec_sms if partition is Partition.CODEC else 0


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
