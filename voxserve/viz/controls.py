"""Controls for the engine's settings: prepared values only, pending until the trace says so."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
# (ipywidgets carries no types)

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import ipywidgets

from voxserve.core import settings as core_settings
from voxserve.core.errors import VoxserveError
from voxserve.core.events import Record, SettingChange
from voxserve.core.protocols import SpeechEngine

_STYLE = {"description_width": "96px"}
_WIDE = {"width": "auto"}


@dataclass
class Control:
    """One setting's widget; `read` and `write` translate between its value and the setting's."""

    name: str
    widget: Any
    read: Callable[[Any], Any] = lambda value: value
    write: Callable[[Any], Any] = lambda value: value


class Controls:
    """All live settings of an engine as widgets.

    Args:
        engine: Settings and prepared values come from it, changes go to it.
        report: Told what went wrong (or "" when all is well), from any thread.
    """

    def __init__(self, engine: SpeechEngine, report: Callable[[str], None]) -> None:
        self.engine = engine
        self._report = report
        self._lock = threading.Lock()  # callbacks run on any kernel thread
        self._pending: dict[str, int] = {}
        self._is_syncing = False
        self.controls = {control.name: control for control in _make(engine)}
        self.sync()
        for control in self.controls.values():
            control.widget.observe(lambda change, c=control: self._changed(c), names="value")

    def box(self, *names: str) -> list[Any]:
        """The widgets of these settings, in order."""
        return [self.controls[name].widget for name in names]

    def sync(self) -> None:
        """Shows the engine's settings, whoever changed them."""
        settings = self.engine.settings
        with self._lock:
            self._is_syncing = True
            try:
                for control in self.controls.values():
                    if control.name not in self._pending:
                        control.widget.value = control.write(getattr(settings, control.name))
            finally:
                self._is_syncing = False

    def acknowledge(self, records: Iterable[Record]) -> None:
        """Ends the pending state of settings that the trace says took effect."""
        names = {record.name for record in records if isinstance(record, SettingChange)}
        if not names:
            return
        for name in names & self.controls.keys():
            with self._lock:
                self._pending.pop(name, None)
            self.controls[name].widget.remove_class("vs-pending")
        self.sync()

    def _changed(self, control: Control) -> None:
        if self._is_syncing:
            return
        value = control.read(control.widget.value)
        if value == getattr(self.engine.settings, control.name):
            return
        with self._lock:
            self._pending[control.name] = 1
        control.widget.add_class("vs-pending")
        try:
            self.engine.set(**{control.name: value})
            self._report("")
        except VoxserveError as error:
            self._report(str(error))
            with self._lock:
                self._pending.pop(control.name, None)
            control.widget.remove_class("vs-pending")
            self.sync()


def _make(engine: SpeechEngine) -> list[Control]:
    prepared = engine.prepared
    unit = "SMs" if "cpu" not in engine.device_name.lower() else "threads"
    splits = [(_split_text(split), split) for split in prepared.splits]
    return [
        _choice("lane_mode", "Lane mode", core_settings.LANE_MODES, "How lanes share the device."),
        Control(
            "sm_split",
            ipywidgets.SelectionSlider(
                options=splits,
                description=f"Split, {unit}",
                tooltip=f"{unit} of the backbone / of the codec; only prepared splits.",
                continuous_update=False,
                disabled=len(splits) < 2,
                style=_STYLE,
                layout=_WIDE,
            ),
        ),
        Control(
            "urgency_margin_s",
            ipywidgets.IntSlider(
                min=0,
                max=1000,
                step=10,
                description="Margin, ms",
                tooltip="A chunk nearer to its deadline than this is urgent.",
                continuous_update=False,
                style=_STYLE,
                layout=_WIDE,
            ),
            read=lambda ms: ms / 1000,
            write=lambda value_s: round(1000 * value_s),
        ),
        Control(
            "background_batch",
            ipywidgets.IntSlider(
                min=1,
                max=prepared.codec_buckets[-1],
                description="Batch B",
                tooltip="Ready chunks that launch a background codec batch.",
                continuous_update=False,
                style=_STYLE,
                layout=_WIDE,
            ),
        ),
        Control(
            "max_decode_batch",
            ipywidgets.SelectionSlider(
                options=list(prepared.decode_buckets),
                description="Decode rows",
                tooltip="Largest decode step; requests beyond it wait their turn.",
                continuous_update=False,
                style=_STYLE,
                layout=_WIDE,
            ),
        ),
        _choice("admission", "Admission", core_settings.ADMISSIONS, "When a new prompt starts."),
    ]


def _choice(name: str, label: str, options: tuple[str, ...], tooltip: str) -> Control:
    texts = [(option.replace("_", " "), option) for option in options]
    widget = ipywidgets.Dropdown(
        options=texts, description=label, tooltip=tooltip, style=_STYLE, layout=_WIDE
    )
    return Control(name, widget)


def _split_text(split: core_settings.Split) -> str:
    return "none" if split.is_none else f"{split.lm_sms} / {split.codec_sms}"
