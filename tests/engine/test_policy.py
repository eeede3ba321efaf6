"""A policy of one's own: given at the start, swapped while the engine serves."""

from __future__ import annotations

from fake_model import FakeModel

from voxserve.core.events import SettingChange
from voxserve.core.playback import BoolArray
from voxserve.core.settings import Settings
from voxserve.sched.policy import HeadChunks
from voxserve.sched.urgency import UrgencyPolicy

TEXT = "one two three four five six seven eight nine"


class Counting(UrgencyPolicy):
    """The default policy, which counts how often it is asked."""

    name = "counting"

    def __init__(self) -> None:
        self.num_asked = 0

    def is_urgent(self, heads: HeadChunks, settings: Settings) -> BoolArray:
        self.num_asked += 1
        return super().is_urgent(heads, settings)


def test_a_policy_object_decides_from_the_start(make) -> None:
    policy = Counting()
    make(policy=policy).stream(TEXT).read()
    assert policy.num_asked > 0


def test_a_policy_object_takes_over_and_a_name_puts_a_built_in_one_back(make) -> None:
    engine = make(FakeModel(step_s=0.002))
    policy = Counting()
    engine.set(policy=policy)
    engine.stream(TEXT).read()
    assert policy.num_asked > 0
    engine.set(policy="urgency")
    engine.say("one")
    asked = policy.num_asked
    engine.stream(TEXT).read()
    assert policy.num_asked == asked
    changes = [(r.old, r.new) for r in engine.trace if isinstance(r, SettingChange)]
    assert changes == [("urgency", "counting"), ("counting", "urgency")]
