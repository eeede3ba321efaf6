"""Stalls that the host caused are told apart from the server's, as in static.test.mjs."""

from __future__ import annotations

import pytest
from viz.fakes import FakeEngine
from viz.records import chunk, state

from voxserve.core.events import HostDelay
from voxserve.core.request import RequestState
from voxserve.viz.explain import chunk_words
from voxserve.viz.figures import timeline_figure
from voxserve.viz.hosts import busy_s, is_host_stall
from voxserve.viz.metrics import LiveNumbers
from voxserve.viz.numbers import tiles
from voxserve.viz.player import Player
from voxserve.viz.wire import delta

LATE = chunk(1, 1, delivered_s=10.4, deadline_s=10.0, stall_s=0.4)
FIRST = chunk(1, 0, delivered_s=9.2, deadline_s=9.3)
DELAY = HostDelay(10.3, 0.2)


def test_only_delays_while_the_audio_before_was_played_count() -> None:
    delays = [DELAY, HostDelay(10.35, 0.05), HostDelay(9.0, 0.1), HostDelay(12.0, 1.0)]
    assert busy_s(LATE, [*delays, HostDelay(10.2, 0.01)]) == pytest.approx(0.25)
    assert is_host_stall(LATE, delays)
    assert not is_host_stall(LATE, [HostDelay(10.3, 0.15)])
    assert not is_host_stall(chunk(1, 0, delivered_s=10.4, deadline_s=10.0), delays)


def test_the_numbers_count_them_apart_once_their_delay_is_known() -> None:
    numbers = LiveNumbers()
    numbers.add([state(1, RequestState.WAITING, 9.0), FIRST, LATE])
    assert numbers.summary(10.45, 0.2).num_host_stalls == 0
    other = chunk(1, 2, delivered_s=11.3, deadline_s=11.2, stall_s=0.1)
    numbers.add([HostDelay(10.41, 0.3), other])
    summary = numbers.summary(11.6, 0.2)
    assert (summary.num_stalls, summary.num_host_stalls) == (2, 1)
    assert numbers.hosts.found == [LATE]
    notes = [tile.note for tile in tiles(summary, FakeEngine().stats(), 0.2)]
    assert "0.5 s: 1 server, 1 host" in notes
    assert numbers.summary(60.0, 0.2).num_stalls == 0
    assert not numbers.hosts.found


def test_the_story_says_how_long_the_kernel_was_busy() -> None:
    arrival = state(1, RequestState.WAITING, 9.0)
    told = chunk_words([arrival, FIRST, LATE, HostDelay(10.4, 0.3)], 1, 1)
    assert "Host stall: the notebook kernel was busy for 300 ms" in told
    assert "Host stall" not in chunk_words([arrival, FIRST, LATE, HostDelay(10.4, 0.03)], 1, 1)


def test_the_figure_marks_them_apart() -> None:
    other = chunk(2, 1, delivered_s=9.8, deadline_s=9.7, stall_s=0.1, audio_s=0.2)
    figure = timeline_figure([LATE, other, HostDelay(10.4, 0.3)], end_s=11.0)
    marks = {trace.name: len(trace.x) for trace in figure.data}
    assert (marks["server stall"], marks["host stall"]) == (1, 1)


def test_pages_hear_of_delays_and_of_the_late_chunks_of_spoken_requests() -> None:
    message, _ = delta([HostDelay(1.0, 0.01), DELAY], 11.0)
    assert message["delays"] == [(10.3, 0.2)]
    player = Player()
    player.add(1, "one")
    player.blame_host([(1, 1), (7, 3)])
    player.blame_host([(1, 4)])
    assert player.host_stalls == {"1": [1, 4]}
    player.remove(1)
    player.blame_host([])
    assert player.host_stalls == {}
