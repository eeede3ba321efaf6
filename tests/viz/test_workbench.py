"""The workbench against a fake engine: sound out, numbers shown, nothing left behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from ipywidgets.widgets import widget as widgets
from viz.fakes import FakeEngine, tone
from waiting import wait_for

from voxserve.core.errors import EngineStopped
from voxserve.viz import stories
from voxserve.viz.wire import ListenerStall
from voxserve.viz.workbench import Workbench


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(speed=40.0)


@pytest.fixture
def bench(engine: FakeEngine) -> Iterator[Workbench]:
    workbench = Workbench(engine)
    yield workbench
    workbench.close()


def _capture(bench: Workbench) -> list[tuple[dict[str, Any], list[bytes]]]:
    sent: list[tuple[dict[str, Any], list[bytes]]] = []
    bench.player.send = lambda message, buffers=(): sent.append((message, list(buffers)))
    return sent


def _threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("voxserve-")]


def test_speak_sends_every_sample_in_order_and_the_end(bench: Workbench) -> None:
    sent = _capture(bench)
    bench.player._handle_custom_msg({"type": "hello", "page": "p"}, [])
    request_id = bench.speak("one two three four five six")
    wait_for(lambda: not bench.listening.active)
    pcm = np.concatenate([np.frombuffer(b[0], "<i2") for m, b in sent if m["type"] == "pcm"])
    assert np.array_equal(pcm, tone(request_id, 0, len(pcm)))
    assert sent[-1][0] == {"type": "end", "stream": request_id}
    messages = [len(b[0]) // 2 for m, b in sent if m["type"] == "pcm"]
    assert min(messages[:-1]) >= 0.1 * bench.engine.sample_rate_hz


def test_each_line_of_the_text_box_is_a_stream_of_its_own(bench: Workbench) -> None:
    bench.text.value = "one two three\n\nfour five six\n"
    bench._parts.speak.click()
    wait_for(lambda: len(bench.player.streams) == 2)
    spoken = {label for _, label in bench.player.streams}
    assert spoken == {"one two three", "four five six"}
    wait_for(lambda: not bench.listening.active)


def test_stop_cancels_and_silences(bench: Workbench, engine: FakeEngine) -> None:
    engine.speed = 1.0
    sent = _capture(bench)
    request_id = bench.speak("word " * 50)
    wait_for(lambda: any(m["type"] == "pcm" for m, _ in sent))
    bench.stop()
    wait_for(lambda: not bench.listening.active)
    assert {"type": "stop", "stream": request_id} in [m for m, _ in sent]


def test_empty_text_is_explained_in_the_status_line(bench: Workbench) -> None:
    bench.text.value = " "
    bench._parts.speak.click()
    wait_for(lambda: "there is no text to speak" in bench._parts.status.value)


def test_an_unexpected_error_of_a_button_is_shown_not_swallowed(
    bench: Workbench, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise KeyError("<lost>")

    monkeypatch.setattr(engine, "stream", fail)
    bench._parts.speak.click()
    wait_for(lambda: "KeyError" in bench._parts.status.value)
    assert "<lost>" not in bench._parts.status.value  # escaped


def test_the_rate_slider_sets_the_background_load(bench: Workbench, engine: FakeEngine) -> None:
    bench.rate.value = 0.5
    bench.rate.value = 0.0
    assert engine.loads == [("libritts", 0.5), ("libritts", 0.0)]


def test_the_header_tells_the_engines_state(bench: Workbench, engine: FakeEngine) -> None:
    wait_for(lambda: "vs-state-running" in bench._parts.header.value)
    engine.state = "failed: out of memory"
    wait_for(lambda: "failed: out of memory" in bench._parts.header.value)
    assert "vs-state-failed" in bench._parts.header.value


def test_a_failing_display_is_reported_and_goes_on(
    bench: Workbench, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    stats = engine.stats

    def fail() -> None:
        raise ValueError("no numbers")

    monkeypatch.setattr(engine, "stats", fail)
    wait_for(lambda: "no numbers" in bench._parts.status.value)
    monkeypatch.setattr(engine, "stats", stats)
    ticks = bench._publisher.num_ticks
    wait_for(lambda: bench._publisher.num_ticks > ticks + 2)


def test_a_listener_stall_is_marked_on_the_timeline(bench: Workbench) -> None:
    marked: list[ListenerStall] = []
    bench.timeline.add_listener_stall = marked.append
    bench.player.add(1, "one")
    event = {"kind": "resume", "stream": 1, "gap_s": 0.5, "tapped": 0}
    bench.player._handle_custom_msg({"type": "hello", "page": "p"}, [])
    status = {"type": "status", "page": "p", "sent_ms": 0.0, "events": [event], "streams": []}
    bench.player._handle_custom_msg(status, [])
    assert [(stall.stream, stall.gap_s) for stall in marked] == [(1, 0.5)]
    assert marked[0].time_s < bench.engine.now_s() - 0.4  # when it ran dry
    select = {"type": "select-heard", "time_s": marked[0].time_s, "stream": 1}
    bench.timeline._handle_custom_msg(select, [])
    assert "the browser ran dry" in bench._parts.detail.value


def test_running_the_cell_again_closes_the_old_workbench(engine: FakeEngine) -> None:
    first = Workbench(engine)
    first.rate.value = 1.0
    second = Workbench(engine)
    assert engine.loads == [("libritts", 1.0)]  # the load goes on, and is shown
    assert second.rate.value == 1.0
    assert not first._publisher._thread.is_alive()
    assert first.widget.comm is None
    second.close()
    assert not _threads()


def test_a_closed_workbench_leaves_no_widget_in_kernel_or_browser(engine: FakeEngine) -> None:
    before = set(widgets._instances)
    bench = Workbench(engine)
    assert len(set(widgets._instances) - before) > 100
    bench.close()
    assert set(widgets._instances) == before


def test_an_error_in_a_clicks_answer_is_shown(
    bench: Workbench, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise KeyError("lost")

    monkeypatch.setattr(stories, "chunk_words", fail)
    monkeypatch.setattr(stories, "heard_words", fail)
    for message in (
        {"type": "select", "request_id": 1, "index": 0},
        {"type": "select-heard", "time_s": 1.0, "stream": 1},
    ):
        bench.report("")
        bench.timeline._handle_custom_msg(message, [])
        assert "KeyError" in bench._parts.status.value


def test_close_ends_threads_load_and_widgets(engine: FakeEngine) -> None:
    bench = Workbench(engine)
    bench.rate.value = 1.0
    bench.close()
    bench.close()
    assert engine.loads == [("libritts", 1.0), ("libritts", 0.0)]
    assert bench.timeline.comm is None
    assert not _threads()


def test_close_survives_an_engine_that_has_ended(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Workbench(engine)
    bench.rate.value = 1.0

    def ended(**_: Any) -> None:
        raise EngineStopped("the engine was stopped")

    monkeypatch.setattr(engine, "load", ended)
    bench.close()
    assert not _threads()


def test_the_figure_shows_what_happened(bench: Workbench) -> None:
    bench.speak("one two three")
    wait_for(lambda: not bench.listening.active)
    names = {trace.name for trace in bench.figure().data}
    assert {"prefill", "decode", "urgent codec", "deadline met"} <= names
