"""Split choice and placement of roles, from estimates alone."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from voxserve.core.jobs import Partition
from voxserve.core.settings import Prepared, Split
from voxserve.sched.placement import (
    ExpectedLoad,
    best_by_roles,
    choose_split,
    estimate_split,
    rank_placements,
)

PREPARED = Prepared(
    splits=(Split(), Split(116, 16), Split(100, 32), Split(68, 64), Split(44, 88)),
    decode_buckets=(1, 64),
    codec_buckets=(1, 16),
    urgent_buckets=(1, 8),
    prefill_buckets=(256,),
    chunk_frames=(10,),
    num_slots=64,
)
LOAD = ExpectedLoad(frames_per_request=100.0, codec_rows=16)


@dataclass(frozen=True)
class Cost:
    """Perfect scaling: `lm` and `codec` seconds of a full batch on 132 SMs."""

    lm: float = 0.008
    codec: float = 0.010
    unsplit: float = 2.0

    revision = 0

    def decode_s(self, rows: int, split: Split, partition: Partition) -> float:
        if partition is Partition.WHOLE or split.is_none:
            return self.lm * (1.0 if partition is Partition.WHOLE else self.unsplit)
        return self.lm * (132 / split.lm_sms) ** 0.3

    def prefill_s(self, num_tokens: int, num_prompts: int, split: Split) -> float:
        return 0.0

    def codec_s(self, rows: int, num_frames: int, split: Split, partition: Partition) -> float:
        if partition is Partition.WHOLE:
            return self.codec / 8
        if split.is_none:
            return self.codec * self.unsplit
        return self.codec * 132 / split.codec_sms


def test_the_codec_keeps_up_with_the_least_sms():
    choice = choose_split(Cost(codec=0.004), PREPARED, LOAD)
    assert choice.split == Split(100, 32)
    by_split = {item.split: item for item in choice.estimates}
    assert by_split[Split(116, 16)].codec_rps < by_split[Split(116, 16)].lm_rps
    assert by_split[Split(68, 64)].lm_rps < by_split[Split(100, 32)].lm_rps
    assert Split() in by_split


def test_a_codec_bound_model_gives_the_codec_most_sms():
    choice = choose_split(Cost(codec=0.080, unsplit=3.0), PREPARED, LOAD)
    assert choice.split == Split(44, 88)
    assert "no split's codec keeps up" in choice.why


def test_a_small_target_needs_a_small_codec():
    estimate = estimate_split(Cost(), PREPARED, Split(116, 16), LOAD)
    load = ExpectedLoad(rate_rps=estimate.codec_rps / 1.2, frames_per_request=100.0, codec_rows=16)
    assert choose_split(Cost(), PREPARED, load).split == Split(116, 16)


def test_no_split_wins_only_when_clearly_better():
    assert choose_split(Cost(unsplit=1.0, codec=0.02), PREPARED, LOAD).split == Split()
    assert choose_split(Cost(unsplit=1.7), PREPARED, LOAD).split != Split()


def test_a_device_without_splits():
    only_none = Prepared((Split(),), (1,), (1,), (1,), (256,), (10,), 4)
    assert choose_split(Cost(), only_none, LOAD).split == Split()


def test_a_group_is_as_fast_as_its_slower_side():
    ranked = rank_placements(Cost(), Cost(), PREPARED, LOAD, 3)
    assert all(item.rate_rps == min(item.lm_rps, item.codec_rps) for item in ranked)
    assert [item.rate_rps for item in ranked] == sorted(
        (item.rate_rps for item in ranked), reverse=True
    )
    assert all(item.num_both + item.num_lm + item.num_codec == 3 for item in ranked)
    assert any(item.num_lm and item.num_codec for item in ranked)


def test_more_gpus_are_never_slower():
    rates = [rank_placements(Cost(), Cost(), PREPARED, LOAD, n)[0].rate_rps for n in (1, 2, 4)]
    assert rates[1] >= 2 * rates[0] * (1 - 1e-9)
    assert rates[2] >= 2 * rates[1] * (1 - 1e-9)


def test_one_line_per_assignment_of_roles():
    ranked = rank_placements(Cost(), Cost(), PREPARED, LOAD, 2)
    best = best_by_roles(ranked)
    roles = [(item.num_both, item.num_lm, item.num_codec) for item in best]
    assert len(roles) == len(set(roles)) == 4
    assert best[0] == ranked[0]
    assert {str(item) for item in best} >= {"1 x LM only + 1 x codec only"}


@pytest.mark.parametrize("frames", [1.0, 5.0, 500.0])
def test_any_request_length(frames):
    load = ExpectedLoad(frames_per_request=frames)
    estimate = estimate_split(Cost(), PREPARED, Split(100, 32), load)
    assert estimate.lm_rps > 0
    assert estimate.codec_rps > 0
