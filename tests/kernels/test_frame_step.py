"""The ends of a decode step: kernels against plain torch, on sequences in every situation."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch

from voxserve.kernels.backend import forced_reference
from voxserve.kernels.frame_step import Sequences, StepText, commit_frame, step_input

SLOTS, FRAMES, CODEBOOKS, VOCAB, WIDTH = 9, 12, 5, 30, 70
LIMITS = {"end_id": 29, "max_repeats": 3, "max_tokens": 50}


def make(device: str) -> tuple[Sequences, StepText, torch.Tensor, torch.Tensor]:
    """Nine slots (the last is scratch), text, tables and a frame for seven rows."""
    generator = torch.Generator().manual_seed(0)

    def ints(high: int, *shape: int) -> torch.Tensor:
        return torch.randint(high, shape, generator=generator, dtype=torch.int32)

    codes = ints(VOCAB - 1, SLOTS, FRAMES, CODEBOOKS)
    made = torch.tensor([3, 1, 12, 5, 6, 7, 4, 2, 0], dtype=torch.int32)
    sequences = Sequences(
        codes=codes,
        num_frames=made,
        status=torch.tensor([0, 0, 0, 0, 0, 0, 1, 2, 1], dtype=torch.int8),
        lengths=torch.tensor([9, 9, 9, 49, 9, 9, 9, 9, 0], dtype=torch.int32),
        piece_start=torch.tensor([0, 0, 0, 0, 4, 0, 0, 0, 0], dtype=torch.int32),
        repeats=torch.tensor([0, 0, 0, 0, 2, 2, 0, 0, 0], dtype=torch.int32),
        min_frames=torch.tensor([2, 2, 2, 2, 2, 9, 2, 2, 2], dtype=torch.int32),
    )
    text = StepText(
        ids=ints(40, SLOTS, 8),
        count=torch.tensor([5, 0, 8, 4, 2, 0, 8, 8, 0], dtype=torch.int32),
        table=torch.randn(40, WIDTH, generator=generator),
        pad_id=39,
    )
    tables = torch.randn(CODEBOOKS, VOCAB, WIDTH, generator=generator)
    frame = ints(VOCAB - 1, 9, CODEBOOKS)
    frame[1, 0] = LIMITS["end_id"]
    for slot in (4, 5):  # the same first code once more
        frame[slot, 0] = codes[slot, made[slot] - 1, 0]
    moved = [
        type(item)(**{f.name: _to(getattr(item, f.name), device) for f in fields(item)})
        for item in (sequences, text)
    ]
    return *moved, tables.to(device), frame.to(device)


def _to(value: object, device: str) -> object:
    return value.to(device) if isinstance(value, torch.Tensor) else value


def run(device: str, added: int) -> dict[str, torch.Tensor]:
    sequences, text, tables, frame = make(device)
    slots = torch.tensor([5, 0, 8, 7, 2, 4, 3, 8, 1, 6], dtype=torch.int32, device=device)
    live, rows = step_input(slots, sequences, tables, text)
    commit_frame(frame[slots.long()], live, sequences, added=added, **LIMITS)
    kept = {f.name: getattr(sequences, f.name) for f in fields(sequences)}
    return {name: value.cpu() for name, value in (kept | {"live": live, "rows": rows}).items()}


def test_every_situation() -> None:
    before, text, tables, frame = make("cpu")
    after = run("cpu", added=1)
    assert after["live"].tolist() == [5, 0, 8, 8, 2, 4, 3, 8, 1, 8]
    # Goes on; end; codes full; context full; stuck; stuck too early to count; ended; ran away.
    assert after["status"].tolist() == [0, 1, 2, 2, 2, 0, 1, 2, 1]
    assert after["num_frames"].tolist() == [4, 1, 12, 5, 6, 8, 4, 2, 0]
    assert after["lengths"].tolist() == [10, 10, 10, 50, 10, 10, 9, 9, 0]
    assert after["repeats"].tolist() == [0, 0, 0, 0, 2, 3, 0, 0, 0]
    changed = (after["codes"] != before.codes).any(-1).nonzero().tolist()
    assert changed == [[0, 3], [5, 7]]
    assert torch.equal(after["codes"][5, 7], frame[5])
    expected = text.table[text.ids[4, 1]] + sum(tables[c][before.codes[4, 5, c]] for c in range(5))
    assert torch.allclose(after["rows"][5], expected, atol=1e-5), "its piece's second step"
    padded = text.table[39] + sum(tables[c][before.codes[5, 6, c]] for c in range(5))
    assert torch.allclose(after["rows"][0], padded, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("added", [0, 1])
def test_kernels_match_plain_torch(added: int, kernel_device: str) -> None:
    ours = run(kernel_device, added)
    with forced_reference():
        reference = run("cpu", added)
    for name, value in reference.items():
        assert torch.allclose(ours[name].double(), value.double(), atol=1e-5), name
