"""The profile's JSON: round trip, shipped files, refusals that name the field."""

from __future__ import annotations

import json

import pytest

from voxserve.core import profile as profiles
from voxserve.core.errors import InvalidInput
from voxserve.core.profile import HostTime, Profile, Source, StageTime
from voxserve.core.settings import Prepared, Split


def small_profile() -> Profile:
    return Profile(
        name="small",
        device="a device",
        model="a model",
        num_sms=132,
        frame_s=0.08,
        sample_rate_hz=24000,
        prepared=Prepared(
            splits=(Split(), Split(100, 32)),
            decode_buckets=(1, 2),
            codec_buckets=(1, 2),
            urgent_buckets=(1,),
            prefill_buckets=(256,),
            chunk_frames=(10,),
            num_slots=4,
        ),
        host=HostTime(0.001, source=Source.PROVISIONAL, note="a guess"),
        times=(
            StageTime("decode", 1, 0.004),
            StageTime("prefill", 1, 0.003, tokens=40, source=Source.INFERRED),
            StageTime("codec", 1, 0.002, frames=10, sms=32, p90_s=0.0021, samples=9),
            StageTime(
                "codec", 1, 0.004, frames=10, beside=("decode",), lane="urgent", split="100/32"
            ),
        ),
        versions={"torch": "2.13"},
    )


def test_round_trip(tmp_path):
    profile = small_profile()
    profiles.save(profile, tmp_path / "small.json")
    assert profiles.load(tmp_path / "small.json") == profile
    assert profile.sources() == {"measured": 3, "inferred": 1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version"),
        ({"num_sms": 0}, "num_sms"),
        ({"times": []}, "decode"),
        ({"colour": "red"}, "colour"),
        ({"host": {"seconds": 0.1, "source": "heard"}}, "heard"),
    ],
)
def test_bad_fields_are_named(change, message):
    data = json.loads(json.dumps(profiles.to_json(small_profile()))) | change
    with pytest.raises(InvalidInput, match=message):
        profiles.from_json(data)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"stage": "decode", "rows": 1, "seconds": 0}, "positive"),
        ({"stage": "decode", "rows": 1, "seconds": 1, "sms": 133}, "133 SMs"),
        ({"stage": "codec", "rows": 1, "seconds": 1}, "frames"),
        ({"stage": "prefill", "rows": 1, "seconds": 1}, "tokens"),
        ({"stage": "decode", "rows": 1, "seconds": 1, "beside": ["music"]}, "music"),
        ({"stage": "decode", "rows": 1, "seconds": 1, "beside": ["urgent"]}, "lane and split"),
        ({"stage": "vocoder", "rows": 1, "seconds": 1}, "vocoder"),
    ],
)
def test_bad_times_are_named(row, message):
    data = json.loads(json.dumps(profiles.to_json(small_profile())))
    data["times"].append(row)
    with pytest.raises(InvalidInput, match=message):
        profiles.from_json(data)


def test_unknown_name_lists_the_shipped_ones():
    with pytest.raises(InvalidInput, match="no profile 'b200'"):
        profiles.load("b200")
