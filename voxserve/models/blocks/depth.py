"""The depth transformer: the codes of one frame, one after another, on a context of that frame.

Position 0 is the backbone's hidden state, position 1 the first code, and so on; the logits at
position i choose code i. The context is cleared with every frame, so it is scratch memory of the
step, not state.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from voxserve.kernels.depth_attention import depth_attention
from voxserve.kernels.fused_linear import linear_residual, norm_gate_up, norm_linear
from voxserve.kernels.rms_norm import rms_norm
from voxserve.kernels.rope import rope_table
from voxserve.models.blocks.transformer import LayerWeights, TransformerShape

Draw = Callable[[torch.Tensor, int, torch.Tensor | None, torch.Tensor | None], None]


class DepthTransformer:
    """Layers, one head and one input table per codebook.

    Args:
        shape: Sizes.
        layers: Weights.
        final_norm: [hidden].
        heads: Logits of codebook 1, 2, ...: [codes, hidden] each.
        tables: Input rows of codebook 0, 1, ... (one per head): [codes, hidden] each, projected
            to this transformer's width.
        projection: Weight [hidden, backbone hidden] and bias of the first input, or None where
            the widths are equal.
    """

    def __init__(
        self,
        shape: TransformerShape,
        layers: tuple[LayerWeights, ...],
        final_norm: torch.Tensor,
        heads: tuple[torch.Tensor, ...],
        tables: tuple[torch.Tensor, ...],
        projection: tuple[torch.Tensor, torch.Tensor | None] | None,
    ) -> None:
        assert len(heads) == len(tables), "a code is fed back for every head"
        self.shape, self.layers, self.final_norm = shape, layers, final_norm
        self.heads, self.tables, self.projection = heads, tables, projection
        self.rope = rope_table(len(heads) + 1, shape.head_dim, shape.rope_theta, final_norm.device)

    def frame(self, hidden: torch.Tensor, first: torch.Tensor, draw: Draw) -> None:
        """Draws the codes behind the first one.

        Args:
            hidden: [rows, backbone hidden] behind the backbone's final norm.
            first: [rows, hidden]: `tables[0]` row of the first code.
            draw: Called as draw(logits, codebook, next_table, next_rows); it draws and stores the
                codes and puts their rows of next_table, if given, into next_rows.
        """
        rows = hidden.shape[0]
        if self.projection is not None:
            hidden = F.linear(hidden, *self.projection)
        caches = self._caches(hidden)
        last = self._first_pass(torch.stack((hidden, first), 1), caches)
        x = torch.empty((rows, self.shape.hidden), dtype=hidden.dtype, device=hidden.device)
        for codebook, head in enumerate(self.heads, 1):
            if codebook > 1:
                last = self._step(x, caches, codebook)
            logits = F.linear(rms_norm(last, self.final_norm, self.shape.norm_eps), head)
            is_last = codebook == len(self.heads)
            table = None if is_last else self.tables[codebook]
            # NOTE: `last` may be `x` itself; its logits are computed before `x` is overwritten.
            draw(logits, codebook, table, None if is_last else x)

    def _caches(self, like: torch.Tensor) -> torch.Tensor:
        shape = self.shape
        size = (shape.num_layers, like.shape[0], 2, shape.num_kv_heads)
        capacity = len(self.heads) + 1
        return torch.empty((*size, capacity, shape.head_dim), dtype=like.dtype, device=like.device)

    def _first_pass(self, pair: torch.Tensor, caches: torch.Tensor) -> torch.Tensor:
        """Positions 0 and 1 together, [rows, 2, hidden]; returns position 1, [rows, hidden]."""
        eps, rows = self.shape.norm_eps, pair.shape[0]
        x = pair.view(rows * 2, -1)
        for index, layer in enumerate(self.layers):
            qkv = norm_linear(x, layer.attention_norm, layer.qkv, eps).view(rows, 2, -1)
            mixed = [self._attend(qkv[:, i], layer, caches[index], i) for i in (0, 1)]
            if index == len(self.layers) - 1:  # position 0 only left its keys and values
                return self._finish(mixed[1], layer, x.view(rows, 2, -1)[:, 1].contiguous())
            x = self._finish(torch.stack(mixed, 1).view(rows * 2, -1), layer, x)
        raise AssertionError("a transformer has layers")

    def _step(self, x: torch.Tensor, caches: torch.Tensor, position: int) -> torch.Tensor:
        for index, layer in enumerate(self.layers):
            qkv = norm_linear(x, layer.attention_norm, layer.qkv, self.shape.norm_eps)
            x = self._finish(self._attend(qkv, layer, caches[index], position), layer, x)
        return x

    def _attend(
        self, qkv: torch.Tensor, layer: LayerWeights, cache: torch.Tensor, position: int
    ) -> torch.Tensor:
        norms = layer.q_norm, layer.k_norm
        return depth_attention(qkv, *norms, self.rope, cache, position, self.shape.norm_eps)

    def _finish(self, mixed: torch.Tensor, layer: LayerWeights, x: torch.Tensor) -> torch.Tensor:
        x = linear_residual(mixed, layer.out, x)
        gated = norm_gate_up(x, layer.mlp_norm, layer.gate_up, self.shape.norm_eps)
        return linear_residual(gated, layer.down, x)
