"""The notebooks' self-checks accept right answers, and hint at what is wrong."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from voxserve.viz.compare import guess_figure
from voxserve.viz.lessons import check_deadlines, playback, playback_figure, share_figure


def _right(delivered_s: Sequence[float], audio_s: Sequence[float]) -> list[float]:
    starts, _ = playback(delivered_s, audio_s)
    return [start + length for start, length in zip(starts, audio_s, strict=True)][:-1]


def _naive(delivered_s: Sequence[float], audio_s: Sequence[float]) -> list[float]:
    return [delivered_s[0] + sum(audio_s[:index]) for index in range(1, len(audio_s))]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (_right, "right"),
        (_naive, "A late chunk starts late"),
        (lambda d, a: _right(d, a)[:1], "2 deadlines are needed"),
        (lambda d, a: [due + 1 for due in _right(d, a)], "does not wait"),
    ],
)
def test_deadlines_are_checked(function, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    check_deadlines(function)
    assert said in capsys.readouterr().out


def test_playback_follows_the_players_rule() -> None:
    starts, silence_s = playback([0.2, 1.4, 1.5], [0.8, 0.8, 0.8])
    assert starts == pytest.approx([0.2, 1.4, 2.2])
    assert silence_s == pytest.approx(0.4)


def test_figures_show_guess_and_measurement() -> None:
    assert len(playback_figure([0.2, 1.4], [0.8, 0.8]).data) == 4
    assert "your guess: 5 ms" in str(guess_figure({"a": [1.0, 2.0]}, {"a": 5}).layout)
    assert "your guess" in str(share_figure({"1/1": 0.5}, "1/1", "%").layout)
