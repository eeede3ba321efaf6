"""Stage times from a profile: interpolated over batch, SMs and frames, monotone in each.

Outside the profiled range a time is continued cautiously (proportional to batch and to 1/SMs) and
`notes` says so; nothing is extrapolated silently. How much lanes slow each other down while they
run side by side is `sim.contention`'s part.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from voxserve.core.jobs import Partition
from voxserve.core.profile import Profile, StageTime
from voxserve.core.settings import Prepared, Split
from voxserve.sim.contention import Contention, Work


@dataclass(frozen=True, slots=True)
class Grid:
    """Seconds over rows x SMs; both axes ascend.

    Attributes:
        seconds: [rows, sms] float64, not falling over rows, not rising over SMs.
    """

    rows: tuple[int, ...]
    sms: tuple[int, ...]
    seconds: NDArray[np.float64]

    def at(self, rows: int, sms: int) -> float:
        """Linear in rows, log-log in SMs; continued cautiously outside."""
        last_rows, first_sms = self.rows[-1], self.sms[0]
        grow = max(1.0, rows / last_rows) * max(1.0, first_sms / sms)
        row = np.array([_log_interp(sms, self.sms, self.seconds[i]) for i in range(len(self.rows))])
        return float(np.interp(rows, self.rows, row)) * grow

    def covers(self, rows: int, sms: int) -> bool:
        """Whether no continuation is needed."""
        return rows <= self.rows[-1] and self.sms[0] <= sms <= self.sms[-1]


def _log_interp(x: float, xs: Sequence[int], ys: NDArray[np.float64]) -> float:
    return math.exp(float(np.interp(math.log(x), np.log(xs), np.log(ys))))


def grid_of(times: Iterable[StageTime], num_sms: int) -> Grid:
    """Builds a monotone grid from scattered times of one stage and frame count.

    A batch that was timed on few SM counts borrows how it scales from the nearest batch timed on
    more, so every cell is filled from measurements.

    Args:
        times: At least one, alone.
        num_sms: What "the whole device" stands for.
    """
    points = {(time.rows, time.sms or num_sms): time.seconds for time in times}
    rows = sorted({row for row, _ in points})
    sms = sorted({count for _, count in points})
    table = np.full((len(rows), len(sms)), np.nan)
    for (row, count), seconds in points.items():
        table[rows.index(row), sms.index(count)] = seconds
    measured = np.isfinite(table)
    shapes = [_scaling(table[i], measured[i], sms) for i in range(len(rows))]
    for i in range(len(rows)):
        if not measured[i].all():
            table[i] = _filled(table[i], measured[i], shapes, i, sms)
    table = np.maximum.accumulate(table, axis=0)
    return Grid(tuple(rows), tuple(sms), np.minimum.accumulate(table, axis=1))


def _scaling(
    row: NDArray[np.float64], known: NDArray[np.bool_], sms: Sequence[int]
) -> NDArray[np.float64] | None:
    """Seconds over all SM counts from a row's own points, if it spans the whole range."""
    if not (known[0] and known[-1]):
        return None
    at = np.flatnonzero(known)
    logs = np.interp(np.log(sms), np.log(np.asarray(sms)[at]), np.log(row[at]))
    return np.exp(logs)


def _filled(
    row: NDArray[np.float64],
    known: NDArray[np.bool_],
    shapes: Sequence[NDArray[np.float64] | None],
    index: int,
    sms: Sequence[int],
) -> NDArray[np.float64]:
    donors = [i for i, shape in enumerate(shapes) if shape is not None]
    # Without any donor, SM counts that were not timed follow ideal scaling.
    ideal = 1.0 / np.asarray(sms, dtype=np.float64)
    donor = min(donors, key=lambda i: abs(i - index)) if donors else None
    shape = ideal if donor is None else shapes[donor]
    assert shape is not None, "a donor row spans all SM counts"
    at = np.flatnonzero(known)
    # The donor's curve, bent in log-log so that it passes through the row's own points.
    offset = np.interp(np.log(sms), np.log(np.asarray(sms)[at]), np.log(row[at] / shape[at]))
    return shape * np.exp(offset)


