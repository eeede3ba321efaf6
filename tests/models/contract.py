"""Checks of the model contract (voxserve/models/base.py) that hold for every registered model.

A check takes a loaded model and texts; a model's own tests call them with texts it can say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from voxserve.core.jobs import RowStatus
from voxserve.models.base import SpeechModel, StateSize
from voxserve.models.request import PreparedRequest, SpeechOptions

SAMPLE_TOLERANCE = 1e-4


def allocate(model: SpeechModel, num_slots: int, max_frames: int = 600) -> Any:
    """State with each slot's own full context."""
    return model.allocate(StateSize(num_slots, 0, 64, max_frames))


def prepare(model: SpeechModel, text: str, seed: int = 0, **options: Any) -> PreparedRequest:
    """A preprocessed request."""
    return model.preprocess(text, SpeechOptions(seed=seed, **options))


def speak(
    model: SpeechModel, state: Any, requests: Sequence[PreparedRequest], num_slots: int
) -> list[torch.Tensor]:
    """Codes [frames, codebooks] of requests that are batched as slots become free.

    Every request's pieces are prefilled into its slot one after the other, beside the steps of
    the others.
    """
    codes: list[torch.Tensor] = [torch.empty(0)] * len(requests)
    waiting = list(enumerate(requests))
    active: dict[int, tuple[int, PreparedRequest, int]] = {}
    while waiting or active:
        opened = []
        for slot in [s for s in range(num_slots) if s not in active][: len(waiting)]:
            index, request = waiting.pop(0)
            model.open_slot(state, slot, request)
            active[slot] = index, request, 0
            opened.append(slot)
        _prefill(model, state, active, opened)
        model.decode(state, torch.tensor(list(active), dtype=torch.int32), 0)
        _next_pieces(model, state, active)
        for slot in list(active):
            index, request, _ = active[slot]
            made = int(state.num_frames[slot])
            if state.status[slot] != RowStatus.CONTINUE or made >= request.max_frames:
                codes[index] = state.codes[slot, :made].clone()
                del active[slot]
    return codes


def _next_pieces(
    model: SpeechModel, state: Any, active: dict[int, tuple[int, PreparedRequest, int]]
) -> None:
    ended = [
        slot
        for slot, (_, request, piece) in active.items()
        if state.status[slot] == RowStatus.END and piece + 1 < len(request.pieces)
    ]
    for slot in ended:
        index, request, piece = active[slot]
        active[slot] = index, request, piece + 1
    _prefill(model, state, active, ended)


def _prefill(
    model: SpeechModel,
    state: Any,
    active: dict[int, tuple[int, PreparedRequest, int]],
    slots: list[int],
) -> None:
    if slots:
        pieces = tuple(active[slot][1].pieces[active[slot][2]] for slot in slots)
        model.prefill(state, model.pack_prefill(tuple(slots), pieces, model.device))


def decode_chunks(
    model: SpeechModel, state: Any, slot: int, num_frames: int, sizes: Sequence[int]
) -> np.ndarray:
    """Samples of a slot's first `num_frames` frames, decoded in chunks of the sizes in turn."""
    parts, first, turn = [], 0, 0
    while first < num_frames:
        frames = sizes[min(turn, len(sizes) - 1)]
        valid = min(frames, num_frames - first)
        is_last = first + valid == num_frames
        out = model.codec(
            state, _ints([slot]), _ints([first]), _ints([valid]), torch.tensor([is_last]), frames
        )
        parts.append(out[0, : model.info.chunk_samples(first, valid, is_last)].numpy())
        first, turn = first + valid, turn + 1
    return np.concatenate(parts)


