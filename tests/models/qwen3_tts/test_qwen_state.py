"""Slots, batches, ends and pieces: a row's result is its own, whatever shares the step."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from models.qwen3_tts.qwen_support import CPU, GREEDY, prefill, request_of, slots_of, state_of

from voxserve.core.jobs import RowStatus
from voxserve.kernels.sampling import SamplingParams
from voxserve.models.base import StateSize
from voxserve.models.blocks.sampling import MOST
from voxserve.models.qwen3_tts import talker as talker_module
from voxserve.models.qwen3_tts.model import Qwen3TTS
from voxserve.models.qwen3_tts.state import QwenState
from voxserve.models.request import PreparedRequest, Sampling, SpeechOptions

CASE = {"text": "plain", "speaker": "vivian", "language": "english"}
OTHER = {"text": "chinese", "speaker": "eric", "language": "auto", "instruct": "Speak slowly."}


def alone(model: Qwen3TTS, request: PreparedRequest, frames: int) -> torch.Tensor:
    state = state_of(model)
    prefill(model, state, {2: request})
    for _ in range(frames - 1):
        model.decode(state, slots_of(2), 0)
    return codes_of(state, 2)


def codes_of(state: QwenState, slot: int) -> torch.Tensor:
    return state.codes[slot, : int(state.num_frames[slot])].clone()


def favour(model: Qwen3TTS, first_code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes an id of the first codebook the only choice wherever it is allowed."""
    bias = torch.zeros(model.config.vocab)
    bias[first_code] = 1e4
    real = talker_module.logits_linear

    def biased(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        out = real(x, weight)
        return out + bias if weight is model.talker.head else out

    monkeypatch.setattr(talker_module, "logits_linear", biased)


def test_a_batch_gives_each_row_what_it_gets_alone(tiny: Qwen3TTS) -> None:
    """Prompts of different lengths start together or later; padding rows name the scratch slot."""
    options = [
        (CASE, {"seed": 1}),
        (OTHER, {"seed": 2}),
        (CASE, {"seed": 3, "sampling": GREEDY}),
    ]
    requests = [request_of(tiny, case, min_frames=20, **rest)[0] for case, rest in options]
    expected = [alone(tiny, request, 12) for request in requests]
    state = state_of(tiny)
    scratch = state.scratch
    prefill(tiny, state, {3: requests[0], 0: requests[1]})
    tiny.decode(state, slots_of(0, 3, scratch), 0)
    prefill(tiny, state, {1: requests[2]})
    for step in range(11):
        rows = (3, 1, 0) if step % 2 else (1, scratch, 0, 3, scratch)
        tiny.decode(state, slots_of(*rows), 0)
    for slot, codes in ((3, expected[0]), (0, expected[1]), (1, expected[2])):
        assert torch.equal(codes_of(state, slot)[:12], codes)
    assert int(state.num_frames[2]) == 0, "nobody touched slot 2"


def test_padded_prefill_leaves_no_trace(tiny: Qwen3TTS) -> None:
    """A prepared prefill has more tokens and rows than its prompts: they pad the scratch slot."""
    request, _ = request_of(tiny, CASE, seed=4)
    state = state_of(tiny)
    tiny.open_slot(state, 1, request)
    inputs = tiny.pack_prefill((1,), request.pieces, CPU)
    extra = torch.zeros((13, inputs.ids.shape[1]), dtype=torch.int32)
    inputs.ids = torch.cat((inputs.ids, extra))
    inputs.mask = torch.cat((inputs.mask, extra.bool()))
    end = inputs.row_starts[-1:]
    inputs.row_starts = torch.cat((inputs.row_starts, end, end))
    inputs.slots = slots_of(1, state.scratch, state.scratch)
    tiny.prefill(state, inputs)
    for _ in range(5):
        tiny.decode(state, slots_of(1), 0)
    assert torch.equal(codes_of(state, 1), alone(tiny, request, 6))


def test_an_end_makes_no_frame_and_later_rows_are_ignored(
    tiny: Qwen3TTS, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, _ = request_of(tiny, CASE, seed=5)
    other, _ = request_of(tiny, OTHER, seed=6, min_frames=20)
    expected = alone(tiny, other, 8)
    state = state_of(tiny)
    prefill(tiny, state, {0: request, 1: other})
    tiny.decode(state, slots_of(0, 1), 0)
    before = codes_of(state, 0)
    favour(tiny, tiny.config.codec_ids.eos, monkeypatch)
    tiny.decode(state, slots_of(0, 1), 0)
    assert int(state.status[0]) == RowStatus.END
    assert int(state.status[1]) == RowStatus.CONTINUE
    seen = state.sampling.rules.seen[0].clone()
    context = state.cache.pages[:, state.cache.table[0].long()].clone()
    for _ in range(5):
        tiny.decode(state, slots_of(1, 0), 0)
    assert torch.equal(codes_of(state, 0), before)
    assert torch.equal(state.sampling.rules.seen[0], seen)
    assert torch.equal(state.cache.pages[:, state.cache.table[0].long()], context)
    assert torch.equal(codes_of(state, 1), expected), "the end of one row moves no other"


def test_the_end_is_impossible_before_the_least_frames(
    tiny: Qwen3TTS, monkeypatch: pytest.MonkeyPatch
) -> None:
    favour(tiny, tiny.config.codec_ids.eos, monkeypatch)
    for asked, made in ((None, 2), (7, 7)):
        state = state_of(tiny)
        prefill(tiny, state, {0: request_of(tiny, CASE, min_frames=asked)[0]})
        for _ in range(9):
            tiny.decode(state, slots_of(0), 0)
        assert int(state.num_frames[0]) == made
        assert int(state.status[0]) == RowStatus.END


def test_pieces_go_on_as_one_stream(tiny: Qwen3TTS) -> None:
    """A piece's prefill keeps frames and draws new noise; an ignored row does not change it."""
    first, _ = request_of(tiny, CASE, seed=8)
    second, _ = request_of(tiny, OTHER, seed=8)
    request = PreparedRequest((*first.pieces, *second.pieces), 100, first.options)

    def speak(num_ignored: int) -> torch.Tensor:
        state = state_of(tiny)
        prefill(tiny, state, {0: request})
        for _ in range(4):
            tiny.decode(state, slots_of(0), 0)
        state.status[0] = RowStatus.END
        for _ in range(num_ignored):
            tiny.decode(state, slots_of(0), 0)
        prefill(tiny, state, {0: request}, piece=1)
        assert int(state.sequences.piece_start[0]) == 5
        for _ in range(4):
            tiny.decode(state, slots_of(0), 0)
        return codes_of(state, 0)

    codes = speak(0)
    assert len(codes) == 10
    assert torch.equal(codes, speak(2))
    assert torch.equal(codes[:5], alone(tiny, first, 5))
    fresh = alone(tiny, second, 5)
    assert not torch.equal(codes[5:], fresh), "frames are numbered on, so the noise differs"


def test_a_slot_serves_one_request_after_another(tiny: Qwen3TTS) -> None:
    first, _ = request_of(tiny, OTHER, seed=1)
    second, _ = request_of(tiny, CASE, seed=2)
    state = state_of(tiny)
    for request in (first, second):
        prefill(tiny, state, {0: request})
        for _ in range(5):
            tiny.decode(state, slots_of(0), 0)
    assert torch.equal(codes_of(state, 0), alone(tiny, second, 6))


def test_scattered_pages_give_the_same_codes(tiny: Qwen3TTS) -> None:
    """More than a page of context, in pages that are neither in order nor next to each other."""
    request, _ = request_of(tiny, OTHER, seed=3, min_frames=60)
    expected = alone(tiny, request, 40)
    state = tiny.allocate(StateSize(2, 9, 64, 128))
    prefill(tiny, state, {1: request}, pages=(7, 2, 5))
    for _ in range(39):
        tiny.decode(state, slots_of(1), 0)
    assert int(state.cache.lengths[1]) > 64
    assert torch.equal(codes_of(state, 1), expected)
    unused = [page for page in range(9) if page not in (7, 2, 5)]
    assert not state.cache.pages[:, unused].any(), "other slots' pages are untouched"


def test_a_code_that_never_changes_ends_the_request(
    tiny: Qwen3TTS, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(talker_module, "MAX_REPEATS", 6)
    favour(tiny, 3, monkeypatch)
    for asked, made in ((None, 6), (20, 20)):
        state = state_of(tiny)
        prefill(tiny, state, {0: request_of(tiny, CASE, min_frames=asked)[0]})
        for _ in range(30):
            tiny.decode(state, slots_of(0), 0)
        assert int(state.status[0]) == RowStatus.WATCHDOG
        assert int(state.num_frames[0]) == made, "a fixed length is not watched"


def test_full_buffers_end_the_request(tiny: Qwen3TTS) -> None:
    request, _ = request_of(tiny, CASE, min_frames=100)
    state = state_of(tiny, max_frames=9)
    prefill(tiny, state, {0: request})
    for _ in range(12):
        tiny.decode(state, slots_of(0), 0)
    assert int(state.num_frames[0]) == 9
    assert int(state.status[0]) == RowStatus.WATCHDOG
    state = state_of(tiny)
    prefill(tiny, state, {0: request})
    state.cache.lengths[0] = tiny.info.max_context_tokens - 1  # the last place there is
    tiny.decode(state, slots_of(0), 0)
    assert int(state.status[0]) == RowStatus.WATCHDOG


def test_codec_and_backbone_share_only_codes(tiny: Qwen3TTS) -> None:
    """A chunk decoded while frames are still made equals the one decoded at the end."""
    request, _ = request_of(tiny, CASE, seed=2, min_frames=40)
    state = state_of(tiny)
    prefill(tiny, state, {0: request})
    early = []
    for frame in range(1, 12):
        tiny.decode(state, slots_of(0), 0)
        if frame in (3, 8):
            valid = slots_of(4 if frame == 3 else 5)
            where = slots_of(0 if frame == 3 else 4)
            wave = tiny.codec(state, slots_of(0), where, valid, torch.tensor([False]), 5)
            early.append(wave[0, : int(valid) * 1920])
    late = tiny.codec(state, slots_of(0), slots_of(0), slots_of(9), torch.tensor([True]), 9)
    assert float((torch.cat(early) - late[0]).abs().max()) < 1e-5


def test_settings_of_a_row_are_its_own(tiny: Qwen3TTS) -> None:
    """Greedy and sampled rows, penalties and seeds in one batch."""
    greedy, _ = request_of(tiny, CASE, seed=1, sampling=GREEDY, min_frames=30)
    again, _ = request_of(tiny, CASE, seed=99, sampling=GREEDY, min_frames=30)
    sampled, _ = request_of(tiny, CASE, seed=1, min_frames=30)
    other, _ = request_of(tiny, CASE, seed=2, min_frames=30)
    state = state_of(tiny)
    prefill(tiny, state, {0: greedy, 1: again, 2: sampled, 3: other})
    for _ in range(10):
        tiny.decode(state, slots_of(0, 1, 2, 3), 0)
    rows = [codes_of(state, slot) for slot in range(4)]
    assert torch.equal(rows[0], rows[1]), "a greedy row's seed does not matter"
    assert not torch.equal(rows[0], rows[2])
    assert not torch.equal(rows[2], rows[3])


def test_defaults_come_from_the_checkpoint(tiny: Qwen3TTS) -> None:
    state = state_of(tiny)
    request = tiny.preprocess("Hello.", SpeechOptions(seed=2**63 - 1))
    tiny.open_slot(state, 2, request)
    sampling = state.sampling
    assert int(sampling.seeds[2]) == 2**63 - 1
    assert [float(p.temperature[2]) for p in (sampling.first, sampling.depth)] == pytest.approx(
        [0.9, 0.9]
    )
    assert [int(p.top_k[2]) for p in (sampling.first, sampling.depth)] == [50, 50]
    assert float(sampling.rules.penalty[2]) == pytest.approx(1.05)


def test_slots_opened_together_are_as_if_opened_one_by_one(tiny: Qwen3TTS) -> None:
    """Padding rows name the scratch slot, whose settings and pages they leave as they were."""
    options = ({"seed": -5, "min_frames": 7}, {"seed": 2**70 + 3, "sampling": Sampling(top_k=9)})
    requests = [request_of(tiny, CASE, **rest)[0] for rest in options]
    pages = ((4, 2), (7, 1, 3))
    alone, together = (tiny.allocate(StateSize(3, 8, 64, 128)) for _ in range(2))
    for slot, request, own in zip((2, 0), requests, pages, strict=True):
        tiny.open_slot(alone, slot, request, own)
    rows = [tiny.open_row(together, *item) for item in zip(requests, pages, strict=True)]
    rows += [tiny.open_row(together, None)] * 2
    slots = slots_of(2, 0, together.scratch, together.scratch)
    tiny.open_slots(together, slots, torch.tensor(np.stack(rows)))

    def columns(state: QwenState) -> list[torch.Tensor]:
        sampling = state.sampling
        params = [table for kind in (sampling.first, sampling.depth) for table in vars_of(kind)]
        rules = [sampling.rules.penalty, sampling.rules.seen]
        counts = [state.status, state.num_frames, state.num_text, state.wanted_min_frames]
        return [*params, *rules, *counts, sampling.seeds, state.cache.table]

    for one, other in zip(columns(alone), columns(together), strict=True):
        assert torch.equal(one, other)
    assert together.sampling.seeds[:3].tolist() == [3, 0, -5], "of wide seeds 64 bits count"
    assert together.cache.table[2, :3].tolist() == [4, 2, 8]


def test_a_huge_wish_fails_no_prefill(tiny: Qwen3TTS) -> None:
    """Rows are written while a batch is launched: an error there would fail all its requests."""
    state = tiny.allocate(StateSize(3, 8, 64, 128))
    sampling = Sampling(top_k=2**40)
    request, _ = request_of(tiny, CASE, min_frames=2**40, max_frames=20, sampling=sampling)
    tiny.open_slots(state, slots_of(1), torch.tensor(tiny.open_row(state, request)[None]))
    assert int(state.wanted_min_frames[1]) == int(state.sampling.first.top_k[1]) == MOST


def vars_of(params: SamplingParams) -> list[torch.Tensor]:
    return [params.temperature, params.top_k, params.top_p]
