"""Where stages run: the SM split of one GPU, and roles over several, ranked without running them.

Everything is computed from stage estimates (`core.protocols.CostModel`). GPUs do not slow each
other down, so the throughput of a group is the smaller of what its codecs and its backbones
sustain. Source: VoxServe sections 3.1 and 3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from voxserve.core.jobs import Partition
from voxserve.core.protocols import CostModel
from voxserve.core.settings import Prepared, Split

# The codec must be able to do this much more than it is asked for: chunks come in waves.
HEADROOM = 1.1
# "No split" must promise this much more than the best split: its estimate is the coarser one.
UNSPLIT_GAIN = 1.05


@dataclass(frozen=True, slots=True)
class ExpectedLoad:
    """What the placement is chosen for; the defaults are libritts at 80 ms frames.

    Attributes:
        rate_rps: Target load of one GPU, or None for as much as it can carry.
        frames_per_request: Frames of a mean request.
        prompt_tokens: Of a mean request.
        chunk_frames: Frames of a chunk after the first.
        decode_rows: Running requests in a decode step, or None for the largest bucket.
        codec_rows: Chunks in a background batch.
        steps_per_prefill: Decode steps between two prefills.
    """

    rate_rps: float | None = None
    frames_per_request: float = 99.0
    prompt_tokens: int = 32
    chunk_frames: int = 10
    decode_rows: int | None = None
    codec_rows: int = 32
    steps_per_prefill: int = 1


@dataclass(frozen=True, slots=True)
class SplitEstimate:
    """Requests per second that each side of a split sustains when it never waits.

    Attributes:
        lm_rps: Prefill and decode steps, side by side with the codec.
        codec_rps: Background batches, first chunks excepted.
    """

    split: Split
    lm_rps: float
    codec_rps: float

    @property
    def rate_rps(self) -> float:
        """What the slower side allows."""
        return min(self.lm_rps, self.codec_rps)


@dataclass(frozen=True, slots=True)
class SplitChoice:
    """A chosen split with what it was compared with.

    Attributes:
        estimates: Of every prepared split, most LM SMs first.
        why: In one sentence.
    """

    split: Split
    estimates: tuple[SplitEstimate, ...]
    why: str


def estimate_split(
    cost: CostModel, prepared: Prepared, split: Split, load: ExpectedLoad
) -> SplitEstimate:
    """What both sides of one split sustain.

    Args:
        cost: Stage estimates, contention included.
        prepared: Buckets that exist.
        split: One of the prepared ones.
        load: Mean request and batch sizes.
    """
    rows = _decode_rows(prepared, load)
    arrivals = rows / load.frames_per_request  # requests that start and end per decode step
    prefill_s = _prefill_per_step_s(cost, load, split, arrivals)
    # Every request's first chunk runs on the whole GPU; its neighbours stand still for about
    # half of that time.
    first = max(1, round(arrivals))
    urgent_s = min(1.0, arrivals) / 2
    urgent_s *= cost.codec_s(first, load.chunk_frames, split, Partition.WHOLE)
    step_s = cost.decode_s(rows, split, Partition.LM) + prefill_s + urgent_s
    codec_rows = min(load.codec_rows, prepared.codec_buckets[-1])
    batch_s = cost.codec_s(codec_rows, load.chunk_frames, split, Partition.CODEC)
    later_chunks = max(load.frames_per_request / load.chunk_frames - 1.0, 0.1)
    codec_s = later_chunks * batch_s / codec_rows + urgent_s / arrivals
    return SplitEstimate(split, arrivals / step_s, 1.0 / codec_s)


def _decode_rows(prepared: Prepared, load: ExpectedLoad) -> int:
    largest = prepared.decode_buckets[-1]
    return min(load.decode_rows or largest, largest)


def _prefill_per_step_s(
    cost: CostModel, load: ExpectedLoad, split: Split, arrivals: float
) -> float:
    """Prefill time per decode step: a prefill every few steps, with all prompts that have come."""
    prompts = max(1, round(arrivals * load.steps_per_prefill))
    seconds = cost.prefill_s(load.prompt_tokens * prompts, prompts, split)
    return min(1.0 / load.steps_per_prefill, arrivals) * seconds


def choose_split(cost: CostModel, prepared: Prepared, load: ExpectedLoad) -> SplitChoice:
    """The split that gives the backbone the most throughput while the codec still keeps up.

    Without a target rate the codec has to keep up with its own backbone. Where no split's codec
    keeps up, the one with the highest common rate is taken. "No split" wins only where its common
    rate is clearly higher than the chosen split's.

    Args:
        cost: Stage estimates, contention included.
        prepared: Splits and buckets that exist.
        load: Mean request, batch sizes and target rate.
    """
    estimates = [estimate_split(cost, prepared, split, load) for split in prepared.splits]
    estimates.sort(key=lambda item: item.split, reverse=True)
    splits = [item for item in estimates if not item.split.is_none]
    unsplit = next((item for item in estimates if item.split.is_none), None)
    if not splits:
        return SplitChoice(Split(), tuple(estimates), "no split is prepared on this device")
    target = load.rate_rps

    def keeps_up(item: SplitEstimate) -> bool:
        return item.codec_rps >= HEADROOM * (item.lm_rps if target is None else target)

    able = [item for item in splits if keeps_up(item)]
    best = max(able or splits, key=lambda item: item.lm_rps if able else item.rate_rps)
    goal = "its backbone" if target is None else f"{target:g} requests/s"
    why = (
        f"most backbone throughput ({best.lm_rps:.1f} requests/s) of the splits whose codec keeps "
        f"up with {goal} (it does {best.codec_rps:.1f})"
        if able
        else f"no split's codec keeps up with {goal}; {best.split} has the highest common rate "
        f"({best.rate_rps:.1f} requests/s)"
    )
    if unsplit is None:
        return SplitChoice(best.split, tuple(estimates), why)
    if target is None:
        is_better = unsplit.rate_rps > UNSPLIT_GAIN * best.rate_rps
    else:
        is_better = keeps_up(unsplit) and unsplit.lm_rps > UNSPLIT_GAIN * best.lm_rps
    if is_better:
        why = f"without a split both sides do {unsplit.rate_rps:.1f} requests/s; " + why
        best = unsplit
    return SplitChoice(best.split, tuple(estimates), why)


@dataclass(frozen=True, slots=True)
class Placement:
    """Roles of a group of GPUs.

    Attributes:
        num_both, num_lm, num_codec: GPUs that run both stages, the backbone only, the codec only.
        split: Of the GPUs that run both.
        lm_rps, codec_rps: What all backbones and all codecs of the group sustain.
    """

    num_both: int
    num_lm: int
    num_codec: int
    split: Split
    lm_rps: float
    codec_rps: float

    @property
    def rate_rps(self) -> float:
        """Requests per second of the whole group."""
        return min(self.lm_rps, self.codec_rps)

    def __str__(self) -> str:
        parts = [
            f"{self.num_both} x both ({self.split})" if self.num_both else "",
            f"{self.num_lm} x LM only" if self.num_lm else "",
            f"{self.num_codec} x codec only" if self.num_codec else "",
        ]
        return " + ".join(part for part in parts if part)


def rank_placements(
    cost: CostModel, alone: CostModel, prepared: Prepared, load: ExpectedLoad, num_gpus: int
) -> list[Placement]:
    """Every assignment of roles and split to a group of GPUs, the fastest first.

    A codec, on a partition or on a whole GPU, may serve any backbone of the group. Equal rates
    are ordered by simplicity: fewer GPUs with a single role first.

    Args:
        cost: Stage estimates of a GPU that runs both stages side by side.
        alone: The same without contention, for GPUs that run one stage.
        prepared: Splits and buckets that exist on each GPU.
        load: Mean request and batch sizes; its rate is not used.
        num_gpus: At least 1.
    """
    whole = _role_rates(alone, prepared, load)
    estimates = [estimate_split(cost, prepared, split, load) for split in prepared.splits]
    placements: list[Placement] = []
    for num_both in range(num_gpus + 1):
        for num_lm in range(num_gpus - num_both + 1):
            num_codec = num_gpus - num_both - num_lm
            for item in estimates if num_both else estimates[:1]:
                placement = Placement(
                    num_both=num_both,
                    num_lm=num_lm,
                    num_codec=num_codec,
                    split=item.split if num_both else Split(),
                    lm_rps=num_both * item.lm_rps + num_lm * whole.lm_rps,
                    codec_rps=num_both * item.codec_rps + num_codec * whole.codec_rps,
                )
                if placement.rate_rps > 0.0:
                    placements.append(placement)
    return sorted(placements, key=lambda item: (-item.rate_rps, item.num_lm + item.num_codec))


def _role_rates(cost: CostModel, prepared: Prepared, load: ExpectedLoad) -> SplitEstimate:
    """Rates of a GPU that runs one stage only: the whole GPU, all chunks in batches."""
    rows = _decode_rows(prepared, load)
    arrivals = rows / load.frames_per_request
    step_s = cost.decode_s(rows, Split(), Partition.WHOLE)
    step_s += _prefill_per_step_s(cost, load, Split(), arrivals)
    codec_rows = min(load.codec_rows, prepared.codec_buckets[-1])
    batch_s = cost.codec_s(codec_rows, load.chunk_frames, Split(), Partition.WHOLE)
    chunks = load.frames_per_request / load.chunk_frames
    return SplitEstimate(Split(), arrivals / step_s, codec_rows / (chunks * batch_s))


def best_by_roles(placements: Sequence[Placement]) -> list[Placement]:
    """The first (so the best) split of each assignment of roles."""
    best: dict[tuple[int, int, int], Placement] = {}
    for item in placements:
        best.setdefault((item.num_both, item.num_lm, item.num_codec), item)
    return list(best.values())