def _ints(values: Sequence[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def load_codes(model: SpeechModel, state: Any, slot: int, codes: torch.Tensor, seed: int) -> None:
    """Opens a slot whose frames are given instead of generated."""
    model.open_slot(state, slot, PreparedRequest((), len(codes), SpeechOptions(seed=seed)))
    state.codes[slot, : len(codes)] = codes


def check_batch_does_not_matter(
    model: SpeechModel, texts: Sequence[str], batch: int, requests: int
) -> None:
    """Tokens of `requests` requests are equal alone and in batches of up to `batch` rows."""
    jobs = [prepare(model, texts[i % len(texts)], seed=i) for i in range(requests)]
    together = speak(model, allocate(model, batch), jobs, batch)
    alone_state = allocate(model, 1)
    for index, job in enumerate(jobs):
        (alone,) = speak(model, alone_state, [job], 1)
        assert torch.equal(alone, together[index]), f"request {index} differs in a batch"


def check_chunking_does_not_matter(
    model: SpeechModel, codes: torch.Tensor, ramps: Sequence[Sequence[int]]
) -> None:
    """Any chunking gives the whole decode within the tolerance, and exactly as many samples."""
    state = allocate(model, 1)
    load_codes(model, state, 0, codes, seed=3)
    whole = decode_chunks(model, state, 0, len(codes), [len(codes)])
    assert len(whole) == len(codes) * model.info.frame_samples
    assert np.isfinite(whole).all()
    assert np.abs(whole).max() <= 1.0
    for ramp in ramps:
        load_codes(model, state, 0, codes, seed=3)
        chunked = decode_chunks(model, state, 0, len(codes), ramp)
        assert len(chunked) == len(whole)
        assert np.abs(chunked - whole).max() <= SAMPLE_TOLERANCE, f"chunk ramp {ramp}"


def check_codec_batch_does_not_matter(model: SpeechModel, codes: Sequence[torch.Tensor]) -> None:
    """Rows with different valid lengths in one batch, some flushed, equal the rows alone."""
    state = allocate(model, len(codes))
    alone = []
    for slot, given in enumerate(codes):
        load_codes(model, state, slot, given, seed=slot)
        alone.append(decode_chunks(model, state, slot, len(given), [4]))
        load_codes(model, state, slot, given, seed=slot)
    parts: list[list[np.ndarray]] = [[] for _ in codes]
    for first in range(0, max(map(len, codes)), 4):
        rows = [slot for slot, given in enumerate(codes) if first < len(given)][::-1]
        valid = [min(4, len(codes[slot]) - first) for slot in rows]
        last = [first + n == len(codes[slot]) for slot, n in zip(rows, valid, strict=True)]
        starts = _ints([first] * len(rows))
        out = model.codec(state, _ints(rows), starts, _ints(valid), torch.tensor(last), 6)
        for row, slot in enumerate(rows):
            length = model.info.chunk_samples(first, valid[row], last[row])
            parts[slot].append(out[row, :length].numpy())
    for slot, expected in enumerate(alone):
        got = np.concatenate(parts[slot])
        assert len(got) == len(expected)
        assert np.abs(got - expected).max() <= SAMPLE_TOLERANCE, f"slot {slot}"


def check_ended_rows_are_ignored(model: SpeechModel, text: str) -> None:
    """A step launched before an end was read changes nothing of the ended row."""
    state = allocate(model, 2)
    jobs = [prepare(model, text, seed=0), prepare(model, f"{text} {text}", seed=1)]
    for slot, job in enumerate(jobs):
        model.open_slot(state, slot, job)
        model.prefill(state, model.pack_prefill((slot,), job.pieces[:1], model.device))
    for _ in range(jobs[0].max_frames):
        model.decode(state, _ints([0]), 0)
        if state.status[0] != RowStatus.CONTINUE:
            break
    before = state.codes[0].clone(), int(state.num_frames[0]), int(state.status[0])
    model.decode(state, _ints([0, 1]), 0)
    assert int(state.num_frames[0]) == before[1]
    assert int(state.status[0]) == before[2] == RowStatus.END
    assert torch.equal(state.codes[0], before[0])
    assert int(state.num_frames[1]) == 2


def check_only_given_slots_change(model: SpeechModel, text: str) -> None:
    """Prefill, decode and codec of one slot leave another slot's results as they were."""
    state = allocate(model, 2)
    job = prepare(model, text, seed=0)
    (expected,) = speak(model, allocate(model, 1), [job], 1)
    model.open_slot(state, 0, job)
    model.prefill(state, model.pack_prefill((0,), job.pieces[:1], model.device))
    other = prepare(model, text, seed=9)
    for frame in range(1, len(expected)):
        if frame % 5 == 1:
            model.open_slot(state, 1, other)
            model.prefill(state, model.pack_prefill((1,), other.pieces[:1], model.device))
            model.codec(state, _ints([1]), _ints([0]), _ints([1]), torch.tensor([False]), 1)
        model.decode(state, _ints([1]), 0)
        model.decode(state, _ints([0]), 0)
    assert torch.equal(state.codes[0, : len(expected)], expected)


def check_limits(model: SpeechModel, text: str) -> None:
    """Frame limits, seeds and prompt sizes are kept."""
    state = allocate(model, 1)
    assert prepare(model, text, max_frames=5).max_frames == 5
    fixed = prepare(model, text, min_frames=30, max_frames=30)
    (codes,) = speak(model, state, [fixed], 1)
    assert len(codes) == 30
    first, again = (speak(model, state, [prepare(model, text, seed=7)], 1)[0] for _ in range(2))
    (other,) = speak(model, state, [prepare(model, text, seed=8)], 1)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    for piece in prepare(model, " ".join([text] * 20)).pieces:
        assert piece.num_tokens <= model.info.max_prompt_tokens
        assert piece.ids.shape == (piece.num_tokens, 1 + model.info.num_codebooks)
        assert piece.mask.any(1).all()