class ProfileCost:
    """A `core.protocols.CostModel` read from a profile; also the simulator's stage times.

    The three `..._s` methods are the scheduler's estimates: contention with the lanes that usually
    run beside and host overhead included. `work_s` is one stage alone, what `sim.gpu` runs.

    Attributes:
        on_note: Called with each new note about a continuation, where somebody wants to hear it.
    """

    def __init__(
        self, profile: Profile, prepared: Prepared | None = None, side_by_side: bool = True
    ) -> None:
        """Reads a profile.

        Args:
            profile: Stage times.
            prepared: Buckets and splits to estimate for; the profiled ones when None.
            side_by_side: False gives every lane a device of its own: no contention.
        """
        self.profile = profile
        self.prepared = prepared or profile.prepared
        self.contention = Contention(profile, self._alone_of, side_by_side)
        self._notes: set[str] = set()
        self.on_note: Callable[[str], object] | None = None
        self._host_s = profile.host.seconds if self.prepared.lm_depth == 1 else 0.0
        alone = [time for time in profile.times if not time.beside]
        decode = [time for time in alone if time.stage == "decode"]
        self._decode = grid_of(decode, profile.num_sms)
        self._codec = self._codec_grids([time for time in alone if time.stage == "codec"])
        self._prefill = _prefill_curve([time for time in alone if time.stage == "prefill"])
        self._cache: dict[tuple[str, int, int, int], float] = {}
        self._estimates: dict[tuple[object, ...], float] = {}
        self.contention.measure()

    @property
    def revision(self) -> int:
        """A profile is never corrected."""
        return 0

    @property
    def notes(self) -> tuple[str, ...]:
        """Every continuation outside the profile, and every default, used so far."""
        return tuple(sorted(self._notes | self.contention.notes))

    def decode_s(self, rows: int, split: Split, partition: Partition) -> float:
        """One decode step of `rows` rows, beside a background batch, plus the host's part."""
        key = ("decode", rows, split, partition)
        if key not in self._estimates:
            alone = self.work_s("decode", rows, self.sms(split, partition))
            work = Work("decode", partition is Partition.LM and not split.is_none)
            slow = self._beside(work, Work("background", work.is_partitioned))
            self._estimates[key] = alone * slow + self._host_s
        return self._estimates[key]

    def prefill_s(self, num_tokens: int, num_prompts: int, split: Split) -> float:
        """One prefill on the whole device beside a background batch, plus the host's part."""
        key = ("prefill", num_tokens, split)
        if key not in self._estimates:
            slow = self._beside(Work("prefill", False), Work("background", not split.is_none))
            alone = self.work_s("prefill", num_prompts, 0, num_tokens)
            self._estimates[key] = alone * slow + self._host_s
        return self._estimates[key]

    def codec_s(self, rows: int, num_frames: int, split: Split, partition: Partition) -> float:
        """One codec batch beside decode steps (on the whole GPU: beside both partitions)."""
        key = ("codec", rows, num_frames, split, partition)
        if key not in self._estimates:
            alone = self.work_s("codec", rows, self.sms(split, partition), num_frames)
            partitioned = not split.is_none
            decode = Work("decode", partitioned)
            if partition is Partition.CODEC:
                slow = self._beside(Work("background", partitioned), decode)
            else:
                background = Work("background", partitioned)
                slow = self._beside(Work("urgent", False), decode, background)
            self._estimates[key] = alone * slow
        return self._estimates[key]

    def _beside(self, victim: Work, *others: Work) -> float:
        return self.contention.slowdown(victim, others)

    def sms(self, split: Split, partition: Partition) -> int:
        """SMs of a partition under a split; 0 is the whole device."""
        if split.is_none or partition is Partition.WHOLE:
            return 0
        return split.lm_sms if partition is Partition.LM else split.codec_sms

    def work_s(self, stage: str, rows: int, sms: int, size: int = 0) -> float:
        """Seconds of one executable alone.

        Args:
            stage: "decode", "prefill" or "codec".
            rows: Real rows; the smallest prepared bucket that holds them is what runs.
            sms: 0 for the whole device.
            size: Prompt tokens (prefill) or frames (codec).
        """
        key = (stage, rows, sms, size)
        seconds = self._cache.get(key)
        if seconds is None:
            seconds = self._cache[key] = self._look_up(stage, rows, sms, size)
        return seconds

    def _look_up(self, stage: str, rows: int, sms: int, size: int) -> float:
        device_sms = sms or self.profile.num_sms
        if stage == "prefill":
            tokens = _bucket(size, self.prepared.prefill_buckets)
            if tokens > self._prefill[0][-1]:
                self._note(f"prefill of {tokens} tokens (profiled to {self._prefill[0][-1]})")
            grow = max(1.0, tokens / self._prefill[0][-1])
            return float(np.interp(tokens, *self._prefill)) * grow
        buckets = self.prepared.decode_buckets if stage == "decode" else self._codec_buckets(sms)
        bucket = _bucket(rows, buckets)
        grid = self._decode if stage == "decode" else self._codec_grid(size)
        if not grid.covers(bucket, device_sms):
            self._note(
                f"{stage} of {bucket} rows on {device_sms} SMs (profiled to {grid.rows[-1]} rows, "
                f"{grid.sms[0]}-{grid.sms[-1]} SMs)"
            )
        return grid.at(bucket, device_sms)

    def _codec_buckets(self, sms: int) -> tuple[int, ...]:
        if sms:
            return self.prepared.codec_buckets
        return tuple(sorted({*self.prepared.codec_buckets, *self.prepared.urgent_buckets}))

    def _note(self, what: str) -> None:
        note = f"outside the profile: {what}"
        if note not in self._notes and self.on_note is not None:
            self.on_note(note)
        self._notes.add(note)

    def _codec_grids(self, times: Sequence[StageTime]) -> dict[int, Grid]:
        """One grid per profiled frame count; sparse ones take their scaling from the fullest."""
        by_frames: dict[int, list[StageTime]] = {}
        for time in times:
            by_frames.setdefault(time.frames, []).append(time)
        base_frames = max(by_frames, key=lambda frames: len(by_frames[frames]))
        base = grid_of(by_frames[base_frames], self.profile.num_sms)
        grids = {base_frames: base}
        for frames, own in by_frames.items():
            if frames != base_frames:
                ratios = {
                    time.rows: time.seconds / base.at(time.rows, time.sms or self.profile.num_sms)
                    for time in own
                }
                at = sorted(ratios)
                ratio = np.interp(base.rows, at, [ratios[row] for row in at])
                grids[frames] = Grid(base.rows, base.sms, base.seconds * ratio[:, None])
        floor: NDArray[np.float64] | None = None
        for frames in sorted(grids):  # more frames never take less time
            seconds = grids[frames].seconds
            floor = seconds if floor is None else np.maximum(seconds, floor)
            grids[frames] = Grid(base.rows, base.sms, floor)
        return grids

    def _codec_grid(self, frames: int) -> Grid:
        if frames in self._codec:
            return self._codec[frames]
        known = sorted(self._codec)
        if len(known) == 1 or not known[0] <= frames <= known[-1]:
            self._note(f"codec chunks of {frames} frames (profiled: {known})")
        if frames > known[-1]:
            top = self._codec[known[-1]]
            made = Grid(top.rows, top.sms, top.seconds * (frames / known[-1]))
        elif frames < known[0]:
            made = self._codec[known[0]]
        else:
            right = bisect_left(known, frames)
            low, high = known[right - 1], known[right]
            part = (frames - low) / (high - low)
            a, b = self._codec[low], self._codec[high]
            made = Grid(a.rows, a.sms, a.seconds * (1 - part) + b.seconds * part)
        self._codec[frames] = made
        return made

    def _alone_of(self, time: StageTime) -> float:
        """The stage of a side-by-side entry, alone, under the profile's own buckets."""
        sms = time.sms or self.profile.num_sms
        if time.stage == "prefill":
            return float(np.interp(time.tokens, *self._prefill))
        grid = self._decode if time.stage == "decode" else self._codec_grid(time.frames)
        return grid.at(time.rows, sms)


def _prefill_curve(times: Sequence[StageTime]) -> tuple[list[int], list[float]]:
    """Seconds by prompt tokens, not falling; several prompts of equal tokens: their median."""
    by_tokens: dict[int, list[float]] = {}
    for time in times:
        by_tokens.setdefault(time.tokens, []).append(time.seconds)
    tokens = sorted(by_tokens)
    medians = np.array([np.median(by_tokens[count]) for count in tokens])
    return tokens, np.maximum.accumulate(medians).tolist()


def _bucket(need: int, buckets: Sequence[int]) -> int:
    """The smallest bucket that holds `need`; `need` itself beyond the largest."""
    index = bisect_left(buckets, need)
    return buckets[index] if index < len(buckets) else need
