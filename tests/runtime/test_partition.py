"""Which splits a GPU can have."""

import pytest

from voxserve.core.errors import DeviceUnavailable
from voxserve.core.settings import Split
from voxserve.runtime import partition
from voxserve.runtime.partition import check_split, possible_splits, usual_split


def test_the_codec_gets_multiples_of_eight_and_the_backbone_the_rest():
    splits = possible_splits(132)
    assert splits[0] == Split(124, 8)
    assert Split(100, 32) in splits
    assert splits[-1] == Split()
    assert all(split.lm_sms + split.codec_sms == 132 for split in splits[:-1])
    assert all(split.codec_sms % 8 == 0 for split in splits)


def test_other_splits_are_refused_with_the_nearest():
    check_split(Split(), 132)
    check_split(Split(100, 32), 132)
    with pytest.raises(DeviceUnavailable, match="100/32"):
        check_split(Split(96, 32), 132)
    with pytest.raises(DeviceUnavailable, match="too small"):
        check_split(Split(4, 4), 8)


def test_the_usual_split_gives_the_codec_a_quarter(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(partition, "can_partition", lambda: True)
    assert usual_split(132) == Split(100, 32)
    assert usual_split(8) == Split()
    monkeypatch.setattr(partition, "can_partition", lambda: False)
    assert usual_split(132) == Split()
