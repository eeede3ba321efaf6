"""The playback clock: one stream, arrays, and laws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxserve.core.playback import Playback, deliver_batch


def test_a_late_chunk_stalls_and_moves_the_clock() -> None:
    player = Playback(deadline_s=0.2)
    assert player.deliver(0.3, 0.8) == 0.0  # late against the target, but a first cannot stall
    assert player.deadline_s == pytest.approx(1.1)
    assert player.deliver(1.0, 0.8) == 0.0
    assert player.deadline_s == pytest.approx(1.9)
    assert player.deliver(1.95, 0.8) == pytest.approx(0.05)
    assert player.deadline_s == pytest.approx(2.75)
    assert (player.num_late, player.has_stalled) == (1, True)
    assert player.first_audio_s == 0.3


def test_stalls_below_ten_milliseconds_in_all_are_not_a_stall() -> None:
    player = Playback(deadline_s=0.2)
    player.deliver(0.0, 1.0)
    player.deliver(1.004, 1.0)
    player.deliver(2.009, 1.0)
    assert player.num_late == 2
    assert player.stall_s == pytest.approx(0.009)
    assert not player.has_stalled


def test_a_chunk_without_samples_leaves_the_clock_alone() -> None:
    player = Playback(deadline_s=0.2)
    assert player.deliver(0.5, 0.0) == 0.0
    assert not player.is_playing
    assert player.deadline_s == 0.2
    player.deliver(0.6, 0.8)
    assert player.deliver(9.0, 0.0) == 0.0
    assert player.deadline_s == pytest.approx(1.4)


chunks = st.lists(
    st.tuples(st.floats(0.0, 1.0), st.sampled_from([0.0, 0.08, 0.8])), min_size=1, max_size=20
)


@given(chunks)
def test_arrays_follow_the_scalar_clock(gaps: list[tuple[float, float]]) -> None:
    player = Playback(deadline_s=0.2)
    deadline_s, is_playing = np.array([0.2]), np.array([False])
    now_s = 0.0
    for gap_s, length_s in gaps:
        now_s += gap_s
        audio_s = np.array([length_s])
        stall_s, deadline_s = deliver_batch(now_s, audio_s, deadline_s, is_playing)
        is_playing |= audio_s > 0.0
        assert player.deliver(now_s, length_s) == stall_s[0]
        assert player.deadline_s == deadline_s[0]


@given(chunks)
def test_play_time_is_audio_plus_stalls(gaps: list[tuple[float, float]]) -> None:
    player = Playback(deadline_s=0.2)
    now_s = 0.0
    for gap_s, length_s in gaps:
        now_s += gap_s
        player.deliver(now_s, length_s)
    if player.first_audio_s is not None:
        played_s = player.deadline_s - player.first_audio_s
        assert played_s == pytest.approx(player.audio_s + player.stall_s)
