"""Small profiles with round numbers for tests of the simulator."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from voxserve.core.profile import HostTime, Profile, Source, StageTime
from voxserve.core.settings import Prepared, Split

PREPARED = Prepared(
    splits=(Split(), Split(100, 32)),
    decode_buckets=(1, 2, 4, 8, 16, 32, 64),
    codec_buckets=(1, 2, 4, 8, 16, 32, 64),
    urgent_buckets=(1, 2, 4, 8),
    prefill_buckets=(256, 1024),
    chunk_frames=(4, 10),
    num_slots=256,
)


def round_profile(host_s: float = 0.0, extra: Iterable[StageTime] = ()) -> Profile:
    """Decode 10 ms + 0.1 ms a row; codec 2 ms + 0.5 ms a row; both scale with 1/SMs ^ 0.5."""

    def scaled(seconds: float, sms: int) -> float:
        return seconds * (132 / (sms or 132)) ** 0.5

    times = [
        StageTime("decode", rows, scaled(0.010 + 1e-4 * rows, sms), sms=sms)
        for rows in (1, 16, 64)
        for sms in (0, 16, 64, 100)
    ]
    times += [
        StageTime("codec", rows, scaled(0.002 + 5e-4 * rows, sms), sms=sms, frames=10)
        for rows in (1, 16, 64)
        for sms in (0, 16, 32, 64)
    ]
    times += [StageTime("codec", 1, 0.00125, frames=4)]
    times += [
        StageTime("prefill", 8, 0.005, tokens=256),
        StageTime("prefill", 32, 0.020, tokens=1024),
    ]
    profile = Profile(
        name="round",
        device="a device",
        model="a model",
        num_sms=132,
        frame_s=0.08,
        sample_rate_hz=24000,
        prepared=PREPARED,
        host=HostTime(host_s, source=Source.PROVISIONAL),
        times=tuple(times),
    )
    return replace(profile, times=(*profile.times, *extra))
