"""Laws that hold for any interleaving of arrivals, completions, cancels and setting changes."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from voxserve.core.jobs import (
    Cancel,
    ChunkDelivered,
    Fail,
    RequestEnded,
    SettingsChanged,
    TextArrived,
)
from voxserve.core.request import RequestState
from voxserve.core.settings import (
    ADMISSIONS,
    LANE_MODES,
    OVERLOADS,
    POLICIES,
    Prepared,
    Settings,
    Split,
)
from voxserve.sim.fake import FAKE_PREPARED, FakeWorld, TableCost

_SMALL = replace(
    FAKE_PREPARED,
    decode_buckets=(1, 2, 4),
    codec_buckets=(1, 2, 4),
    urgent_buckets=(1, 2),
    prefill_buckets=(32, 64),
    num_slots=6,
)

requests = st.lists(
    st.fixed_dictionaries(
        {
            "at_s": st.floats(0.0, 0.5),
            "frames": st.lists(st.integers(0, 24), min_size=1, max_size=3).map(tuple),
            "max_frames": st.integers(1, 60),
            "chunk_ramp": st.sampled_from([(10,), (2, 4, 10), (4,), (2, 10)]),
            "has_listener": st.booleans(),
            "text_complete": st.sampled_from((True, True, False)),
        }
    ),
    min_size=1,
    max_size=10,
)
changes = st.lists(
    st.tuples(
        st.floats(0.0, 1.0),
        st.fixed_dictionaries(
            {},
            optional={
                "lane_mode": st.sampled_from(LANE_MODES),
                "admission": st.sampled_from(ADMISSIONS),
                "overload": st.sampled_from(OVERLOADS),
                "policy": st.sampled_from(POLICIES),
                "sm_split": st.sampled_from(FAKE_PREPARED.splits),
                "background_batch": st.integers(1, 4),
                "max_decode_batch": st.sampled_from((1, 2, 4)),
                "max_background_batch": st.sampled_from((1, 4)),
                "urgency_margin_s": st.sampled_from((0.0, 0.1, 1.0)),
                "max_prefill_defer_s": st.sampled_from((0.0, 0.1, 1.0)),
                "max_running": st.integers(1, 6),
                "decode_steps_per_prefill": st.integers(1, 4),
            },
        ),
    ),
    max_size=4,
)
ends = st.lists(st.tuples(st.floats(0.0, 1.0), st.integers(0, 9), st.booleans()), max_size=6)
models = st.fixed_dictionaries(
    {
        "lookahead_frames": st.sampled_from((0, 0, 3)),
        "codec_delay_samples": st.sampled_from((0, 720)),
    }
)
pools = st.sampled_from(
    (
        replace(_SMALL, lm_depth=1),
        replace(_SMALL, lm_depth=2),
        replace(_SMALL, lm_depth=2, num_kv_pages=7, kv_page_tokens=16, max_context_tokens=64),
    )
)


def _world(
    prepared: Prepared,
    model: dict[str, int],
    arrivals: list[dict[str, Any]],
    changed: list[tuple[float, dict[str, Any]]],
    ended: list[tuple[float, int, bool]],
    seed: int,
) -> FakeWorld:
    start = Settings(sm_split=Split(100, 32), max_decode_batch=4, max_background_batch=4)
    start = replace(start, urgent_batch=2, max_running=6, background_batch=3)
    random = Random(seed)
    world = FakeWorld(
        start,
        prepared,
        TableCost(decode=(0.004, 0.001), prefill=(0.003, 0.0001), codec=(0.002, 0.001)),
        duration_s=lambda job, seconds: seconds * random.uniform(0.2, 3.0),
        **model,
    )
    for request_id, request in enumerate(arrivals):
        tokens = tuple(random.randint(1, 30) for _ in request["frames"])
        world.arrive(request_id=request_id, prompt_tokens=tokens, **request)
        if not request["text_complete"]:
            for tokens_at_s in (0.0, 0.05, 0.2):
                later_s = request["at_s"] + tokens_at_s + random.uniform(0.0, 0.05)
                world.send(later_s, TextArrived(request_id, random.randint(0, 6), False))
            world.send(request["at_s"] + 0.4, TextArrived(request_id, 0, True))
    current = start
    for at_s, change in sorted(changed, key=lambda item: item[0]):
        current = current.changed(prepared, **change)
        world.send(at_s, SettingsChanged(current))
    for at_s, request_id, is_cancel in ended:
        event = Cancel(request_id) if is_cancel else Fail(request_id, "gone")
        world.send(at_s, event)
    return world


@settings(max_examples=120, deadline=None)
@given(pools, models, requests, changes, ends, st.integers(0, 1000))
def test_any_interleaving_keeps_the_laws_and_leaks_nothing(
    prepared: Prepared, model: Any, arrivals: Any, changed: Any, ended: Any, seed: int
) -> None:
    world = _world(prepared, model, arrivals, changed, ended, seed)
    world.run(max_decisions=20_000)

    assert world.scheduler.num_free_slots == prepared.num_slots
    assert world.scheduler.num_free_pages == prepared.num_kv_pages
    assert world.scheduler.num_jobs == world.scheduler.num_waiting == 0
    finals = [n for _, n in world.notices if isinstance(n, RequestEnded)]
    assert sorted(n.request_id for n in finals) == list(range(len(arrivals)))
    _check_audio(world, finals, model)


def _check_audio(world: FakeWorld, finals: list[RequestEnded], model: dict[str, int]) -> None:
    """The chunks of a request that is done add up to its frames, and no frame is spoken twice."""
    for final in finals:
        chunks = [
            n
            for _, n in world.notices
            if isinstance(n, ChunkDelivered) and n.chunk.request_id == final.request_id
        ]
        assert [n.chunk.index for n in chunks] == list(range(len(chunks)))
        if final.state is RequestState.DONE:
            assert sum(n.chunk.num_frames for n in chunks) == final.num_frames
            assert sum(n.num_samples for n in chunks) == final.num_frames * 1920
            assert all(n.chunk.num_frames > 0 for n in chunks[:-1])
            if model["codec_delay_samples"] == 0:
                assert all(n.chunk.num_frames > 0 for n in chunks)


@settings(max_examples=25, deadline=None)
@given(pools, models, requests, changes, ends, st.integers(0, 1000))
def test_same_events_same_decisions(
    prepared: Prepared, model: Any, arrivals: Any, changed: Any, ended: Any, seed: int
) -> None:
    worlds = [_world(prepared, model, arrivals, changed, ended, seed) for _ in range(2)]
    for world in worlds:
        world.run(max_decisions=20_000)
    assert worlds[0].trace.records() == worlds[1].trace.records()
    assert worlds[0].notices == worlds[1].notices
