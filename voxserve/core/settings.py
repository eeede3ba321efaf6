"""The scheduler's settings: one frozen value, validated at the door, swapped atomically."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from typing import Any, cast

from voxserve.core.errors import InvalidSetting


@dataclass(frozen=True, slots=True, order=True)
class Split:
    """Division of the SMs (on a CPU: threads) between backbone and codec; `Split()` is none."""

    lm_sms: int = 0
    codec_sms: int = 0

    @property
    def is_none(self) -> bool:
        """Lanes stay asynchronous, each on the whole device."""
        return self.lm_sms == 0

    def __str__(self) -> str:
        return "none" if self.is_none else f"{self.lm_sms}/{self.codec_sms}"

    @classmethod
    def parse(cls, value: object) -> Split:
        """Reads "100/32" or "none".

        Raises:
            InvalidSetting: The text is neither.
        """
        if isinstance(value, Split):
            return value
        if isinstance(value, str):
            text = value.strip().lower()
            if text == "none":
                return cls()
            lm, slash, codec = text.partition("/")
            if slash and lm.strip().isdecimal() and codec.strip().isdecimal():
                split = cls(int(lm), int(codec))
                if split.lm_sms > 0 and split.codec_sms > 0:
                    return split
        raise InvalidSetting(f'sm_split: {value!r} is not like "100/32" or "none"')


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a device has executables for; a setting outside it is refused with this list.

    Attributes:
        splits: Prepared SM splits, `Split()` included where lanes can run unsplit.
        decode_buckets, codec_buckets, urgent_buckets: Batch sizes, ascending.
        prefill_buckets: Prompt tokens per prefill, ascending.
        chunk_frames: Frame counts codec executables exist for, ascending.
        num_slots: Requests that can hold device state at once.
        num_kv_pages: KV pages in all (0: slots carry their own KV).
        kv_page_tokens: Tokens per page.
        max_context_tokens: Prompt and frames of one piece together.
        lm_depth: Jobs the LM lane may have in flight (2: the next step is launched before the
            previous one's end flags are read).
        max_request_frames: Frames of the longest request.
    """

    splits: tuple[Split, ...]
    decode_buckets: tuple[int, ...]
    codec_buckets: tuple[int, ...]
    urgent_buckets: tuple[int, ...]
    prefill_buckets: tuple[int, ...]
    chunk_frames: tuple[int, ...]
    num_slots: int
    num_kv_pages: int = 0
    kv_page_tokens: int = 64
    max_context_tokens: int = 2048
    lm_depth: int = 1
    max_request_frames: int = 8192


LANE_MODES = ("partitioned_urgent", "partitioned", "two_streams", "time_sharing")
POLICIES = ("urgency", "startup_steady", "throughput")
ADMISSIONS = ("deadline_aware", "prefill_first")
OVERLOADS = ("shed", "prefill_first", "off")
_CHOICES = {
    "lane_mode": LANE_MODES,
    "policy": POLICIES,
    "admission": ADMISSIONS,
    "overload": OVERLOADS,
}
_RANGES_S = {
    "urgency_margin_s": (0.0, 1.0),
    "max_prefill_defer_s": (0.0, 1.0),
    "ttfa_target_s": (0.05, 5.0),
}
START_ONLY = frozenset({"urgent_batch"})
MAX_STEPS_PER_PREFILL = 16
# A prefill of a few prompts costs half a step or more, most of it for their first frames: three
# steps instead of one let a simulated H200 serve 235 requests/s instead of 208 (10-frame chunks).
GPU_STEPS_PER_PREFILL = 3
MAX_RAMP = 16  # chunk sizes that can differ before the last one repeats


