"""The language model of vox-tiny as it is trained: text tokens and speech frames in one sequence.

Text stands in the sequence where it arrived: all of it before the first frame, or word by word
between frames. A step's input is the frame before (or the mark that opens the speech); its output
predicts the next frame. The text encoder looks ahead only inside what arrived together, so a
served text can be encoded as it comes. Parameter names are those of the weights file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import reduce

import torch
import torch.nn.functional as F
from torch import nn

from voxserve.core.errors import InvalidInput
from voxserve.models.vox_tiny.config import depth_passes
from voxserve.models.vox_tiny.train.rounding import RoundedEmbedding, RoundedLinear, rounded
from voxserve.models.vox_tiny.train.sequences import Batch, guide_loss, sequence_order

CHARACTERS = "abcdefghijklmnopqrstuvwxyz ,.!?;:'-"
PADDING, TEXT_BEGIN, TEXT_END, AUDIO_BEGIN, FIRST_CHARACTER = range(5)
TEXT_IDS = FIRST_CHARACTER + len(CHARACTERS)

_INIT_STD = 0.02
ROPE_THETA = 10_000.0
_NORM_EPS = 1e-6
# These heads of these layers are taught to look at the text that sounds now, and next.
GUIDED_LAYERS = (1, 3)


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Widths and depths.

    Attributes:
        hidden, layers, heads, kv_heads, ffn: Of the talker.
        depth_hidden, depth_layers, depth_heads, depth_ffn: Of the depth transformer.
        codes_per_pass: Codes that one depth pass predicts at once, after the first pass's one.
        text_kernel, text_blocks: Convolutions over the text.
        codebooks, codebook_size: Codes per frame and their range.
        dropout: Of the talker; the depth transformer has half.
    """

    hidden: int = 320
    layers: int = 6
    heads: int = 8
    kv_heads: int = 2
    ffn: int = 768
    depth_hidden: int = 192
    depth_layers: int = 1
    depth_heads: int = 3
    depth_ffn: int = 512
    codes_per_pass: int = 2
    text_kernel: int = 7
    text_blocks: int = 2
    codebooks: int = 8
    codebook_size: int = 1024
    dropout: float = 0.1

    def __post_init__(self) -> None:
        """Refuses heads that do not fit.

        Raises:
            InvalidInput: Says which.
        """
        for width, heads in (
            (self.hidden, self.heads),
            (self.heads, self.kv_heads),
            (self.depth_hidden, self.depth_heads),
        ):
            if heads < 1 or width % heads:
                raise InvalidInput(f"{width} is no multiple of {heads}: choose heads that fit")
        if self.hidden // self.heads % 2 or self.depth_hidden // self.depth_heads % 2:
            raise InvalidInput("the width of a head must be even: choose fewer or more heads")

    @property
    def end_code(self) -> int:
        """What the first codebook says at the end."""
        return self.codebook_size

    @property
    def head_dim(self) -> int:
        """Width of a talker's head."""
        return self.hidden // self.heads

    @property
    def depth_head_dim(self) -> int:
        """Width of a depth head."""
        return self.depth_hidden // self.depth_heads

    @property
    def passes(self) -> tuple[tuple[int, ...], ...]:
        """Codebooks predicted by each depth pass."""
        return depth_passes(self.codebooks, self.codes_per_pass)

    def as_dict(self) -> dict[str, float]:
        """For logs and metadata."""
        return asdict(self)


@dataclass(frozen=True, slots=True, eq=False)
class Losses:
    """Scalars of one batch: cross-entropies, attention to the right text, shares that are right.

    Attributes:
        first, rest: Of the first codebook (with the end) and of the others.
        guide: Negative log of the attention on the text that sounds.
        accuracy: Of the first codebook's likeliest code.
        end_recall: Of ends, how many are the likeliest code.
    """

    first: torch.Tensor
    rest: torch.Tensor
    guide: torch.Tensor
    accuracy: torch.Tensor
    end_recall: torch.Tensor


class Norm(nn.Module):
    """RMS norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Same shape and type."""
        return F.rms_norm(x, (x.shape[-1],), self.w.to(x.dtype), _NORM_EPS)


