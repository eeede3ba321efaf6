"""Parts of the engine alone: host tuning, monitor, mailbox, audio results, sentences."""

from __future__ import annotations

import gc
import sys
import threading
import time

import numpy as np
import pytest

from voxserve.core.chunk import ChunkRef
from voxserve.core.events import HostDelay, RequestChange, Trace
from voxserve.core.request import RequestState
from voxserve.core.workload import utterance_of_words
from voxserve.engine.audio import Audio
from voxserve.engine.host import SWITCH_INTERVAL_S, HostTuning
from voxserve.engine.mailbox import DeliveredChunk, Mailbox
from voxserve.engine.monitor import Monitor
from voxserve.engine.sentences import bundled, text_of

RATE_HZ = 1000


def chunk(index: int, pcm: list[int], delivered_s: float) -> DeliveredChunk:
    ref = ChunkRef(0, 0, index, index, 1, False)
    return DeliveredChunk(ref, np.array(pcm, np.int16), delivered_s, delivered_s + 0.5, 0.0)


def test_tuning_counts_engines():
    tuning = HostTuning()
    before = sys.getswitchinterval(), gc.isenabled(), gc.get_freeze_count()
    tuning.enter_serving()
    tuning.enter_serving()
    tuning.enter_busy(0.0)
    tuning.enter_busy(0.0)
    sys.setswitchinterval(0.001)  # as an engine on a GPU does in its naps
    tuning.leave_busy()
    tuning.leave_serving()
    assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL_S)
    assert not gc.isenabled()
    tuning.leave_busy()
    tuning.leave_serving()
    assert (sys.getswitchinterval(), gc.isenabled(), gc.get_freeze_count()) == before


def test_a_forked_child_gets_its_interpreter_back():
    tuning = HostTuning()
    before = sys.getswitchinterval(), gc.isenabled(), gc.get_freeze_count()
    for _ in range(2):
        tuning.enter_serving()
        tuning.enter_busy(0.0)
    tuning._lock.acquire()  # by a thread that the child does not have
    tuning.forget()
    assert (sys.getswitchinterval(), gc.isenabled(), gc.get_freeze_count()) == before
    tuning.enter_serving()
    tuning.leave_serving()


def test_tuning_leaves_a_collector_alone_that_was_off():
    tuning = HostTuning()
    gc.disable()
    try:
        tuning.enter_busy(0.0)
        tuning.collect_young(1000.0)
        tuning.leave_busy()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_monitor_counts_requests_by_state():
    monitor = Monitor(Trace())
    for state in (RequestState.WAITING, RequestState.PREFILLING, RequestState.RUNNING):
        monitor.record(RequestChange(1, state, 0.0))
        assert monitor.active[state] == 1
        assert sum(monitor.active.values()) == 1
    monitor.record(RequestChange(1, RequestState.DONE, 1.0))
    assert sum(monitor.active.values()) == 0
    assert monitor.ended[RequestState.DONE] == 1


def test_monitor_records_the_worst_delay_of_a_window():
    trace = Trace()
    monitor = Monitor(trace)
    for now_s, delay_s in ((1.0, 0.0), (1.01, 0.03), (1.02, 0.01), (1.2, 0.0), (1.4, 0.001)):
        monitor.host_delay(now_s, delay_s)
    assert [record for record in trace if isinstance(record, HostDelay)] == [HostDelay(1.2, 0.03)]
    assert monitor.delay_s == pytest.approx(0.03)
    for second in range(2, 20):
        monitor.host_delay(float(second), 0.0)
    assert monitor.delay_s == 0.0


def test_a_mailbox_wakes_its_reader_and_forgets_after_closing():
    mailbox = Mailbox()
    item = chunk(0, [1], 0.0)
    threading.Thread(target=lambda: (time.sleep(0.02), mailbox.put(item))).start()
    mailbox.wait(20.0)
    assert mailbox.take() is item
    assert mailbox.take() is None
    mailbox.put(item)
    mailbox.close()
    mailbox.put(item)
    assert mailbox.take() is None
    mailbox.wait(20.0)  # a closed mailbox keeps nobody


def test_audio_knows_its_first_sound_and_stalls():
    chunks = [
        chunk(0, [0] * 100, 10.2),  # until 10.3
        chunk(1, [0] * 30 + [5000] * 70, 10.25),  # until 10.4
        chunk(2, [5000] * 100, 10.45),  # 50 ms late
    ]
    audio = Audio(chunks, RATE_HZ, request_id=7, arrival_s=10.0)
    assert audio.ttfa_s == pytest.approx(0.2)
    assert audio.audible_ttfa_s == pytest.approx(0.25 + 0.13)
    assert (audio.stalls, audio.stall_s) == (1, pytest.approx(0.05))
    assert audio.duration_s == pytest.approx(0.3)
    assert audio.speed == pytest.approx(0.3 / 0.45)
    assert "1 stall" in repr(audio)


def test_audio_without_a_sample():
    audio = Audio([], RATE_HZ, request_id=7, arrival_s=10.0)
    assert audio.ttfa_s is None
    assert audio.audible_ttfa_s is None
    assert "<audio" not in audio._repr_html_()
    assert audio.duration_s == 0


@pytest.mark.parametrize("num_words", [1, 5, 19, 45, 71])
def test_load_texts_have_about_the_words_asked_for(num_words):
    texts = {text_of(utterance_of_words(num_words), seed) for seed in range(20)}
    assert len(texts) >= 5
    for text in texts:
        assert num_words <= len(text.split()) <= num_words + 8
        assert text.endswith(".")


def test_a_workloads_own_text_is_kept():
    assert text_of(utterance_of_words(2, text="My text."), 0) == "My text."


def test_bundled_sentences_are_plain():
    assert all(text.isascii() and not any(c.isdigit() for c in text) for text in bundled())
