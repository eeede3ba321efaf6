"""How many requests a device's memory holds: pools sized before anything large is allocated."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch

from voxserve.core.errors import DeviceUnavailable
from voxserve.models.base import SpeechModel, StateSize

KV_PAGE_TOKENS = 64
# Scratch of the executables: mostly the codec's activations at its largest batch, per codec lane.
SCRATCH_BYTES = 10 << 30
_FEWEST_SLOTS = 8
_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Capacity:
    """Pools of device state.

    Attributes:
        num_slots: Requests at once.
        num_kv_pages: Pages of `KV_PAGE_TOKENS` tokens for all of them; 0: each slot its own.
        max_frames: Longest request.
    """

    num_slots: int = 1024
    num_kv_pages: int = 4096
    max_frames: int = 2048

    def size(self) -> StateSize:
        """As the model allocates it."""
        return StateSize(self.num_slots, self.num_kv_pages, KV_PAGE_TOKENS, self.max_frames)


def fitting(
    model: SpeechModel, wanted: Capacity, free_bytes: int, scratch_bytes: int = SCRATCH_BYTES
) -> Capacity:
    """The pools wanted, or as many slots and pages as fit, in the same proportion.

    Args:
        model: Its state is measured at two small sizes.
        wanted: At most this.
        free_bytes: Free memory of the device, with the weights loaded.
        scratch_bytes: Left for the executables.

    Raises:
        DeviceUnavailable: Not even a few requests fit; says what they need.
    """
    fixed, per_slot, per_page = _state_bytes(model, wanted)
    room = free_bytes - scratch_bytes - fixed
    pages_per_slot = wanted.num_kv_pages / wanted.num_slots
    per_request = per_slot + pages_per_slot * per_page
    slots = min(wanted.num_slots, int(room / per_request))
    if slots >= wanted.num_slots:
        return wanted
    if slots < _FEWEST_SLOTS:
        needed = scratch_bytes + fixed + _FEWEST_SLOTS * per_request
        raise DeviceUnavailable(
            f"the GPU has {free_bytes / _GIB:.1f} GiB free beside the weights; {_FEWEST_SLOTS} "
            f"requests and scratch memory need {needed / _GIB:.1f} GiB"
        )
    return replace(wanted, num_slots=slots, num_kv_pages=int(slots * pages_per_slot))


def tensor_bytes(value: Any, seen: set[int] | None = None) -> int:
    """Bytes of all tensors in an object and its parts, each storage once."""
    seen = set() if seen is None else seen
    if isinstance(value, torch.Tensor):
        storage = value.untyped_storage()
        if storage.data_ptr() in seen:
            return 0
        seen.add(storage.data_ptr())
        return storage.nbytes()
    if id(value) in seen:
        return 0
    seen.add(id(value))
    return sum(tensor_bytes(part, seen) for part in _parts(value))


def _parts(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [*value]
    if isinstance(value, dict):
        return [*value.values()]
    if is_dataclass(value):
        return [getattr(value, field.name) for field in fields(value)]
    return [*vars(value).values()] if hasattr(value, "__dict__") else []


def _state_bytes(model: SpeechModel, wanted: Capacity) -> tuple[int, int, int]:
    """Bytes of the state that is always there, per slot and per page."""
    pages = 2 if wanted.num_kv_pages else 0

    def measured(slots: int, pages: int) -> int:
        size = replace(wanted, num_slots=slots, num_kv_pages=pages).size()
        return tensor_bytes(model.allocate(size))

    base = measured(1, pages)
    per_slot = measured(2, pages) - base
    per_page = measured(1, pages + 1) - base if pages else 0
    return base - per_slot - pages * per_page, per_slot, per_page
