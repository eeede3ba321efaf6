"""A streaming codec's causal transformer: sliding window, layer scales, a ring of keys per slot."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from voxserve.kernels.fused_linear import linear_before_norm, linear_residual, norm_gate_up
from voxserve.kernels.rms_norm import rms_norm
from voxserve.kernels.rope import rope_table
from voxserve.kernels.window_attention import window_attention
from voxserve.models.blocks.transformer import LayerWeights, TransformerShape

Linear = tuple[torch.Tensor, torch.Tensor]


class WindowTransformer:
    """Layers between an input and an output projection; no head norms, as many kv heads as heads.

    Args:
        shape: Sizes.
        layers: Weights, layer scales folded into the matrices that end each half.
        final_norm: [hidden].
        project_in, project_out: Weight [out, in] and bias [out].
        window: Positions a query sees, itself included.
        max_positions: Rows of the rotary table.
    """

    def __init__(
        self,
        shape: TransformerShape,
        layers: tuple[LayerWeights, ...],
        final_norm: torch.Tensor,
        project_in: Linear,
        project_out: Linear,
        window: int,
        max_positions: int,
    ) -> None:
        self.shape, self.layers, self.final_norm = shape, layers, final_norm
        self.project_in, self.project_out, self.window = project_in, project_out, window
        self.rope = rope_table(max_positions, shape.head_dim, shape.rope_theta, final_norm.device)

    def new_rings(self, num_slots: int, max_frames: int) -> torch.Tensor:
        """Rings for `num_slots` slots and chunks of at most `max_frames` frames.

        Returns:
            [layers, slots, 2, heads, window - 1 + max_frames, head_dim] zeros.
        """
        shape = self.shape
        size = (shape.num_layers, num_slots, 2, shape.num_kv_heads)
        like = self.final_norm
        ring = self.window - 1 + max_frames
        return torch.zeros((*size, ring, shape.head_dim), dtype=like.dtype, device=like.device)

    def run(
        self, x: torch.Tensor, rings: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor
    ) -> torch.Tensor:
        """Transforms one chunk per row.

        Args:
            x: [rows, frames, in].
            rings: From `new_rings`.
            slots: [rows] int32.
            positions: [slots] int32, frames decoded before.

        Returns:
            [rows, frames, out].
        """
        rows, frames, _ = x.shape
        eps = self.shape.norm_eps
        x = F.linear(x.flatten(0, 1), *self.project_in)
        for index, layer in enumerate(self.layers):
            qkv, unscaled = linear_before_norm(x, layer.attention_norm, layer.qkv, eps)
            mixed = window_attention(
                *(qkv.view(rows, frames, -1), self.rope, rings[index], slots, positions),
                *(self.window, None if unscaled is None else unscaled.view(rows, frames, -1), eps),
            )
            x = linear_residual(mixed.flatten(0, 1), layer.out, x)
            gated = norm_gate_up(x, layer.mlp_norm, layer.gate_up, eps)
            x = linear_residual(gated, layer.down, x)
        x = F.linear(rms_norm(x, self.final_norm, eps), *self.project_out)
        return x.view(rows, frames, -1)
