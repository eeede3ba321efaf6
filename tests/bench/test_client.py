"""The load client: open loop, accounting by its own clock, giving up."""

import pytest
from fake_target import RATE_HZ, FakeTarget, Script

from voxserve.bench.client import Client, LoadRun
from voxserve.core.errors import EngineStopped
from voxserve.core.workload import LIBRITTS, Offered, offered, utterance_of_words

LOUD = (1000,) * 100  # 0.1 s


def run(script: Script, count: int = 1, timeout_s: float = 5.0) -> tuple[FakeTarget, LoadRun]:
    """Offers `count` requests a second apart."""
    target = FakeTarget(lambda _: script)
    load = [Offered(float(i), utterance_of_words(3)) for i in range(count)]
    client = Client(target, timeout_s, target.sleep)
    return target, client.run(load, float(count), seed=0)


def test_requests_are_sent_at_their_times_however_slow_the_server_is():
    target, result = run(Script(chunks=(), end_s=None), count=3, timeout_s=1.0)
    times = [at_s - result.start_s for _, at_s in target.sent]
    assert times == pytest.approx([0.0, 1.0, 2.0])
    assert result.sent_late_s.max() < 1e-6


def test_equal_seeds_send_equal_requests():
    load = offered(LIBRITTS, 20.0, 1.0, seed=1)
    sent = []
    for _ in range(2):
        target = FakeTarget(lambda _: Script())
        Client(target, sleep=target.sleep).run(load, 1.0, seed=1)
        sent.append([request for request, _ in target.sent])
    assert sent[0] == sent[1]
    assert len({seed for _, seed in sent[0]}) == len(sent[0])


def test_ttfa_counts_from_the_due_time_to_the_first_samples():
    _, result = run(Script(chunks=((0.15, LOUD),)))
    outcome = result.outcomes[0]
    assert outcome.ttfa_s == pytest.approx(0.15)
    assert outcome.audible_ttfa_s == pytest.approx(0.15)
    assert outcome.is_done
    assert outcome.end_s == pytest.approx(0.2)


def test_leading_silence_delays_the_audible_ttfa_alone():
    samples = (0,) * 40 + (1000,) * 60
    _, result = run(Script(chunks=((0.1, (0,) * 100), (0.12, samples))))
    outcome = result.outcomes[0]
    assert outcome.ttfa_s == pytest.approx(0.1)
    # The second chunk plays when the first one's 0.1 s are over.
    assert outcome.audible_ttfa_s == pytest.approx(0.2 + 40 / RATE_HZ)


def test_silence_alone_is_never_audible():
    _, result = run(Script(chunks=((0.1, (0,) * 100),)))
    assert result.outcomes[0].audible_ttfa_s is None


def test_both_stall_rules():
    chunks = ((0.1, LOUD), (0.204, LOUD), (0.29, LOUD))
    _, result = run(Script(chunks=chunks, end_s=0.3))
    outcome = result.outcomes[0]
    assert outcome.stall_s == pytest.approx(0.004)
    assert not outcome.is_stalled
    assert outcome.num_late == 1


def test_what_has_not_ended_in_time_is_cancelled_and_missed():
    target, result = run(Script(end_s=None), timeout_s=2.0)
    assert target.cancelled == [1]
    assert result.outcomes[0].state == "unfinished"
    assert not result.outcomes[0].meets(0.2)


@pytest.mark.parametrize("state", ["rejected", "failed", "cancelled"])
def test_other_ends_are_misses(state: str):
    _, result = run(Script(state=state))
    assert result.outcomes[0].state == state
    assert not result.outcomes[0].meets(0.2)


def test_a_hopeless_load_is_given_up_when_its_window_ends():
    target, result = run(Script(chunks=((30.0, LOUD),), end_s=31.0), count=4, timeout_s=900.0)
    assert "0 of 3 requests had audio within 1 s" in result.stopped
    assert target.now_s() - result.start_s < 5.0
    assert len(target.cancelled) == 4


def test_an_engine_that_ended_fails_the_request():
    target = FakeTarget(lambda _: Script())

    def submit(*_: object) -> int:
        raise EngineStopped("gone")

    target.submit = submit
    load = [Offered(0.0, utterance_of_words(3))]
    result = Client(target, sleep=target.sleep).run(load, 0.1, seed=0, gives_up=False)
    assert result.outcomes[0].state == "failed"
