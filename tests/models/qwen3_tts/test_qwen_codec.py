"""The streaming codec: any chunks, any batch, any slot give what the whole decode gives."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models.qwen3_tts.qwen_support import WAVE_TOLERANCE, golden, relative_error, slots_of

from voxserve.models.qwen3_tts.codec import MAX_CHUNK_FRAMES, Codec, CodecState
from voxserve.models.qwen3_tts.model import Qwen3TTS

NUM_FRAMES = 60


@pytest.fixture(scope="module")
def codec(tiny: Qwen3TTS) -> Codec:
    return tiny.codec_decoder


@pytest.fixture(scope="module")
def codes(codec: Codec) -> torch.Tensor:
    """[3 requests, frames, codebooks]."""
    generator = torch.Generator().manual_seed(3)
    shape = (3, NUM_FRAMES, codec.config.num_codebooks)
    return torch.randint(codec.config.codebook_size, shape, generator=generator).int()


@pytest.fixture(scope="module")
def whole(codec: Codec, codes: torch.Tensor) -> torch.Tensor:
    """The decode of each request in the largest chunks, alone; [3, samples]."""
    return torch.stack([stream(codec, row, [25, 25, 10]) for row in codes])


def stream(codec: Codec, codes: torch.Tensor, chunks: list[int]) -> torch.Tensor:
    state = CodecState(codec, 2)
    first, parts = 0, []
    for size in chunks:
        part = codes[None, first : first + size]
        parts.append(codec.decode(part, state, slots_of(0), slots_of(first), slots_of(size))[0])
        first += size
    return torch.cat(parts)


def cut(sizes: list[int]) -> list[int]:
    """Chunk sizes that add up to all frames, the last one ragged."""
    chunks: list[int] = []
    while sum(chunks) < NUM_FRAMES:
        size = sizes[len(chunks) % len(sizes)]
        chunks.append(min(size, NUM_FRAMES - sum(chunks)))
    return chunks


@given(st.lists(st.integers(1, MAX_CHUNK_FRAMES), min_size=1, max_size=12))
@settings(max_examples=12, deadline=None, derandomize=True)
def test_any_chunks_give_the_whole(
    codec: Codec, codes: torch.Tensor, whole: torch.Tensor, sizes: list[int]
) -> None:
    streamed = stream(codec, codes[0], cut(sizes))
    assert relative_error(streamed, whole[0]) <= WAVE_TOLERANCE


@pytest.mark.parametrize("sizes", [[1], [25], [1, 2, 4, 8], [10], [7, 3]])
def test_usual_chunks_give_the_whole(
    codec: Codec, codes: torch.Tensor, whole: torch.Tensor, sizes: list[int]
) -> None:
    streamed = stream(codec, codes[1], cut(sizes))
    assert streamed.shape[0] == NUM_FRAMES * codec.config.frame_samples
    assert relative_error(streamed, whole[1]) <= WAVE_TOLERANCE


def test_the_window_is_longer_than_a_chunk_and_reached() -> None:
    """The goldens and these tests would not notice a wrong window if nothing ever left it."""
    tensors, _ = golden("codec")
    assert len(tensors["codes"]) >= 40 > 10


def test_rows_of_any_age_and_length_share_a_batch(
    codec: Codec, codes: torch.Tensor, whole: torch.Tensor
) -> None:
    """Three requests start at different times and advance by 0 to 10 valid frames of ten."""
    state = CodecState(codec, 5)
    generator = torch.Generator().manual_seed(5)
    slots, done = (4, 0, 2), [0, 0, 0]
    out: list[list[torch.Tensor]] = [[], [], []]
    for step in range(200):
        sizes = torch.randint(11, (3,), generator=generator).tolist()
        rows = [r for r in range(3) if step >= 2 * r and done[r] < NUM_FRAMES]
        if not rows:
            break
        sizes = [min(sizes[r], NUM_FRAMES - done[r]) for r in rows]
        batch = torch.zeros((len(rows), 10, codes.shape[2]), dtype=torch.int32)
        for i, (r, size) in enumerate(zip(rows, sizes, strict=True)):
            batch[i, :size] = codes[r, done[r] : done[r] + size]
            batch[i, size:] = 5  # whatever lies behind the valid frames
        which, first = slots_of(*(slots[r] for r in rows)), slots_of(*(done[r] for r in rows))
        wave = codec.decode(batch, state, which, first, slots_of(*sizes))
        for i, (r, size) in enumerate(zip(rows, sizes, strict=True)):
            out[r].append(wave[i, : size * codec.config.frame_samples])
            done[r] += size
    assert done == [NUM_FRAMES] * 3
    for r in range(3):
        assert relative_error(torch.cat(out[r]), whole[r]) <= WAVE_TOLERANCE


def test_a_slot_starts_anew(codec: Codec, codes: torch.Tensor, whole: torch.Tensor) -> None:
    """What a slot's last owner left behind is not heard."""
    state = CodecState(codec, 1)
    for row in range(2):
        first, parts = 0, []
        for size in cut([10]):
            part = codes[row][None, first : first + size]
            wave = codec.decode(part, state, slots_of(0), slots_of(first), slots_of(size))
            parts.append(wave[0])
            first += size
        assert relative_error(torch.cat(parts), whole[row]) <= WAVE_TOLERANCE


def test_nothing_after_a_frame_changes_it(codec: Codec, codes: torch.Tensor) -> None:
    changed = codes[0].clone()
    changed[30:] = (changed[30:] + 1) % codec.config.codebook_size
    before, after = (stream(codec, item, cut([10])) for item in (codes[0], changed))
    samples = 30 * codec.config.frame_samples
    assert torch.equal(before[:samples], after[:samples])
    assert not torch.equal(before[samples:], after[samples:])