class TextBlock(nn.Module):
    """ConvNeXt over text; a token sees earlier tokens and later ones of its own segment."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.dw = nn.Conv1d(width, width, kernel, groups=width)  # weights only: see forward
        self.n = nn.LayerNorm(width)
        self.a, self.b = RoundedLinear(width, width, True), RoundedLinear(width, width, True)
        self.g = nn.Parameter(torch.full((width,), 0.3))

    def forward(
        self, x: torch.Tensor, segments: torch.Tensor, is_text: torch.Tensor
    ) -> torch.Tensor:
        """[rows, tokens, width] with segments and is_text [rows, tokens]."""
        taps, tokens = self.dw.weight[:, 0].to(x.dtype), x.shape[1]
        reach = taps.shape[1] // 2
        padded = F.pad(x, (0, 0, reach, reach))
        mixed = self.dw.bias.to(x.dtype).expand_as(x) if self.dw.bias is not None else 0 * x
        known = F.pad(segments, (0, reach), value=-1)
        for offset in range(-reach, reach + 1):
            near = padded[:, reach + offset : reach + offset + tokens]
            if offset > 0:
                near = near * (known[:, offset : offset + tokens] == segments)[..., None]
            mixed = torch.addcmul(mixed, near, taps[:, reach + offset])
        return (x + self.g * self.b(F.gelu(self.a(self.n(mixed))))) * is_text[..., None]


class Layer(nn.Module):
    """Grouped-query attention with normed queries and keys, and SwiGLU."""

    def __init__(self, width: int, heads: int, kv_heads: int, ffn: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, width // heads
        self.n1, self.n2 = Norm(width), Norm(width)
        self.qkv = RoundedLinear(width, (heads + 2 * kv_heads) * self.head_dim)
        self.o, self.dn = RoundedLinear(width, width), RoundedLinear(ffn, width)
        self.gu = RoundedLinear(width, 2 * ffn)
        self.qn, self.kn = Norm(self.head_dim), Norm(self.head_dim)
        self.drop = nn.Dropout(dropout)

    def forward(
        self, x: torch.Tensor, rotation: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """One layer over whole sequences.

        Args:
            x: [rows, positions, width].
            rotation: [2, positions, head_dim / 2] cosines and sines.

        Returns:
            The same shape, and queries and keys [rows, heads, positions, head_dim], turned.
        """
        q, k, v = self.project(x, rotation)
        group = self.heads // self.kv_heads
        keys, values = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        attended = F.scaled_dot_product_attention(q, keys, values, is_causal=True)
        return self.finish(x, attended), q, k

    def project(
        self, x: torch.Tensor, rotation: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys (turned) and values [rows, heads or kv_heads, positions, head_dim]."""
        rows, positions, _ = x.shape
        mixed = self.qkv(self.n1(x)).view(rows, positions, -1, self.head_dim).transpose(1, 2)
        q, k, v = mixed.split([self.heads, self.kv_heads, self.kv_heads], 1)
        # Autocast may leave norms in fp32; attention is fast in the values' type.
        q, k = self.qn(q).to(v.dtype), self.kn(k).to(v.dtype)
        return _turned(q, rotation), _turned(k, rotation), v

    def finish(self, x: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """[rows, positions, width] from the attention [rows, heads, positions, head_dim]."""
        x = x + self.drop(self.o(attended.transpose(1, 2).reshape(x.shape)))
        gate, up = self.gu(self.n2(x)).chunk(2, -1)
        return x + self.drop(self.dn(F.silu(gate) * up))


class LanguageModel(nn.Module):
    """Text encoder, talker and depth transformer."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.shape = shape
        width, depth = shape.hidden, shape.depth_hidden
        self.te = RoundedEmbedding(TEXT_IDS, width)
        self.tc = nn.ModuleList(
            [TextBlock(width, shape.text_kernel) for _ in range(shape.text_blocks)]
        )
        # One narrow table per codebook serves both transformers.
        tables = [RoundedEmbedding(shape.codebook_size, depth) for _ in range(shape.codebooks)]
        self.ae = nn.ModuleList(tables)
        self.ap = RoundedLinear(depth, width)
        sizes = (width, shape.heads, shape.kv_heads, shape.ffn, shape.dropout)
        self.ls = nn.ModuleList([Layer(*sizes) for _ in range(shape.layers)])
        self.n = Norm(width)
        self.h0 = RoundedLinear(width, shape.codebook_size + 1)
        self.dp = RoundedLinear(width, depth)
        sizes = (depth, shape.depth_heads, shape.depth_heads, shape.depth_ffn, shape.dropout / 2)
        self.dl = nn.ModuleList([Layer(*sizes) for _ in range(shape.depth_layers)])
        self.dno = Norm(depth)
        self.hd = nn.Parameter(torch.empty(shape.codebooks - 1, shape.codebook_size, depth))
        self._initialise()

    def _initialise(self) -> None:
        for name, parameter in self.named_parameters():  # residual branches begin small
            if parameter.dim() >= 2 and ".dw." not in name:
                nn.init.normal_(parameter, std=_INIT_STD)
                if name.endswith((".o.weight", ".dn.weight")):
                    parameter.data /= math.sqrt(2 * self.shape.layers)

    def forward(self, batch: Batch, history_kept: torch.Tensor, end_weight: float) -> Losses:
        """Losses of a batch.

        Args:
            batch: Utterances.
            history_kept: [rows, frames] bool, frames that the steps after them may hear.
            end_weight: Of the end among the first codebook's codes.
        """
        hidden, guide = self.talk(batch, history_kept)
        first, accuracy, recall = self._first_loss(hidden, batch, end_weight)
        heard = hidden[:, :-1].flatten(0, 1).index_select(0, batch.real_frames)
        codes = batch.codes.flatten(0, 1).index_select(0, batch.real_frames)
        rest = self._depth_loss(heard, codes)
        return Losses(first, rest, guide, accuracy, recall)

    def talk(self, batch: Batch, history_kept: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[rows, frames + 1, hidden] of every step, normed, and the guide's loss."""
        steps = self._step_inputs(batch.codes, history_kept)
        text = self.encode_text(batch.text, batch.segments).to(steps.dtype)
        order, step_places, text_places = sequence_order(batch)
        joined = torch.cat([text, steps], 1)
        x = torch.gather(joined, 1, order[..., None].expand(-1, -1, joined.shape[-1]))
        rotation = rotation_table(x.shape[1], self.shape.head_dim, x.device)
        guide = x.new_zeros((), dtype=torch.float32)
        for number, layer in enumerate(self.ls):
            x, queries, keys = layer(x, rotation)
            if number in GUIDED_LAYERS and self.training:
                with torch.autocast(x.device.type, enabled=False):
                    loss = guide_loss(queries, keys, step_places, text_places, batch)
                guide = guide + loss / len(GUIDED_LAYERS)
        hidden = torch.gather(x, 1, step_places[..., None].expand(-1, -1, x.shape[-1]))
        return self.n(hidden), guide

    def encode_text(self, text: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        """[rows, tokens, hidden]."""
        is_text = text != PADDING
        x = self.te(text) * is_text[..., None]
        for block in self.tc:
            x = block(x, segments, is_text)
        return x

    def _step_inputs(self, codes: torch.Tensor, history_kept: torch.Tensor) -> torch.Tensor:
        """[rows, frames + 1, hidden]: the opening mark, then each frame."""
        # The residual stream is fp32, whatever the products are.
        frames = self.embed_frames(codes).float() * history_kept[..., None]
        opening = self.te(torch.full_like(codes[:, :1, 0], AUDIO_BEGIN))
        return torch.cat([opening.to(frames.dtype), frames], 1)

    def embed_frames(self, codes: torch.Tensor) -> torch.Tensor:
        """[..., hidden] input of the step after each frame [..., codebooks]."""
        return self.ap(self._summed(codes, range(self.shape.codebooks)))

    def _summed(self, codes: torch.Tensor, codebooks: Iterable[int]) -> torch.Tensor:
        return reduce(torch.add, (self.ae[i](codes[..., i]) for i in codebooks))

    def _first_loss(
        self, hidden: torch.Tensor, batch: Batch, end_weight: float
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        end = self.shape.end_code
        place = torch.arange(hidden.shape[1], device=hidden.device)
        wanted = F.pad(batch.codes[..., 0], (0, 1))
        wanted = torch.where(place == batch.frames[:, None], end, wanted)
        wanted = torch.where(place > batch.frames[:, None], -100, wanted)
        logits = self.h0(hidden).float()
        weight = torch.ones(end + 1, device=logits.device)
        weight[end] = end_weight
        loss = F.cross_entropy(
            logits.flatten(0, 1), wanted.flatten(), weight=weight, ignore_index=-100
        )
        with torch.no_grad():
            right, is_end = logits.argmax(-1) == wanted, wanted == end
            recall = (right & is_end).sum() / is_end.sum()
            return loss, right.sum() / (wanted >= 0).sum(), recall

    def _depth_loss(self, hidden: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
        logits = self.depth_logits(hidden, codes)
        return F.cross_entropy(logits.float().flatten(0, 1), codes[:, 1:].flatten())

    def depth_logits(self, hidden: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
        """[frames, codebooks - 1, codes] given [frames, hidden] and the codes [frames, codebooks].

        Pass 0 reads the talker and code 0, each later one the codes of the pass before.
        """
        passes = self.shape.passes
        first = self.dp(hidden)
        later = [self._summed(codes, before).to(first.dtype) for before in passes[:-1]]
        x = torch.stack([first + self.ae[0](codes[:, 0]), *later], 1)
        rotation = rotation_table(len(passes), self.shape.depth_head_dim, x.device)
        for layer in self.dl:
            x, _, _ = layer(x, rotation)
        x = self.dno(x)
        by_codebook = [x[:, number] for number, codebooks in enumerate(passes) for _ in codebooks]
        heads = rounded(self.hd) if self.h0.is_rounded else self.hd
        return torch.einsum("qnd,qkd->nqk", torch.stack(by_codebook), heads.to(x.dtype))


def rotation_table(positions: int, head_dim: int, device: torch.device) -> torch.Tensor:
    """[2, positions, head_dim / 2] cosines and sines."""
    rates = ROPE_THETA ** (-torch.arange(0, head_dim, 2, device=device).float() / head_dim)
    angles = torch.arange(positions, device=device).float()[:, None] * rates
    return torch.stack([angles.cos(), angles.sin()])


def _turned(x: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
    cos, sin = rotation.to(x.dtype)
    left, right = x.chunk(2, -1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)
