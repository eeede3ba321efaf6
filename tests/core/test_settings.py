"""Settings: every name has its range, and a refusal lists what there is."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from voxserve.core.errors import InvalidSetting
from voxserve.core.settings import MAX_RAMP, Prepared, Settings, Split

PREPARED = Prepared(
    splits=(Split(), Split(100, 32)),
    decode_buckets=(1, 64, 256),
    codec_buckets=(1, 16, 64),
    urgent_buckets=(1, 2, 4, 8),
    prefill_buckets=(256, 2048),
    chunk_frames=(2, 4, 10),
    num_slots=128,
)
REFUSED: dict[str, list[tuple[Any, str]]] = {
    "lane_mode": [("turns", "two_streams"), (None, "partitioned_urgent")],
    "sm_split": [("99/33", "100/32"), ("100/32/1", "none"), ("0/32", "none"), (100, "none")],
    "urgency_margin_s": [(-0.001, "0.0 to 1.0"), (1.001, "0.0 to 1.0"), ("0.1", "not a number")],
    "background_batch": [(0, "1 to 64"), (65, "1 to 64"), (2.5, "whole"), (True, "not a number")],
    "max_background_batch": [(8, "1, 16, 64")],
    "max_decode_batch": [(128, "1, 64, 256")],
    "urgent_batch": [(3, "1, 2, 4, 8")],
    "chunk_ramp": [
        ((), "at least one"),
        ((5, 10), "2, 4, 10"),
        ("4 ten", "not a number"),
        ((2,) * (MAX_RAMP + 1), f"at most {MAX_RAMP}"),
    ],
    "policy": [("fair", "startup_steady")],
    "admission": [("never", "prefill_first")],
    "max_prefill_defer_s": [(-1, "0.0 to 1.0"), (float("nan"), "0.0 to 1.0")],
    "overload": [("panic", "shed")],
    "ttfa_target_s": [(0.04, "0.05 to 5.0"), (5.1, "0.05 to 5.0")],
    "decode_steps_per_prefill": [(0, "1 to 16"), (17, "1 to 16")],
    "max_running": [(0, "1 to 128"), (129, "1 to 128")],
}


@pytest.mark.parametrize("name", [field.name for field in fields(Settings)])
def test_what_is_not_possible_is_refused_with_what_is(name: str) -> None:
    for value, told in REFUSED[name]:
        with pytest.raises(InvalidSetting, match=rf"{name}.*{told}"):
            Settings().changed(PREPARED, **{name: value})


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("sm_split", " 100/32 ", Split(100, 32)),
        ("sm_split", "None", Split()),
        ("chunk_ramp", "4, 10", (4, 10)),
        ("chunk_ramp", np.array([2, 4, 10]), (2, 4, 10)),
        ("chunk_ramp", 10, (10,)),
        ("chunk_ramp", (2,) * MAX_RAMP, (2,) * MAX_RAMP),
        ("urgency_margin_s", 0, 0.0),
        ("urgency_margin_s", 1, 1.0),
        ("ttfa_target_s", np.float32(0.25), 0.25),
        ("background_batch", 64.0, 64),
        ("max_running", np.int64(128), 128),
    ],
)
def test_values_are_taken_however_they_are_written(name: str, value: Any, expected: Any) -> None:
    changed = Settings().changed(PREPARED, **{name: value})
    assert changed == replace(Settings(), **{name: expected})
    assert type(getattr(changed, name)) is type(expected)


def test_an_unknown_name_lists_all() -> None:
    with pytest.raises(InvalidSetting, match="no setting 'urgency'; there are lane_mode, sm_split"):
        Settings().changed(PREPARED, urgency=1)


def test_nothing_changes_when_one_value_is_refused() -> None:
    before = Settings()
    with pytest.raises(InvalidSetting, match="background_batch"):
        before.changed(PREPARED, urgency_margin_s=0.2, background_batch=0)
    assert before == Settings()