@dataclass(frozen=True, slots=True)
class Settings:
    """Every knob of the scheduler, under the name it has everywhere (code, widgets, CLI, files).

    Attributes:
        lane_mode: How lanes share the device.
        sm_split: LM SMs / codec SMs.
        urgency_margin_s: A chunk nearer to its deadline than this is urgent (delta u).
        background_batch: Head chunks that launch a background batch (B).
        max_background_batch: Rows of the largest background batch.
        max_decode_batch: Rows of the largest decode step.
        urgent_batch: Rows of the largest urgent batch.
        chunk_ramp: Frames of the first, second, ... chunk; the last repeats. New requests only.
        policy: Which chunks go where.
        admission: Whether a prefill waits for running requests' slack.
        max_prefill_defer_s: Longest wait of the oldest prompt.
        decode_steps_per_prefill: Decode steps that come between two prefills, at least, while
            anybody is running: prompts that arrive meanwhile share the next prefill.
        overload: What happens past capacity.
        ttfa_target_s: First-chunk deadline after arrival.
        max_running: Requests holding a slot at once.
    """

    lane_mode: str = "partitioned_urgent"
    sm_split: Split = Split()
    urgency_margin_s: float = 0.1
    background_batch: int = 8
    max_background_batch: int = 64
    max_decode_batch: int = 256
    urgent_batch: int = 8
    chunk_ramp: tuple[int, ...] = (10,)
    policy: str = "urgency"
    admission: str = "deadline_aware"
    max_prefill_defer_s: float = 0.1
    decode_steps_per_prefill: int = 1
    overload: str = "shed"
    ttfa_target_s: float = 0.2
    max_running: int = 256

    def changed(self, prepared: Prepared, **changes: Any) -> Settings:
        """Returns a validated copy.

        Raises:
            InvalidSetting: Unknown name, wrong type, out of bounds or not prepared.
        """
        values = normalised(changes)
        new = replace(self, **values)
        for name in values:
            _check(name, getattr(new, name), prepared)
        return new


def normalised(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by name in their fields' types, however they were written.

    Raises:
        InvalidSetting: Unknown name or wrong type.
    """
    names = [item.name for item in fields(Settings)]
    for name in changes:
        if name not in names:
            raise InvalidSetting(f"no setting {name!r}; there are {', '.join(names)}")
    return {name: _coerced(name, value) for name, value in changes.items()}


def _coerced(name: str, value: Any) -> Any:
    """Turns what notebooks, widgets and JSON hand over into the field's type, or refuses."""
    if name == "sm_split":
        return Split.parse(value)
    if name == "chunk_ramp":
        return _ramp(value)
    if name in _CHOICES:
        return str(value)
    if name in _RANGES_S:
        return float(_real(name, value))
    return _whole(name, value)


def _real(name: str, value: object) -> Real:
    if isinstance(value, bool) or not isinstance(value, Real):  # numpy scalars are Real
        raise InvalidSetting(f"{name}: {value!r} is not a number")
    try:
        float(value)
    except OverflowError:
        raise InvalidSetting(f"{name}: the number is too large") from None
    return value


def _whole(name: str, value: object) -> int:
    number = _real(name, value)
    if isinstance(number, Integral):
        return int(number)
    if not float(number).is_integer():  # also refuses NaN and infinities
        raise InvalidSetting(f"{name}: {value!r} is not a whole number")
    return int(float(number))


def _ramp(value: object) -> tuple[int, ...]:
    if isinstance(value, str):
        texts = value.replace(",", " ").split()
        parts: list[object] = [int(t) if t.isdecimal() else t for t in texts]
    elif isinstance(value, Iterable):
        parts = list(cast("Iterable[object]", value))
    else:
        parts = [value]
    if not parts:
        raise InvalidSetting("chunk_ramp: at least one frame count is needed, like (4, 10)")
    return tuple(_whole("chunk_ramp", part) for part in parts)


def _check(name: str, value: Any, prepared: Prepared) -> None:
    if name in _CHOICES:
        if value not in _CHOICES[name]:
            raise InvalidSetting(f"{name}: {value!r} is not one of {', '.join(_CHOICES[name])}")
    elif name in _RANGES_S:
        low, high = _RANGES_S[name]
        if not low <= value <= high:  # also refuses NaN
            raise InvalidSetting(f"{name}: {value} s is outside {low} to {high} s")
    elif name == "sm_split":
        _member(name, value, prepared.splits)
    elif name == "chunk_ramp":
        if len(value) > MAX_RAMP:
            raise InvalidSetting(
                f"{name}: {len(value)} sizes; at most {MAX_RAMP}, the last repeats"
            )
        for frames in value:
            _member(name, frames, prepared.chunk_frames)
    elif name == "max_decode_batch":
        _member(name, value, prepared.decode_buckets)
    elif name == "max_background_batch":
        _member(name, value, prepared.codec_buckets)
    elif name == "urgent_batch":
        _member(name, value, prepared.urgent_buckets)
    elif name == "background_batch":
        _within(name, value, 1, prepared.codec_buckets[-1])
    elif name == "decode_steps_per_prefill":
        _within(name, value, 1, MAX_STEPS_PER_PREFILL)
    elif name == "max_running":
        _within(name, value, 1, prepared.num_slots)


def _member(name: str, value: Any, available: tuple[Any, ...]) -> None:
    if value not in available:
        listed = ", ".join(str(item) for item in available)
        raise InvalidSetting(f"{name}: {value} is not prepared on this device; it has {listed}")


def _within(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise InvalidSetting(f"{name}: {value} is outside {low} to {high}")
