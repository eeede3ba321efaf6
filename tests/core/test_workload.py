"""Workloads: shapes, absolute seeded schedules, replay and live rates."""

from __future__ import annotations

import pickle
from itertools import islice

import numpy as np
import pytest

from voxserve.core import trace_file, workload
from voxserve.core.errors import InvalidInput
from voxserve.core.events import RequestChange
from voxserve.core.request import FinishReason, RequestState
from voxserve.core.workload import LIBRITTS, SEEDTTS, Burst, Regular, Workload


@pytest.mark.parametrize(
    ("corpus", "mean_words", "mean_s", "bounds"),
    [(LIBRITTS, 18.7, 7.85, (1, 71)), (SEEDTTS, 11.3, 4.7, (3, 30))],
)
def test_corpora_have_their_published_shape(corpus, mean_words, mean_s, bounds):
    items = list(islice(corpus.utterances(seed=3), corpus.size))
    words = [item.num_words for item in items]
    assert np.mean(words) == pytest.approx(mean_words, abs=0.01)
    assert np.mean([item.audio_s for item in items]) == pytest.approx(mean_s, abs=0.05)
    assert min(words) >= bounds[0]
    assert max(words) <= bounds[1]
    assert all(item.prompt_tokens == round(1.3 * item.num_words) + 8 for item in items)


def test_each_seed_draws_its_own_order_and_arrivals_and_repeats_them():
    first = workload.offered(LIBRITTS, 20.0, 30.0, seed=0)
    assert first == workload.offered(LIBRITTS, 20.0, 30.0, seed=0)
    other = workload.offered(LIBRITTS, 20.0, 30.0, seed=1)
    assert [item.at_s for item in first] != [item.at_s for item in other]
    assert sorted(item.at_s for item in first) == [item.at_s for item in first]
    assert len(first) == pytest.approx(600, abs=100)


def test_rate_scales_the_same_schedule():
    slow = workload.offered(LIBRITTS, 10.0, 20.0, seed=0)
    fast = workload.offered(LIBRITTS, 20.0, 10.0, seed=0)
    assert [item.at_s for item in slow] == pytest.approx([2 * item.at_s for item in fast])
    assert [item.utterance for item in slow] == [item.utterance for item in fast]


def test_frames_cover_the_audio():
    item = workload.utterance_of_words(20)
    assert item.num_frames(0.08) == 105  # 8.34 s
    assert workload.utterance_of_words(1, 0.001).num_frames(0.08) == 1
    spec = item.spec(7, 1.5, 0.08, (4, 10))
    assert (spec.request_id, spec.arrival_s, spec.max_frames) == (7, 1.5, 105)


def test_burst_keeps_the_mean_rate():
    load = workload.offered(Burst(16), 32.0, 60.0, seed=0)
    times = [item.at_s for item in load]
    assert times[:16] == [0.0] * 16
    assert all(times[i] == times[i + 15] for i in range(0, len(times) - 15, 16))
    assert len(times) == pytest.approx(32 * 60, rel=0.3)


def test_regular_arrivals_keep_their_distance_and_the_texts():
    load = workload.offered(workload.find("seedtts@regular"), 8.0, 10.0, seed=3)
    gaps = np.diff([item.at_s for item in load])
    assert gaps == pytest.approx(1 / 8)
    assert 0 <= load[0].at_s < 1 / 8
    other = workload.offered(SEEDTTS, 8.0, 10.0, seed=3)
    assert [i.utterance for i in load[:50]] == [i.utterance for i in other[:50]]
    assert load[0].at_s != workload.offered(Regular(), 8.0, 1.0, seed=4)[0].at_s


@pytest.mark.parametrize("mean", [2, 6, 20, 50])
def test_words_gives_texts_of_that_mean(mean):
    words = [u.num_words for u in islice(workload.find(f"words:{mean}").utterances(0), 1000)]
    assert np.mean(words) == pytest.approx(mean, abs=0.05)
    assert min(words) >= 1
    assert max(words) <= 71


