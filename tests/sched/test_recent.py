"""What overload control remembers of the last seconds."""

from __future__ import annotations

import pytest

from voxserve.sched.recent import MAX_WAITS, FirstAudio, Share


def test_a_share_needs_a_whole_window_and_enough_items() -> None:
    share = Share(2.0)
    share.add(0.0, 12, 6)
    assert share.at(1.9) == 0.0
    share.add(1.9, 12, 3)
    assert share.at(2.0) == 0.25  # the first twelve have left
    share.add(4.0, 9, 9)
    assert share.at(4.0) == 0.0  # nine are too few


def test_a_share_keeps_only_its_window() -> None:
    share = Share(1.0)
    for step in range(1000):
        share.add(0.01 * step, 1, step % 2)
    assert len(share) <= 101
    assert share.at(10.0) == pytest.approx(0.5, abs=0.01)


def test_nine_tenths_of_the_last_requests_wait_no_longer_than_usual() -> None:
    first_audio = FirstAudio()
    for ms in range(100, 150):
        first_audio.add(0.01 * (ms - 100), 0.001 * ms, 0.01)
    assert first_audio.usual_ttfa_s(0.5, 0.01) == pytest.approx(0.145)


def test_a_wait_is_told_for_the_present_pace() -> None:
    first_audio = FirstAudio()
    first_audio.add(0.0, 0.2, 0.01)
    assert first_audio.usual_ttfa_s(0.1, 0.0081) == pytest.approx(0.2 * 0.9**3)


def test_what_is_older_than_a_second_says_nothing() -> None:
    first_audio = FirstAudio()
    first_audio.add(0.0, 0.2, 0.01)
    assert first_audio.usual_ttfa_s(1.0, 0.01) == 0.0


def test_the_memory_of_waits_is_bounded() -> None:
    first_audio = FirstAudio()
    for step in range(10 * MAX_WAITS):
        first_audio.add(1e-3 * step, 1.0 if step < 9 * MAX_WAITS else 0.1, 0.01)
    assert first_audio.usual_ttfa_s(0.64, 0.01) == pytest.approx(0.1)


def test_without_a_pace_a_wait_says_nothing() -> None:
    first_audio = FirstAudio()
    first_audio.add(0.0, 0.2, 0.0)
    assert first_audio.usual_ttfa_s(0.1, 0.01) == 0.0
