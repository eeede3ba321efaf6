"""What the timeline sends, to whom and how often."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from viz.records import span

from voxserve.core.events import Trace
from voxserve.core.jobs import JobKind, LaneName
from voxserve.viz import timeline as module
from voxserve.viz.timeline import Timeline


class Page:
    """A browser page as the kernel sees it, on a clock that the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[tuple[dict[str, Any], list[bytes]]] = []
        self.wall_s = 100.0
        monkeypatch.setattr(module.time, "monotonic", lambda: self.wall_s)
        self.widget = Timeline()
        self.widget.send = lambda message, buffers=(): self.sent.append((message, list(buffers)))
        self.trace = Trace()

    def says(self, **message: Any) -> None:
        self.widget._handle_custom_msg(message, [])

    def publish(self, after_s: float = 0.1) -> tuple[dict[str, Any], int] | None:
        """The message sent, if any, and its number of spans."""
        self.sent.clear()
        self.wall_s += after_s
        self.widget.publish(self.trace, 50.0)
        if not self.sent:
            return None
        message, buffers = self.sent[0]
        return message, len(buffers[0]) // 4 // len(module.wire.SPAN_COLUMNS)

    def record(self, end_s: float) -> None:
        self.trace.append(span(LaneName.LM, JobKind.DECODE, end_s - 0.01, end_s))


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Page:
    return Page(monkeypatch)


def test_only_what_is_new_is_sent_and_a_new_page_gets_the_window(page: Page) -> None:
    page.record(5.0)  # too old to show at 50 s
    page.record(49.0)
    message, num_spans = page.publish() or ({}, 0)
    assert (message["reset"], num_spans) == (True, 1)
    page.record(49.5)
    message, num_spans = page.publish() or ({}, 0)
    assert (message["reset"], num_spans) == (False, 1)
    for _ in range(2):  # the same page again: its notebook was closed and reopened
        page.says(type="hello", page="a", hidden=False)
        message, num_spans = page.publish() or ({}, 0)
        assert (message["reset"], num_spans) == (True, 2)


def test_hidden_pages_get_a_heartbeat_each_second_then_everything(page: Page) -> None:
    page.says(type="hello", page="a", hidden=False)
    page.publish()
    page.says(type="page", page="a", hidden=True)
    page.record(49.0)
    assert page.publish() is None
    message, num_spans = page.publish(1.0) or ({}, -1)
    assert (message["type"], num_spans) == ("delta", 0)
    page.says(type="page", page="a", hidden=False)
    message, num_spans = page.publish() or ({}, 0)
    assert (message["reset"], num_spans) == (True, 1)


def test_pages_that_are_gone_are_forgotten(page: Page) -> None:
    for number in range(20):  # reloaded: each is another page
        page.says(type="hello", page=f"old {number}", hidden=False)
        page.says(type="page", page=f"old {number}", hidden=True)
    page.says(type="hello", page="crashed", hidden=False)
    page.says(type="hello", page="a", hidden=False)
    for _ in range(4):
        page.wall_s += 10.0
        page.says(type="page", page="a", hidden=False)
    assert list(page.widget._visible) == ["a"]
    page.publish()
    page.says(type="page", page="a", hidden=False)  # still there: nothing is sent again
    message, _ = page.publish() or ({"reset": True}, 0)
    assert not message["reset"]
    page.says(type="page", page="a", hidden=True)
    assert page.publish() is None


def test_one_visible_page_is_enough(page: Page) -> None:
    page.says(type="hello", page="a", hidden=True)
    page.says(type="hello", page="b", hidden=False)
    page.publish()
    page.record(49.0)
    assert (page.publish() or ({}, 0))[1] == 1


def test_a_slow_page_gets_fewer_frames(page: Page) -> None:
    page.publish()
    page.says(type="slow", page="a")
    assert page.publish(0.1) is None
    assert page.publish(0.5) is not None


def test_plotly_comes_from_the_kernel(page: Page) -> None:
    page.says(type="need-plotly")
    (message, (script,)) = page.sent[0]
    assert message["type"] == "plotly"
    assert b"newPlot" in gzip.decompress(script)


def test_selecting_a_chunk_is_told(page: Page) -> None:
    chosen: list[tuple[int, int]] = []
    page.widget.on_select = lambda request_id, index: chosen.append((request_id, index))
    page.says(type="select", request_id=3, index=1)
    assert chosen == [(3, 1)]


def test_a_ghost_brings_what_happened_then_to_every_page(page: Page) -> None:
    ghost = [span(LaneName.LM, JobKind.DECODE, 9.0, 9.5)]
    recorded = [span(LaneName.LM, JobKind.DECODE, at_s, at_s + 0.2) for at_s in (9.0, 9.3)]
    page.widget.show_ghost("time sharing", "worse", ghost, recorded)
    page.says(type="hello", page="a", hidden=False)  # opened later
    shown = [sent for sent in page.sent if sent[0]["type"] == "ghost"]
    page.publish()
    shown += [sent for sent in page.sent if sent[0]["type"] == "ghost"]
    assert [message.get("is_new", False) for message, _ in shown] == [True, False]
    for _, buffers in shown:
        counts = [len(one) // 4 // len(module.wire.SPAN_COLUMNS) for one in buffers]
        assert counts == [1, 0, 2, 0]