@pytest.mark.parametrize("name", ["seedtts@burst:4", "words:6@regular", "burst:8", "libritts"])
def test_a_workload_is_found_by_the_name_it_has(name):
    assert workload.find(name).name == name


@pytest.mark.parametrize(
    "name",
    ["words:1", "words:51", "words:many", "nope@regular", "@regular", "burst:", "libritts@burst:"],
)
def test_names_of_nothing_are_refused(name):
    with pytest.raises(InvalidInput, match="words"):
        workload.find(name)


@pytest.mark.parametrize("time_s", ["nan", "inf", "-inf"])
def test_a_file_s_times_are_finite(time_s):
    with pytest.raises(InvalidInput, match="not finite"):
        workload.from_lines([f"{time_s}\tOne.", "inf\tTwo."])


def test_a_path_may_hold_an_at_sign(tmp_path):
    path = tmp_path / "a@b.txt"
    path.write_text("One two.\n")
    assert workload.offered(workload.find(f"file:{path}@regular"), 4.0, 1.0, 0)


def trace_records():
    def change(request_id, state, time_s, frames=0, reason=None):
        return RequestChange(request_id, state, time_s, reason, num_frames=frames)

    return [
        change(5, RequestState.WAITING, 10.0),
        change(6, RequestState.WAITING, 11.0),
        change(7, RequestState.WAITING, 13.0),
        change(5, RequestState.DONE, 14.0, 50, FinishReason.END),
        change(6, RequestState.CANCELLED, 14.0, 20),
        change(7, RequestState.DONE, 15.0, 100, FinishReason.END),
    ]


def test_replay_keeps_times_and_lengths(tmp_path):
    records = tuple(trace_records())
    load = workload.offered(workload.replay(records, 0.08), 0.0, 60.0, seed=0)
    assert [item.at_s for item in load] == [0.0, 3.0]
    assert [item.utterance.num_frames(0.08) for item in load] == [50, 100]
    stretched = workload.offered(workload.replay(records, 0.08), 0.1, 60.0, seed=0)
    assert [item.at_s for item in stretched] == [0.0, pytest.approx(10.0)]
    path = tmp_path / "a.trace.gz"
    trace_file.save(trace_file.SavedTrace(records, 0.08, 24000), path)
    assert workload.offered(workload.find(f"replay:{path}"), 0.0, 60.0, seed=0) == load


def test_replay_without_an_ended_request_is_refused():
    with pytest.raises(InvalidInput, match="no request"):
        workload.replay(trace_records()[:3], 0.08)


def test_file_of_texts(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("# mine\nOne two three.\n\nFour five.\n")
    found = workload.find(f"file:{path}")
    texts = {item.text for item in islice(found.utterances(0), 4)}
    assert texts == {"One two three.", "Four five."}
    timed = workload.from_lines(["0.5\tHello there.", "2.5\tGood bye."])
    assert [item.at_s for item in workload.offered(timed, 0.0, 9.0, 0)] == [0.0, 2.0]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "no text"),
        (["soon\thello"], "not seconds"),
        (["1\thello", "bye"], "every line or no line"),
        (["2\thello", "1\tbye"], "ascend"),
    ],
)
def test_bad_files_are_refused(lines, message):
    with pytest.raises(InvalidInput, match=message):
        workload.from_lines(lines)


def test_names():
    assert workload.find("burst:8").name == "burst:8"
    assert isinstance(workload.find("seedtts"), Workload)
    assert workload.find(LIBRITTS) is LIBRITTS
    with pytest.raises(InvalidInput, match="libritts, seedtts"):
        workload.find("librispeech")
    with pytest.raises(InvalidInput, match="No such file"):
        workload.find("file:/nowhere/at/all")


def test_a_burst_keeps_its_name_in_another_process() -> None:
    assert pickle.loads(pickle.dumps(Burst(8))).name == "burst:8"
