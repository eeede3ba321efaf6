"""The references against torch's own convolutions, whole sequences and published vectors."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from voxserve.kernels.causal_conv import causal_conv, conv_weight, transposed_weight
from voxserve.kernels.conv_state import ConvInput, ConvStateLayout, PaddedBuffers
from voxserve.kernels.fused_linear import fold_norm, norm_linear
from voxserve.kernels.philox import gumbel_noise, philox
from voxserve.kernels.rms_norm import rms_norm, scale_reference
from voxserve.kernels.rope import rope_table
from voxserve.kernels.sampling import FirstCodebookRules, SamplingParams, sample, seen_bitmap
from voxserve.kernels.snake import snake, snake_params
from voxserve.kernels.window_attention import window_attention

WINDOW = 72


def test_philox_gives_the_published_words() -> None:
    """Random123's known answer for a zero counter and key."""
    zero = torch.zeros(1, dtype=torch.int64)
    words = [int(word) for word in philox(zero, (zero, zero, zero))]
    assert words == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def test_gumbel_noise_has_its_mean_and_variance() -> None:
    """A million draws, within four standard errors."""
    seeds, frames = torch.arange(500), torch.zeros(500, dtype=torch.int32)
    noise = gumbel_noise(seeds, frames, 3, 2048).double()
    error = math.pi / math.sqrt(6 * noise.numel())
    assert abs(float(noise.mean()) - 0.5772156649) < 4 * error
    assert float(noise.var()) == pytest.approx(math.pi**2 / 6, rel=0.01)


def test_noise_depends_on_seed_frame_and_codebook_only() -> None:
    """Not on the row it is drawn in."""
    seeds, frames = torch.tensor([7, 8, 7]), torch.tensor([2, 2, 2])
    noise = gumbel_noise(seeds, frames, 1, 100)
    assert torch.equal(noise[0], noise[2])
    for other in (noise[1], gumbel_noise(seeds, frames + 1, 1, 100)[0]):
        assert not torch.equal(noise[0], other)
    assert not torch.equal(noise, gumbel_noise(seeds, frames, 2, 100))


def _params(rows: int, temperature: float, top_k: int = 0, top_p: float = 1.0) -> SamplingParams:
    return SamplingParams(
        torch.full((rows,), temperature),
        torch.full((rows,), top_k, dtype=torch.int32),
        torch.full((rows,), top_p),
    )


def _draw(logits: torch.Tensor, params: SamplingParams, rules: FirstCodebookRules | None = None):
    rows = logits.shape[0]
    slots = torch.arange(rows, dtype=torch.int32)
    out = torch.empty(rows, dtype=torch.int32)
    frames = torch.zeros(rows, dtype=torch.int32)
    return sample(logits, slots, params, torch.arange(rows), frames, 0, out, rules=rules)


def test_top_k_and_top_p_keep_the_best_ids() -> None:
    """What is drawn is among the k best, or among the fewest that hold p of the mass."""
    logits = torch.randn(300, 64, generator=torch.Generator().manual_seed(5))
    drawn = _draw(logits, _params(300, 1.5, top_k=4)).long()[:, None]
    assert bool((logits.gather(1, drawn) >= logits.topk(4).values[:, -1:]).all())
    drawn = _draw(logits, _params(300, 1.0, top_p=0.4)).long()[:, None]
    better = logits > logits.gather(1, drawn)
    assert bool(((logits.softmax(1) * better).sum(1) < 0.4).all())
    assert torch.equal(_draw(logits, _params(300, 0.0)), logits.argmax(1).int())


def test_rules_of_the_first_codebook() -> None:
    """Suppressed ids, the end id before its time, and ids seen before."""
    logits = torch.zeros(2, 10)
    logits[:, 7], logits[:, 8], logits[:, 3], logits[:, 2] = 9.0, 8.0, 7.0, 6.0
    rules = FirstCodebookRules(
        seen=seen_bitmap(2, 10),
        penalty=torch.full((2,), 1.5),
        min_frames=torch.tensor([0, 1], dtype=torch.int32),
        first_suppressed=7,
        end_id=8,
    )
    params = _params(2, 0.0)
    assert _draw(logits, params, rules).tolist() == [8, 3]
    assert rules.seen[:, 0].tolist() == [1 << 8, 1 << 3]
    assert _draw(logits, params, rules).tolist() == [3, 2]


