"""Controls for the engine's settings: prepared values only, pending until the trace says so."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
# (ipywidgets carries no types)

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from voxserve.core.errors import VoxserveError
from voxserve.core.events import Record, SettingChange
from voxserve.core.protocols import SpeechEngine
from voxserve.viz.history import History
from voxserve.viz.knobs import Control, make
from voxserve.viz.showing import Showing


class Controls:
    """All live settings of an engine as widgets.

    Args:
        engine: Settings and prepared values come from it, changes go to it.
        history: Changes go into it.
        report: Told what went wrong (or "" when all is well), from any thread.
    """

    def __init__(
        self, engine: SpeechEngine, history: History, report: Callable[[str], None]
    ) -> None:
        self.engine = engine
        self._history = history
        self._report = report
        self._pending: set[str] = set()
        self._showing = Showing()
        self.controls = {control.name: control for control in make(engine)}
        self.sync()
        for control in self.controls.values():
            control.widget.observe(lambda change, c=control: self._changed(c), names="value")

    def box(self, *names: str) -> list[Any]:
        """The widgets of these settings, in order."""
        return [self.controls[name].widget for name in names]

    def sync(self) -> None:
        """Shows the engine's settings, whoever changed them."""
        settings = self.engine.settings
        with self._showing:
            for control in self.controls.values():
                if control.name not in self._pending:
                    control.show(getattr(settings, control.name))

    def acknowledge(self, records: Iterable[Record]) -> None:
        """Ends the pending state of settings that the trace says took effect."""
        names = {record.name for record in records if isinstance(record, SettingChange)}
        if not names:
            return
        for name in names & self.controls.keys():
            self.controls[name].widget.remove_class("vs-pending")
        self.sync()

    def apply(self, changes: dict[str, Any]) -> None:
        """Applies settings as one change that one undo takes back.

        Raises:
            InvalidSetting: Nothing was changed.
        """
        settings = self.engine.settings
        old = {name: getattr(settings, name) for name in changes}
        new = {name: value for name, value in changes.items() if value != old[name]}
        if new:
            self._set(new)
            self._history.add(lambda: self._set({name: old[name] for name in new}))

    def _set(self, changes: dict[str, Any]) -> None:
        """Marks as pending first: the engine can be done before `set` returns."""
        widgets = [self.controls[name].widget for name in changes.keys() & self.controls.keys()]
        for widget in widgets:
            widget.add_class("vs-pending")
        try:
            self.engine.set(**changes)
        except VoxserveError:
            for widget in widgets:
                widget.remove_class("vs-pending")
            raise
        self.sync()

    def _changed(self, control: Control) -> None:
        if self._showing.is_here:
            return
        value = control.read(control.widget.value)
        # Not overwritten by other settings' news until the engine has this one.
        self._pending.add(control.name)
        try:
            self.apply({control.name: value})
            self._report("")
        except VoxserveError as error:
            self._report(str(error))
        finally:
            self._pending.discard(control.name)
        self.sync()
