"""One widget per live setting, offering what the device has prepared."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
# (ipywidgets carries no types)

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import ipywidgets

from voxserve.core import settings as core
from voxserve.core.protocols import SpeechEngine
from voxserve.core.settings import Prepared

LOOK: dict[str, Any] = {"style": {"description_width": "96px"}, "layout": {"width": "auto"}}
# First chunks short for an early start, later ones long for efficiency.
RAMPS = ((10,), (4, 10), (2, 4, 10), (5, 10), (20,), (2, 4, 10, 20))


@dataclass
class Control:
    """One setting's widget; `read` and `write` translate between its value and the setting's."""

    name: str
    widget: Any
    read: Callable[[Any], Any] = lambda value: value
    write: Callable[[Any], Any] = lambda value: value

    def show(self, value: Any) -> None:
        """Shows a setting's value, also one that the widget did not offer."""
        shown = self.write(value)
        options = getattr(self.widget, "options", None)
        if options is not None and shown not in [_value_of(option) for option in options]:
            self.widget.options = [*options, (str(shown), shown)]
        self.widget.value = shown

    @property
    def label(self) -> str:
        """The setting's name and unit, for people."""
        return self.widget.description

    def choices(self) -> dict[str, Any]:
        """The offered values by their texts; none where any number in a range will do."""
        options = getattr(self.widget, "options", ())
        pairs = [option if _is_pair(option) else (str(option), option) for option in options]
        return {text: self.read(value) for text, value in pairs}

    def limits(self) -> str:
        """What can be typed, in few words."""
        is_range = not hasattr(self.widget, "options")
        return f"{self.widget.min} to {self.widget.max}" if is_range else "choose or type"

    def text(self, value: Any) -> str:
        """A setting's value as the widget shows it."""
        named = [text for text, choice in self.choices().items() if choice == value]
        return named[0] if named else str(self.write(value))

    def parsed(self, text: str) -> Any:
        """A value from its text; one that makes no sense is left to the setting's own check."""
        choices = self.choices()
        if text.strip() in choices:
            return choices[text.strip()]
        try:
            return self.read(float(text))
        except ValueError:
            return text


def _value_of(option: Any) -> Any:
    """Options are (label, value) pairs; plain numbers stand for themselves."""
    return option[1] if _is_pair(option) else option


def _is_pair(option: Any) -> bool:
    return isinstance(option, tuple) and len(option) == 2 and isinstance(option[0], str)


def make(engine: SpeechEngine) -> list[Control]:
    """Controls for every setting that can change while serving."""
    prepared, now = engine.prepared, engine.settings
    unit = "threads" if engine.device_name.startswith("cpu") else "SMs"
    splits = [(str(split), split) for split in prepared.splits]
    split_help = f"{unit} of the backbone / of the codec; only prepared splits."
    ramps = [(", ".join(map(str, ramp)), ramp) for ramp in _ramps(prepared, now.chunk_ramp)]
    codec, decode = prepared.codec_buckets, prepared.decode_buckets
    return [
        _choice("lane_mode", "Lane mode", _named(core.LANE_MODES), "How lanes share the device."),
        _pick("sm_split", f"Split, {unit}", splits, split_help),
        _milliseconds("urgency_margin_s", "Margin, ms", "A chunk nearer its deadline is urgent."),
        _count("background_batch", "Batch B", codec[-1], "Ready chunks that launch a codec batch."),
        _pick("max_decode_batch", "Decode rows", decode, "Largest decode step, in requests."),
        _choice("admission", "Admission", _named(core.ADMISSIONS), "When a new prompt starts."),
        _choice("policy", "Policy", _named(core.POLICIES), "Which chunks go to which lane."),
        _choice("overload", "Overload", _named(core.OVERLOADS), "What happens past capacity."),
        _choice("chunk_ramp", "Chunk ramp", ramps, "Frames of the first chunks; new requests."),
        _pick("max_background_batch", "Codec rows", codec, "Largest background batch, in chunks."),
        _milliseconds("ttfa_target_s", "TTFA goal, ms", "Deadline of first chunks.", 50, 5000, 50),
        _milliseconds("max_prefill_defer_s", "Defer, ms", "Longest wait of the oldest prompt."),
        _count(
            *("decode_steps_per_prefill", "Steps/prefill", core.MAX_STEPS_PER_PREFILL),
            "Decode steps between two prefills, at least.",
        ),
        _count("max_running", "Max running", prepared.num_slots, "Requests served at once."),
    ]


def _choice(name: str, label: str, options: Any, tooltip: str) -> Control:
    widget = ipywidgets.Dropdown(options=options, description=label, tooltip=tooltip, **LOOK)
    return Control(name, widget)


def _pick(name: str, label: str, options: Iterable[Any], tooltip: str) -> Control:
    options = list(options)
    widget = ipywidgets.SelectionSlider(
        options=options,
        description=label,
        tooltip=tooltip,
        continuous_update=False,
        disabled=len(options) < 2,
        **LOOK,
    )
    return Control(name, widget)


def _count(name: str, label: str, largest: int, tooltip: str) -> Control:
    widget = ipywidgets.IntSlider(
        min=1, max=largest, description=label, tooltip=tooltip, continuous_update=False, **LOOK
    )
    return Control(name, widget)


def _milliseconds(
    name: str, label: str, tooltip: str, low: int = 0, high: int = 1000, step: int = 10
) -> Control:
    widget = ipywidgets.IntSlider(
        min=low,
        max=high,
        step=step,
        description=label,
        tooltip=tooltip,
        continuous_update=False,
        **LOOK,
    )
    return Control(name, widget, lambda ms: ms / 1000, lambda value_s: round(1000 * value_s))


def _named(options: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(option.replace("_", " "), option) for option in options]


def _ramps(prepared: Prepared, current: tuple[int, ...]) -> list[tuple[int, ...]]:
    possible = [ramp for ramp in RAMPS if set(ramp) <= set(prepared.chunk_frames)]
    return possible if current in possible else [current, *possible]
