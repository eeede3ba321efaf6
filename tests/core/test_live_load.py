"""A load whose rate, texts and arrivals change while it runs."""

from __future__ import annotations

import numpy as np
import pytest

from voxserve.core.errors import InvalidInput
from voxserve.core.live_load import LiveLoad
from voxserve.core.workload import LIBRITTS, Regular, offered, words_corpus


def test_live_load_hands_out_what_it_missed_and_changes_rate():
    load = LiveLoad(LIBRITTS, 10.0, start_s=100.0, seed=0)
    expected = [100.0 + item.at_s for item in offered(LIBRITTS, 10.0, 5.0, seed=0)]
    assert [item.at_s for item in load.due(105.0)] == pytest.approx(expected)
    load.set_rate(0.0, 105.0)
    assert load.due(1e9) == []
    load.set_rate(50.0, 200.0)
    assert 200.0 < load.next_s < 201.0
    with pytest.raises(InvalidInput, match="negative"):
        load.set_rate(-1.0, 0.0)


def test_live_load_goes_on_with_other_texts_and_arrivals():
    load = LiveLoad(LIBRITTS, 10.0, start_s=0.0, seed=0)
    load.due(1.0)
    load.set_workload(Regular(words_corpus(6)), 4.0, 1.0)
    times = [item.at_s for item in load.due(3.0)]
    assert np.diff(times) == pytest.approx(0.25)
    assert 1.0 <= times[0] < 1.25
    assert load.workload.name == "words:6@regular"
