"""The other built-in policies, and users' own."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sched.stories import FIRST_S, STEP_S, chunk, entered, spans, world
from voxserve.core.chunk import UrgencyReason
from voxserve.core.events import SettingChange
from voxserve.core.jobs import LaneName, PolicyChanged, PrefillJob, SettingsChanged
from voxserve.core.playback import BoolArray, FloatArray
from voxserve.core.request import RequestState
from voxserve.core.settings import Settings
from voxserve.sched.invariants import LawBroken
from voxserve.sched.policy import BackgroundView, HeadChunks, Launch, Policy, RunningView
from voxserve.sched.startup_steady import StartupSteadyPolicy
from voxserve.sched.throughput import ThroughputPolicy
from voxserve.sched.urgency import UrgencyPolicy
from voxserve.sim.fake import FakeWorld


def test_startup_steady_bounds_the_requests_that_are_starting() -> None:
    told = world(policy="startup_steady", admission="prefill_first")
    for request_id in range(10):
        told.arrive(0.0, request_id, 25)
    told.run()
    prefills = [job for job in told.jobs if isinstance(job, PrefillJob)]
    assert prefills[0].request_ids == tuple(range(8))
    # The others start once first audio has been delivered and a step has ended.
    assert prefills[1].queued_s == pytest.approx(FIRST_S + STEP_S)


def test_the_bound_is_given_to_the_constructor() -> None:
    told = FakeWorld(policy=StartupSteadyPolicy(num_starting=3))
    for request_id in range(5):
        told.arrive(0.0, request_id, 25)
    told.run()
    prefills = [job for job in told.jobs if isinstance(job, PrefillJob)]
    assert prefills[0].request_ids == (0, 1, 2)


def test_startup_steady_calls_a_chunk_critical_a_second_before_its_deadline() -> None:
    told = world(policy="startup_steady")
    told.arrive(0.0, 0, 45)
    told.run()
    reasons = [chunk(told, 0, index).reason for index in range(5)]
    # Chunk 1 is ready 0.7 s before its deadline; each later one has 0.7 s more.
    assert reasons[:3] == [UrgencyReason.FIRST, UrgencyReason.MARGIN, UrgencyReason.SLACK]


def _keys(policy: StartupSteadyPolicy | ThroughputPolicy, is_first: list[bool]) -> list[int]:
    view = RunningView(
        now_s=5.0,
        settings=Settings(),
        slots=np.arange(4),
        slack_s=np.array([0.1, 3.0, 0.9, -0.2]),
        unserved_s=np.array([0.0, 0.3, 0.1, 0.2]),
        is_first=np.array(is_first),
        order=np.arange(4),
    )
    return np.argsort(policy.decode_keys(view)).tolist()


def test_startup_steady_decodes_startup_then_critical_then_the_rest() -> None:
    assert _keys(StartupSteadyPolicy(), [False, True, False, False]) == [1, 3, 0, 2]
    assert _keys(StartupSteadyPolicy(), [False, False, False, False]) == [3, 0, 2, 1]


def test_throughput_holds_nothing_back_and_hurries_nothing() -> None:
    told = world(policy="throughput")
    told.arrive(0.0, 0, 25)
    told.arrive(0.030, 1, 25)
    told.run()
    assert spans(told, LaneName.URGENT) == []
    assert chunk(told, 0, 0).launched_s == chunk(told, 0, 0).ready_s
    assert _keys(ThroughputPolicy(), [False] * 4) == [1, 3, 2, 0]


def test_throughput_never_defers_a_prompt() -> None:
    told = world(policy="throughput")
    told.cost = type(told.cost)(prefill=(0.5, 0.0))
    told.__post_init__()
    told.executor.duration_s = lambda job, estimate_s: 0.005
    told.arrive(0.0, 0, 60)
    told.arrive(0.012, 1, 5)
    told.run()
    assert entered(told, 1, RequestState.PREFILLING).time_s == pytest.approx(0.015)


class Impatient(UrgencyPolicy):
    """What a student might try: everything within half a second is urgent."""

    name = "impatient"

    def is_urgent(self, heads: HeadChunks, settings: Settings) -> BoolArray:
        return heads.is_first | (heads.time_to_deadline_s < 0.5)


def test_a_subclass_can_be_passed_in_and_swapped_while_running() -> None:
    told = world()
    told.arrive(0.0, 0, 60)
    told.send(0.150, PolicyChanged(Impatient()))
    told.send(0.250, PolicyChanged(None))
    told.run()
    assert told.records(SettingChange) == [
        SettingChange(0.150, "policy", "urgency", "impatient"),
        SettingChange(0.250, "policy", "impatient", "urgency"),
    ]
    passed = FakeWorld(policy=Impatient())
    passed.arrive(0.0, 0, 25)
    passed.run()
    assert entered(passed, 0, RequestState.DONE)


def test_the_setting_swaps_policies_too() -> None:
    told = world()
    told.arrive(0.0, 0, 60)
    told.send(0.150, SettingsChanged(told.settings.changed(told.prepared, policy="throughput")))
    told.run()
    assert isinstance(told.scheduler.policy, ThroughputPolicy)


class Forgetful(UrgencyPolicy):
    """Holds background chunks and never looks again."""

    def background(self, view: BackgroundView) -> Launch:
        return Launch(0)

    def next_urgent_s(self, heads: HeadChunks, settings: Settings) -> float:
        return np.inf


def test_the_checker_names_the_law_a_policy_breaks_and_the_event() -> None:
    told = FakeWorld(policy=Forgetful())
    told.arrive(0.0, 0, 25)
    with pytest.raises(LawBroken, match="head chunks wait") as caught:
        told.run()
    assert caught.value.law == "progress"
    assert caught.value.event is not None


class Greedy(UrgencyPolicy):
    """Asks for more rows than there are."""

    def background(self, view: BackgroundView) -> Launch:
        return Launch(10_000)

    def decode_keys(self, view: RunningView) -> FloatArray:
        return np.full(len(view.slots), np.nan)


def test_no_answer_of_a_policy_breaks_a_batch() -> None:
    told = FakeWorld(Settings(max_decode_batch=2, max_background_batch=4), policy=Greedy())
    for request_id in range(6):
        told.arrive(0.0, request_id, 25)
    told.run()
    assert told.scheduler.num_free_slots == told.prepared.num_slots


def test_a_policy_that_leaves_a_decision_open_cannot_be_made():
    class Half(Policy):
        def max_starting(self) -> int | None:
            return 4

    with pytest.raises(TypeError, match="is_urgent"):
        Half()
