"""The transformer layer of vox-tiny's talker and depth transformer, arranged for few, large ops.

Norm weights are folded into the matrices and into the rotary tables; q, k and v are one product.
Matrices are kept [in, out]: that layout gives rows that do not depend on the batch (see rows.py).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from voxserve.models.vox_tiny.checkpoint import Tensors
from voxserve.models.vox_tiny.config import BackboneShape

_NORM_EPS = 1e-6


def unit_rows(x: torch.Tensor) -> torch.Tensor:
    """Rows of Euclidean length 1: an RMS norm without its weight and without sqrt(width)."""
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    # Steps whose result IEEE 754 prescribes, so that a row rounds alike in any batch.
    return x / length.square_().add_(_NORM_EPS * x.shape[-1]).sqrt_()


def folded(weight: torch.Tensor, norm_weight: torch.Tensor) -> torch.Tensor:
    """[in, out] matrix that takes `unit_rows` and gives norm-then-linear.

    Args:
        weight: [out, in].
        norm_weight: [in], of the RMS norm before it.
    """
    width = weight.shape[1]
    return (weight * norm_weight * math.sqrt(width)).t().contiguous()


class Layer:
    """Weights and maths of one layer; the caller owns the KV cache and the attention call."""

    def __init__(self, tensors: Tensors, prefix: str, shape: BackboneShape) -> None:
        self.shape = shape
        self.qkv = folded(tensors[f"{prefix}.qkv.weight"], tensors[f"{prefix}.n1.w"])
        self.out = tensors[f"{prefix}.o.weight"].t().contiguous()
        self.gate_up = folded(tensors[f"{prefix}.gu.weight"], tensors[f"{prefix}.n2.w"])
        self.down = tensors[f"{prefix}.dn.weight"].t().contiguous()
        root = math.sqrt(shape.head_dim)
        self.head_scale = torch.cat(
            [
                (tensors[f"{prefix}.qn.w"] * root).expand(shape.heads, -1),
                (tensors[f"{prefix}.kn.w"] * root).expand(shape.kv_heads, -1),
            ]
        )

    def matrices(self) -> list[torch.Tensor]:
        """The [in, out] matrices a row is multiplied with."""
        return [self.qkv, self.out, self.gate_up, self.down]

    def rotary_table(self, positions: int) -> torch.Tensor:
        """[positions, 2, heads + kv_heads, head_dim]: factors of a head and of its rolled half.

        `x * table[p, 0] + roll(x) * table[p, 1]` is the norm weight and the rotation in one.
        """
        half = self.shape.head_dim // 2
        rates = self.shape.rope_theta ** (-torch.arange(half, dtype=torch.float32) / half)
        angles = torch.arange(positions, dtype=torch.float32)[:, None] * rates
        cos, sin = torch.cos(angles), torch.sin(angles)
        straight = torch.cat([cos, cos], 1)[:, None] * self.head_scale
        rolled = torch.cat([-sin, sin], 1)[:, None] * torch.roll(self.head_scale, half, 1)
        return torch.stack([straight, rolled], 1)

    def project(self, x: torch.Tensor, rotary: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Queries and the row of the KV cache.

        Args:
            x: [rows, hidden].
            rotary: [rows or 1, 2, heads + kv_heads, head_dim].

        Returns:
            [rows, heads, head_dim] and [rows, 2, kv_heads, head_dim] (keys, then values).
        """
        shape = self.shape
        split = shape.heads + shape.kv_heads
        mixed = torch.mm(unit_rows(x), self.qkv).view(-1, split + shape.kv_heads, shape.head_dim)
        heads = unit_rows(mixed[:, :split])
        rolled = torch.roll(heads, shape.head_dim // 2, -1)
        straight, crossed = rotary.unbind(1)
        turned = torch.addcmul(heads * straight, rolled, crossed)
        queries, keys = turned.split((shape.heads, shape.kv_heads), 1)
        return queries, torch.stack([keys, mixed[:, split:]], 1)

    def finish(self, x: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """[rows, hidden] after the output projection and the feed-forward half."""
        x = torch.addmm(x, attended, self.out)
        hidden = torch.mm(unit_rows(x), self.gate_up)
        gate, up = hidden.chunk(2, 1)
        return torch.addmm(x, F.silu(gate).mul_(up), self.down)