def test_a_causal_convolution_is_torchs() -> None:
    """Left padding, dilation, bias."""
    x, weight, bias = torch.randn(2, 30, 8), torch.randn(5, 8, 7), torch.randn(5)
    expected = F.conv1d(F.pad(x.transpose(1, 2), (18, 0)), weight, bias, dilation=3)
    out, _ = causal_conv(F.pad(x, (0, 0, 18, 0)), conv_weight(weight), bias, dilation=3)
    assert out is not None
    torch.testing.assert_close(out, expected.transpose(1, 2), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("times", [1, 2])
def test_a_transposed_convolution_is_torchs(times: int) -> None:
    """Kernel of one or two strides, the right overhang trimmed."""
    stride = 3
    x, weight = torch.randn(2, 7, 4), torch.randn(4, 5, times * stride)
    expected = F.conv_transpose1d(x.transpose(1, 2), weight, stride=stride)[..., : 7 * stride]
    out, _ = causal_conv(F.pad(x, (0, 0, times - 1, 0)), transposed_weight(weight, stride))
    assert out is not None
    result = out.view(2, 7 * stride, 5)
    torch.testing.assert_close(result, expected.transpose(1, 2), rtol=1e-5, atol=1e-5)


def test_snake_is_its_formula() -> None:
    """x + sin(alpha x)^2 / beta."""
    x, alpha, beta = torch.randn(2, 3, 4), torch.randn(4), torch.randn(4)
    expected = x + torch.sin(x * alpha.exp()) ** 2 / (beta.exp() + 1e-9)
    torch.testing.assert_close(snake(x, snake_params(alpha, beta)), expected)


def test_a_norm_may_be_folded_or_left_to_the_reader() -> None:
    """All three ways to normalise before a product agree."""
    x, norm, weight = torch.randn(3, 16), torch.rand(16) + 0.5, torch.randn(8, 16)
    expected = F.linear(rms_norm(x, norm), weight)
    folded = fold_norm(weight, norm)
    torch.testing.assert_close(norm_linear(x, None, folded), expected)
    torch.testing.assert_close(scale_reference(F.linear(x, folded), x, 1e-6), expected)


@pytest.mark.parametrize("chunks", [(9, 9, 9), (1, 2, 4, 8, 12), (27,)])
def test_history_carries_a_convolution_over_any_chunks(chunks: tuple[int, ...]) -> None:
    """Buffers of 12 frames, each chunk's rest garbage; a stranger shares the batch."""
    layout = ConvStateLayout((ConvInput(history=6, channels=4, rate=2),))
    state = layout.new_state(3, torch.float32, "cpu").fill_(9.0)
    x, weight = torch.randn(27 * 2, 4), torch.randn(7, 4, 5)
    slots = torch.tensor([1, 0], dtype=torch.int32)
    positions = torch.zeros(3, dtype=torch.int32)
    parts = []
    done = 0
    for count in chunks:
        buffers = PaddedBuffers(layout, 2, max(12, count), torch.float32, "cpu")
        buffers.bodies[0].normal_()
        buffers.bodies[0][0, : 2 * count] = x[2 * done : 2 * (done + count)]
        buffers.gather(state, slots, positions)
        out, _ = causal_conv(buffers.views[0], weight)
        assert out is not None
        parts.append(out[0, : 2 * count])
        buffers.scatter(state, slots, torch.tensor([count, 1], dtype=torch.int32))
        done += count
        positions[:2] = done
    whole, _ = causal_conv(F.pad(x, (0, 0, 6, 0))[None], weight)
    assert whole is not None
    torch.testing.assert_close(torch.cat(parts), whole[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("chunks", [(10,) * 20, (1, 2, 4, 8, 25) * 5])
def test_window_attention_over_chunks_is_that_over_the_whole(chunks: tuple[int, ...]) -> None:
    """Padded chunks of 25 frames in a ring of 96 against one pass with a banded mask."""
    heads, width, frames = 2, 8, 25
    total = sum(chunks)
    qkv = torch.randn(total, 3 * heads * width)
    table = rope_table(total + frames, width, 1e4)
    cache = torch.full((2, 2, heads, 96, width), 7.0)
    slots, positions = torch.tensor([1], dtype=torch.int32), torch.zeros(2, dtype=torch.int32)
    parts = []
    done = 0
    for count in chunks:
        chunk = torch.randn(1, frames, qkv.shape[1])
        chunk[0, :count] = qkv[done : done + count]
        out = window_attention(chunk, table, cache, slots, positions, WINDOW)
        parts.append(out[0, :count])
        done += count
        positions[1] = done
    roomy = torch.zeros((1, 2, heads, WINDOW + total, width))
    zero = torch.zeros(1, dtype=torch.int32)
    whole = window_attention(qkv[None], table, roomy, zero, zero.clone(), WINDOW)
    torch.testing.assert_close(torch.cat(parts), whole[0], rtol=1e-4, atol=1e-5)
