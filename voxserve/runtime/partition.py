"""Disjoint sets of a GPU's SMs, as streams that work is captured on.

A graph captured on a partition's stream keeps to that partition wherever it is replayed.
Source: measured on one H200 (132 SMs, driver 580): a matrix product captured on 32 SMs takes
3.6 times as long as on the whole GPU, also when it is replayed from an ordinary stream.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from voxserve.core.errors import DeviceUnavailable
from voxserve.core.settings import Split

SM_STEP = 8  # SMs are handed out in multiples of this
SMALLEST = 8


def num_sms(device: torch.device) -> int:
    """SMs of a GPU."""
    return torch.cuda.get_device_properties(device).multi_processor_count


def possible_splits(total: int) -> tuple[Split, ...]:
    """Every split of a GPU with so many SMs, and none."""
    codec = range(SMALLEST, total - SMALLEST + 1, SM_STEP)
    return (*(Split(total - sms, sms) for sms in codec), Split())


def usual_split(total: int) -> Split:
    """A quarter of the SMs for the codec (132: 100/32), or none where nothing can be split.

    Source: the split of VoxServe's evaluation; a profile of the device at hand chooses better.
    """
    possible = possible_splits(total)[:-1]
    if not possible or not can_partition():
        return Split()
    return min(possible, key=lambda item: abs(item.codec_sms - total / 4))


def can_partition() -> bool:
    """Whether the driver's bindings are installed."""
    return find_spec("cuda") is not None and find_spec("cuda.bindings") is not None


def check_split(split: Split, total: int) -> None:
    """Refuses a split that a GPU with so many SMs cannot have.

    Raises:
        DeviceUnavailable: Names the nearest one that it can.
    """
    if split.is_none:
        return
    possible = possible_splits(total)[:-1]
    if not possible:
        raise DeviceUnavailable(f"a GPU with {total} SMs is too small to split; use none")
    if split not in possible:
        near = min(possible, key=lambda item: abs(item.codec_sms - split.codec_sms))
        raise DeviceUnavailable(
            f"sm_split {split} is not possible on a GPU with {total} SMs: the codec gets a "
            f"multiple of {SM_STEP}, the backbone the rest, such as {near}"
        )


class Partitions:
    """The partitions of one GPU, made when first asked for; two streams for each split.

    Args:
        device: The GPU.

    Raises:
        DeviceUnavailable: The driver's bindings are not installed.
    """

    def __init__(self, device: torch.device) -> None:
        try:
            self._driver: Any = import_module("cuda.bindings.driver")
        except ImportError as error:
            raise DeviceUnavailable(
                "SM partitions need the package cuda-bindings: install voxserve[cuda], or use "
                "sm_split='none'"
            ) from error
        self._device = device
        self.num_sms = num_sms(device)
        self._made: dict[Split, tuple[torch.cuda.Stream, torch.cuda.Stream]] = {}
        self._contexts: list[Any] = []
        self._streams: list[Any] = []

    def streams(self, split: Split) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
        """A stream on the backbone's SMs and one on the codec's.

        Raises:
            DeviceUnavailable: This GPU cannot be split so; names what it can.
        """
        check_split(split, self.num_sms)
        if split not in self._made:
            self._made[split] = self._split(split)
        return self._made[split]

    def close(self) -> None:
        """Gives the partitions back; nothing may run on them any more."""
        self._made.clear()
        for stream in self._streams:
            self._call("cuStreamDestroy", stream)
        for context in self._contexts:
            self._call("cuGreenCtxDestroy", context)
        self._streams.clear()
        self._contexts.clear()

    def _split(self, split: Split) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
        driver = self._driver
        torch.cuda.current_stream(self._device)  # makes sure the device has its context
        device = self._call("cuDeviceGet", self._device.index or 0)
        kind = driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
        whole = self._call("cuDeviceGetDevResource", device, kind)
        groups, _, rest = self._call("cuDevSmResourceSplitByCount", 1, whole, 0, split.codec_sms)
        granted = Split(rest.sm.smCount, groups[0].sm.smCount)
        if granted != split:
            raise DeviceUnavailable(f"sm_split {split}: the driver grants {granted} instead")
        return self._stream(device, rest), self._stream(device, groups[0])

    def _stream(self, device: Any, resource: Any) -> torch.cuda.Stream:
        driver = self._driver
        described = self._call("cuDevResourceGenerateDesc", [resource], 1)
        flag = driver.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM
        context = self._call("cuGreenCtxCreate", described, device, flag)
        self._contexts.append(context)
        non_blocking = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
        stream = self._call("cuGreenCtxStreamCreate", context, non_blocking, 0)
        self._streams.append(stream)
        return torch.cuda.ExternalStream(int(stream), device=self._device)

    def _call(self, name: str, *args: Any) -> Any:
        """Calls the driver and returns what it gives: one value, or several as a tuple."""
        result, *values = getattr(self._driver, name)(*args)
        if result != self._driver.CUresult.CUDA_SUCCESS:
            raise DeviceUnavailable(f"{name} failed: {result.name}")
        return values[0] if len(values) == 1 else tuple(values)
