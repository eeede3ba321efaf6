"""Pools that fit a device's memory."""

import pytest
from fake_model import FakeModel

from voxserve.core.errors import DeviceUnavailable
from voxserve.runtime.capacity import Capacity, fitting, tensor_bytes

WANTED = Capacity(num_slots=100, num_kv_pages=0, max_frames=1000)
PER_SLOT = 1000 * 2 * 4 + 4 + 1 + 4 + 4  # codes, frame count, status, seed, piece end


def test_a_states_tensors_are_counted_once():
    state = FakeModel().allocate(WANTED.size())
    assert tensor_bytes(state) == 101 * PER_SLOT
    assert tensor_bytes([state.codes, state.codes[3:]]) == 101 * 1000 * 2 * 4


def test_what_fits_is_left_as_wanted():
    assert fitting(FakeModel(), WANTED, 101 * PER_SLOT, scratch_bytes=0) == WANTED


def test_less_memory_holds_fewer_requests():
    found = fitting(FakeModel(), WANTED, 51 * PER_SLOT + 500, scratch_bytes=500)
    assert found.num_slots == 50
    assert found.max_frames == WANTED.max_frames


def test_too_little_memory_says_what_is_needed():
    with pytest.raises(DeviceUnavailable, match=r"0\.0 GiB free.*need 0\.0 GiB"):
        fitting(FakeModel(), WANTED, 5 * PER_SLOT, scratch_bytes=0)
