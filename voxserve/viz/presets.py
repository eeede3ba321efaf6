"""Named starting points for exploring, each in terms of what a device has prepared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from voxserve.core import settings as core
from voxserve.core.settings import Prepared, Settings, Split
from voxserve.viz.load import Load

PAPER_SPLIT = Split(100, 32)
# How long a request of 8 s of audio keeps its slot: a GPU makes it much faster than it is played.
_CPU_SLOT_S, _GPU_SLOT_S = 8.0, 2.5


@dataclass(frozen=True, slots=True)
class Preset:
    """Settings to apply, and the background load as a share of the load slider.

    Attributes:
        load_share: 0 to 1; None leaves the load as it is.
        lesson: What to watch for.
    """

    name: str
    lesson: str
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    load_share: float | None = None


def presets(prepared: Prepared, start: Settings) -> list[Preset]:
    """The presets that this device can show; all begin from the settings at start."""
    base = {name: getattr(start, name) for name in live_names()}
    paper = base | {"urgency_margin_s": 0.1, "background_batch": min(8, prepared.codec_buckets[-1])}
    paper |= {"lane_mode": "partitioned_urgent", "admission": "deadline_aware"}
    if PAPER_SPLIT in prepared.splits:
        paper["sm_split"] = PAPER_SPLIT
    lesson = "Every setting as it was when the workbench opened; the load stays."
    offered = [
        Preset("As started", lesson, base),
        Preset("Paper default", "Three lanes, urgency margin 100 ms, batches of 8 chunks.", paper),
    ]
    if "partitioned" in core.LANE_MODES:
        lesson = "First chunks wait behind background batches: watch TTFA."
        offered.append(Preset("No urgent lane", lesson, paper | {"lane_mode": "partitioned"}, 0.25))
    lesson = "Stages take turns in one loop: each waits for the other."
    offered.append(Preset("Time sharing", lesson, paper | {"lane_mode": "time_sharing"}, 0.25))
    starved = _starved_split(prepared)
    if starved is not None:
        lesson = (
            "The codec has too few SMs: its lane fills, then buffers run down and stalls begin."
        )
        offered.append(Preset("Codec starved", lesson, paper | {"sm_split": starved}, 0.3))
    lesson = "More arrives than can be served: waiting grows, then TTFA, then stalls."
    offered.append(Preset("Overload", lesson, paper, 1.0))
    return offered


def top_rate_rps(prepared: Prepared, device_name: str) -> float:
    """A background load beyond what the device can serve: every slot is always in use."""
    slot_s = _CPU_SLOT_S if device_name.startswith("cpu") else _GPU_SLOT_S
    return prepared.num_slots / slot_s


def live_names() -> list[str]:
    """Settings that can change while serving."""
    return [f.name for f in fields(Settings) if f.name not in core.START_ONLY]


def code(
    settings: Settings,
    start: Settings,
    model: str,
    device: str,
    load: Load,
    network: Mapping[str, float] | None = None,
) -> str:
    """Python that reproduces the state: what differs from the start, and the load."""
    lines = ["import voxserve", "", f"engine = voxserve.Engine({model!r}, {device!r})"]
    changed = {
        name: _literal(getattr(settings, name))
        for name in live_names()
        if getattr(settings, name) != getattr(start, name)
    }
    if changed:
        arguments = "".join(f"    {name}={value},\n" for name, value in changed.items())
        lines.append(f"engine.set(\n{arguments})")
    if load.rate_rps:
        lines.append(f"engine.load({load.workload!r}, rate_rps={load.rate_rps:g})")
    if network:
        lines.append("workbench = voxserve.Workbench(engine)")
        lines += [f"workbench.player.{name} = {value:g}" for name, value in network.items()]
        lines.append("workbench")
    else:
        lines.append("voxserve.Workbench(engine)")
    return "\n".join(lines) + "\n"


def _literal(value: Any) -> str:
    return repr(str(value)) if isinstance(value, Split) else repr(value)


def _starved_split(prepared: Prepared) -> Split | None:
    """The smallest codec partition, where there is a choice of partitions."""
    splits = [split for split in prepared.splits if not split.is_none]
    return min(splits, key=lambda split: split.codec_sms) if len(splits) > 1 else None
