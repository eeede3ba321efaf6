"""Prebuffer and jitter: sliders and player follow each other, and changes can be taken back."""

from __future__ import annotations

import pytest

from voxserve.viz.history import History
from voxserve.viz.network import NetworkControls
from voxserve.viz.player import Player


@pytest.fixture
def player() -> Player:
    return Player()


def test_sliders_and_player_follow_each_other(player: Player) -> None:
    history = History()
    controls = NetworkControls(player, history)
    controls.sliders["jitter_s"].value = 300
    assert player.jitter_s == 0.3
    player.prebuffer_s = 1.5  # from Python, beyond the slider
    assert controls.sliders["prebuffer_s"].value == 1500
    assert controls.changed() == {"jitter_s": 0.3, "prebuffer_s": 1.5}
    assert history.undo()  # only what the user chose is taken back
    assert player.jitter_s == 0.0
    assert controls.sliders["jitter_s"].value == 0
    assert not history.undo()


def test_every_control_has_a_label_and_a_tooltip(player: Player) -> None:
    controls = NetworkControls(player, History())
    assert all(widget.description and widget.tooltip for widget in controls.box())
