"""A profile: measured stage times of one model on one device, as JSON; it estimates nothing itself.

File format (``"format": "voxserve-profile", "version": 1``)::

    {
      "format": "voxserve-profile", "version": 1,
      "name": "h200-qwen3-tts-1.7b",
      "device": "NVIDIA H200", "model": "qwen3-tts-1.7b", "num_sms": 132,
      "created": "2026-11-29", "versions": {"torch": "2.11.0", "driver": "580.95"},
      "frame_s": 0.08, "sample_rate_hz": 24000,
      "codec_delay_samples": 0, "lookahead_frames": 0,
      "context_tokens": 192,
      "prepared": {"splits": ["none", "100/32"], "decode_buckets": [1, 2, 4], ...},
      "host": {"seconds": 0.0003, "source": "measured", "note": "end of a step to next launch"},
      "times": [
        {"stage": "decode", "rows": 256, "sms": 100, "seconds": 0.0115, "p10_s": 0.0114,
         "p90_s": 0.0117, "samples": 200, "source": "measured"},
        {"stage": "prefill", "rows": 4, "tokens": 160, "seconds": 0.004, "source": "measured"},
        {"stage": "codec", "rows": 16, "frames": 10, "sms": 32, "seconds": 0.017, ...},
        {"stage": "codec", "rows": 1, "frames": 10, "lane": "urgent", "split": "100/32",
         "beside": ["decode", "background"], "seconds": 0.004, ...}
      ]
    }

`times` holds one entry per stage x rows x frames (codec) or tokens (prefill) x SMs. Entries without
`beside` are the stage alone. Entries with `beside` are the same stage while other lanes are kept
busy; they name their `lane` and the `split` in force, and give the slowdown against the stage
alone. Every number has a `source`. "SMs" of a CPU profile are threads. `prepared` has the field
names of `core.settings.Prepared`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

from voxserve.core.errors import InvalidInput
from voxserve.core.settings import Prepared, Split

FORMAT = "voxserve-profile"
VERSION = 1
STAGES = ("decode", "prefill", "codec")
BUSY = ("decode", "prefill", "background", "urgent")
PROFILES_DIR = Path(__file__).resolve().parents[1] / "data" / "profiles"


class Source(StrEnum):
    """Where a number comes from."""

    MEASURED = "measured"  # timed on the named device with the named versions
    STATED = "stated"  # printed in a publication
    INFERRED = "inferred"  # scaled or derived from other numbers; the note says how
    PROVISIONAL = "provisional"  # stands in until it is measured


@dataclass(frozen=True, slots=True)
class StageTime:
    """Seconds of one executable, alone or beside other lanes.

    Attributes:
        stage: "decode", "prefill" or "codec".
        rows: Batch size: requests (decode), prompts (prefill), chunks (codec).
        seconds: Median.
        sms: SMs (CPU: threads) it ran on; 0 is the whole device.
        tokens: Prompt tokens of all rows (prefill only).
        frames: Frames per chunk (codec only).
        beside: What kept other lanes busy meanwhile, of `BUSY`; empty is alone.
        lane: "lm", "background" or "urgent"; needed with `beside`.
        split: "100/32" or "none"; needed with `beside`.
        p10_s, p90_s: Spread of the replays, seconds; None when unknown.
        samples: Replays timed.
        source: Where the number comes from.
        note: How, in a few words, where it isn't obvious.
    """

    stage: str
    rows: int
    seconds: float
    sms: int = 0
    tokens: int = 0
    frames: int = 0
    beside: tuple[str, ...] = ()
    lane: str = ""
    split: str = ""
    p10_s: float | None = None
    p90_s: float | None = None
    samples: int = 0
    source: Source = Source.MEASURED
    note: str = ""


@dataclass(frozen=True, slots=True)
class HostTime:
    """Host time between the end of a step and the launch that follows it.

    Attributes:
        seconds: Median.
        p90_s: 90th percentile, None when unknown.
    """

    seconds: float
    p90_s: float | None = None
    source: Source = Source.MEASURED
    note: str = ""


@dataclass(frozen=True, slots=True)
class Profile:
    """Stage times of one model on one device; see the file's docstring for the JSON.

    Attributes:
        num_sms: SMs (CPU: threads) of the device.
        context_tokens: Context length of the rows of a timed decode step.
        prepared: What the measured engine had executables for.
        times: Alone and side-by-side entries.
    """

    name: str
    device: str
    model: str
    num_sms: int
    frame_s: float
    sample_rate_hz: int
    prepared: Prepared
    host: HostTime
    times: tuple[StageTime, ...]
    created: str = ""
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    codec_delay_samples: int = 0
    lookahead_frames: int = 0
    context_tokens: int = 192
    note: str = ""

    def sources(self) -> dict[str, int]:
        """How many times come from each source."""
        counts: dict[str, int] = {}
        for time in self.times:
            counts[time.source.value] = counts.get(time.source.value, 0) + 1
        return counts


def names() -> tuple[str, ...]:
    """Names of the shipped profiles."""
    return tuple(sorted(path.stem for path in PROFILES_DIR.glob("*.json")))


def load(name_or_path: str | Path) -> Profile:
    """Reads a shipped profile by name, or any profile file by path.

    A name may be shortened to any prefix that fits one shipped profile or, when it fits several,
    the first in order (``h200`` is ``h200-qwen3-tts-1.7b``).

    Raises:
        InvalidInput: No such profile, or the file is not a valid one.
    """
    path = Path(name_or_path)
    if path.suffix != ".json" and not path.is_file():
        fits = [name for name in names() if name.startswith(str(name_or_path))]
        if not fits or not str(name_or_path):
            raise InvalidInput(
                f"no profile {str(name_or_path)!r}; shipped: {', '.join(names())}; "
                "a path to a profile JSON works too"
            )
        path = PROFILES_DIR / f"{fits[0]}.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"profile {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"profile {path}: not JSON ({error})") from None
    return from_json(data, str(path))


def save(profile: Profile, path: str | Path) -> None:
    """Writes a profile as JSON, one stage time per line."""
    data = to_json(profile)
    times = cast(list[Any], data.pop("times"))
    head = json.dumps(data, indent=1)
    lines = ",\n  ".join(json.dumps(time) for time in times)
    Path(path).write_text(f'{head[:-2]},\n "times": [\n  {lines}\n ]\n}}\n')


def to_json(profile: Profile) -> dict[str, Any]:
    """The profile as JSON-ready values; fields at their defaults are left out of `times`."""
    data: dict[str, Any] = {"format": FORMAT, "version": VERSION}
    for item in fields(profile):
        data[item.name] = getattr(profile, item.name)
    prepared = asdict(profile.prepared)
    prepared["splits"] = [str(split) for split in profile.prepared.splits]
    data["prepared"] = prepared
    data["versions"] = dict(profile.versions)
    data["host"] = asdict(profile.host)
    data["times"] = [_time_to_json(time) for time in profile.times]
    return data


def _time_to_json(time: StageTime) -> dict[str, Any]:
    blank = StageTime(stage="", rows=-1, seconds=-1.0)
    row = {
        item.name: getattr(time, item.name)
        for item in fields(time)
        if getattr(time, item.name) != getattr(blank, item.name)
    }
    row["source"] = time.source.value
    return row


def from_json(data: Any, origin: str = "profile") -> Profile:
    """Builds and checks a profile from parsed JSON.

    Args:
        data: The parsed object.
        origin: Named in errors.

    Raises:
        InvalidInput: A field is missing, unknown or out of bounds; says which.
    """
    if not isinstance(data, dict):
        raise InvalidInput(f"{origin}: not a JSON object")
    values = dict(cast(dict[str, Any], data))
    if values.pop("format", None) != FORMAT or values.pop("version", None) != VERSION:
        raise InvalidInput(f'{origin}: not "format": "{FORMAT}", "version": {VERSION}')
    try:
        values["prepared"] = _prepared_from_json(values["prepared"])
        host = cast(dict[str, Any], dict(values["host"]))
        host["source"] = Source(host.get("source", "measured"))
        values["host"] = HostTime(**host)
        values["times"] = tuple(_time_from_json(row) for row in values["times"])
        profile = Profile(**values)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"{origin}: {error!r}") from None
    _check(profile, origin)
    return profile


def _prepared_from_json(data: Any) -> Prepared:
    values = cast(dict[str, Any], dict(data))
    for name, value in values.items():
        if isinstance(value, list):
            values[name] = tuple(cast(list[Any], value))
    values["splits"] = tuple(Split.parse(text) for text in values["splits"])
    return Prepared(**values)


def _time_from_json(row: Any) -> StageTime:
    values = cast(dict[str, Any], dict(row))
    values["beside"] = tuple(values.get("beside", ()))
    values["source"] = Source(values.get("source", "measured"))
    return StageTime(**values)


def _check(profile: Profile, origin: str) -> None:
    """Refuses numbers that would make estimates meaningless."""
    for stage in STAGES:
        if not any(time.stage == stage and not time.beside for time in profile.times):
            raise InvalidInput(f"{origin}: no time of {stage!r} alone")
    if profile.num_sms < 1 or profile.frame_s <= 0:
        raise InvalidInput(f"{origin}: num_sms and frame_s must be positive")
    for index, time in enumerate(profile.times):
        where = f"{origin}: times[{index}]"
        if time.stage not in STAGES:
            raise InvalidInput(f"{where}: stage {time.stage!r} is not one of {', '.join(STAGES)}")
        if not 0.0 < time.seconds < 3600.0 or time.rows < 1:
            raise InvalidInput(f"{where}: seconds and rows must be positive")
        if not 0 <= time.sms <= profile.num_sms:
            raise InvalidInput(f"{where}: {time.sms} SMs of a device with {profile.num_sms}")
        if time.stage == "prefill" and time.tokens < 1:
            raise InvalidInput(f"{where}: a prefill needs its tokens")
        if time.stage == "codec" and time.frames < 1:
            raise InvalidInput(f"{where}: a codec time needs its frames")
        if unknown := [name for name in time.beside if name not in BUSY]:
            raise InvalidInput(f"{where}: beside {unknown} is not of {', '.join(BUSY)}")
        if time.beside and (not time.lane or not time.split):
            raise InvalidInput(f"{where}: a side-by-side time needs its lane and split")
