"""What a simulated device offers: its prepared sizes and the settings it starts with."""

from __future__ import annotations

from dataclasses import replace

from voxserve.core.profile import Profile, Source
from voxserve.core.settings import GPU_STEPS_PER_PREFILL, Prepared, Settings, Split
from voxserve.sched.placement import ExpectedLoad, choose_split
from voxserve.sim.cost import ProfileCost

SM_STEP = 8  # partitions come in groups of eight SMs
_DEFAULT = Settings()


def prepared_of(profile: Profile) -> Prepared:
    """The profiled sizes with every split the device could be given.

    A GPU's codec partition takes any multiple of 8 SMs and the backbone the rest; a device with
    few units (CPU threads) keeps its profiled splits.
    """
    if profile.num_sms < 4 * SM_STEP:
        return profile.prepared
    codec_sms = range(SM_STEP, profile.num_sms - SM_STEP + 1, SM_STEP)
    splits = {Split(), *(Split(profile.num_sms - sms, sms) for sms in codec_sms)}
    splits |= set(profile.prepared.splits)
    return replace(profile.prepared, splits=tuple(sorted(splits)))


def profiled_splits(profile: Profile, prepared: Prepared) -> tuple[Split, ...]:
    """The splits whose stage times need no continuation beyond the profiled SM counts."""

    def spans(stage: str, sms: int) -> bool:
        counts = [
            time.sms or profile.num_sms
            for time in profile.times
            if time.stage == stage and not time.beside
        ]
        return min(counts) <= sms <= max(counts)

    return tuple(
        split
        for split in prepared.splits
        if split.is_none or (spans("decode", split.lm_sms) and spans("codec", split.codec_sms))
    )


def default_settings(
    profile: Profile, prepared: Prepared, load: ExpectedLoad | None = None
) -> Settings:
    """Settings of a fresh device: the paper's, fitted to its buckets, with a chosen split.

    Args:
        profile: Stage times.
        prepared: From `prepared_of`.
        load: What the split is chosen for; the usual load when None.
    """
    inside = replace(prepared, splits=profiled_splits(profile, prepared))
    expected = load or ExpectedLoad(
        decode_rows=default_decode_batch(prepared), steps_per_prefill=steps_per_prefill(profile)
    )
    choice = choose_split(ProfileCost(profile, prepared), inside, expected)
    frames = prepared.chunk_frames
    ramp = _DEFAULT.chunk_ramp if _DEFAULT.chunk_ramp[0] in frames else (frames[-1],)
    return replace(
        _DEFAULT,
        sm_split=choice.split,
        background_batch=min(_DEFAULT.background_batch, prepared.codec_buckets[-1]),
        max_background_batch=_at_most(prepared.codec_buckets, _DEFAULT.max_background_batch),
        max_decode_batch=default_decode_batch(prepared),
        urgent_batch=_at_most(prepared.urgent_buckets, _DEFAULT.urgent_batch),
        chunk_ramp=ramp,
        max_running=prepared.num_slots,
        decode_steps_per_prefill=steps_per_prefill(profile),
    )


def steps_per_prefill(profile: Profile) -> int:
    """Of a fresh device: more where a prefill is long beside a step, as ours are on a GPU."""
    is_ours = profile.host.source is Source.MEASURED and profile.prepared.lm_depth > 1
    return GPU_STEPS_PER_PREFILL if is_ours else _DEFAULT.decode_steps_per_prefill


def default_decode_batch(prepared: Prepared) -> int:
    """Rows of the largest decode step on a fresh device."""
    return _at_most(prepared.decode_buckets, _DEFAULT.max_decode_batch)


def _at_most(buckets: tuple[int, ...], limit: int) -> int:
    return max((bucket for bucket in buckets if bucket <= limit), default=buckets[0])
