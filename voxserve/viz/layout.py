"""Arranges the workbench's parts; places and looks are in `static/workbench.css`."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
# (ipywidgets carries no types)

from __future__ import annotations

import html
from typing import Any

import ipywidgets

from voxserve.core.protocols import EngineStats, SpeechEngine
from voxserve.viz.controls import Controls
from voxserve.viz.load import LoadControls
from voxserve.viz.network import NetworkControls
from voxserve.viz.player import Player
from voxserve.viz.publisher import BUSY_S


class Parts:
    """Every plain widget of the workbench, and `box`, which holds them all."""

    def __init__(
        self,
        controls: Controls,
        timeline: Any,
        player: Player,
        numbers: Any,
        load: LoadControls,
        network: NetworkControls,
        text: str,
    ) -> None:
        self.header = named("header", ipywidgets.HTML())
        self.status = named("status", ipywidgets.HTML())
        self.detail = named("detail", ipywidgets.HTML())
        hint = "Text to speak; each line becomes a stream of its own."
        # Sent when it is left: letters that are still under way would come after a button's click.
        self.text = ipywidgets.Textarea(
            value=text, rows=2, tooltip=hint, placeholder=hint, continuous_update=False
        )
        self.speak = ipywidgets.Button(description="Speak", icon="play", button_style="primary")
        self.stop = ipywidgets.Button(
            description="Stop", icon="stop", tooltip="Cancel what is being spoken"
        )
        buttons = named("buttons", ipywidgets.VBox([self.speak, self.stop]))
        listen = ipywidgets.VBox([ipywidgets.HBox([self.text, buttons]), player])
        self.centre = named("area-timeline", ipywidgets.VBox([timeline, self.detail]))
        areas = [
            named("area-controls", self._column(controls, load, network)),
            self.centre,
            named("area-listen", listen),
            named("area-numbers", numbers),
        ]
        grid = named("grid", ipywidgets.Box(areas))
        self.top = named("top", ipywidgets.HBox([self.header]))
        self.box = named("workbench", ipywidgets.VBox([self.top, grid, self.status]))

    def _column(self, controls: Controls, load: LoadControls, network: NetworkControls) -> Any:
        return ipywidgets.VBox(
            [
                caption("Partition"),
                *controls.box("lane_mode", "sm_split"),
                caption("Urgency, batching, admission"),
                *controls.box("urgency_margin_s", "background_batch", "max_decode_batch"),
                *controls.box("admission"),
                caption("Background load"),
                *load.box(),
                caption("Listener"),
                *network.box(),
                self._more(controls),
            ]
        )

    def _more(self, controls: Controls) -> Any:
        """Settings that few lessons need, folded away."""
        names = ("policy", "overload", "chunk_ramp", "max_background_batch")
        names += ("ttfa_target_s", "max_prefill_defer_s", "decode_steps_per_prefill")
        names += ("max_running",)
        box = ipywidgets.VBox(controls.box(*names))
        return named("more", ipywidgets.Accordion([box], titles=["More settings"]))


def named(name: str, widget: Any) -> Any:
    """Adds the class that `workbench.css` knows the widget by."""
    widget.add_class(f"vs-{name}")
    return widget


def close_all(widget: Any) -> None:
    """Closes a widget and all its descendants, with the models of their looks."""
    for child in getattr(widget, "children", ()):
        close_all(child)
    for look in ("layout", "style"):  # widgets of their own, which nobody else closes
        if isinstance(part := getattr(widget, look, None), ipywidgets.Widget):
            part.close()
    widget.close()


def caption(text: str) -> Any:
    """A group's heading."""
    return named("caption", ipywidgets.HTML(html.escape(text)))


def header_html(engine: SpeechEngine, stats: EngineStats, lateness_s: float) -> str:
    """Model, device, state, and a badge while the kernel is too busy to show things in time."""
    state = stats.state.split(":")[0]
    busy = ""
    if max(lateness_s, stats.kernel_delay_s) > BUSY_S:
        busy = '<span class="vs-badge vs-busy" title="Numbers come late">kernel busy</span>'
    what = html.escape(f"{engine.model_name} on {engine.device_name}")
    return (
        f'<b>voxserve</b> <span class="vs-what" title="{what}">{what}</span>'
        f'<span class="vs-badge vs-state-{html.escape(state)}">{html.escape(stats.state)}</span>'
        f"{busy}"
    )
