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
from voxserve.kernels.fused_linear import (
    linear_before_norm,
    linear_residual,
    logits_before_norm,
    norm_gate_up,
)
from voxserve.kernels.rope import rope_table
from voxserve.models.blocks.transformer import LayerWeights, TransformerShape

Draw = Callable[
    [torch.Tensor, int, torch.Tensor | None, torch.Tensor | None, torch.Tensor | None], None
]


class DepthTransformer:
    """Layers, one head and one input table per codebook.

    Args:
        shape: Sizes.
        layers: Weights.
        final_norm: [hidden], or None when folded into the heads.
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
        final_norm: torch.Tensor | None,
        heads: tuple[torch.Tensor, ...],
        tables: tuple[torch.Tensor, ...],
        projection: tuple[torch.Tensor, torch.Tensor | None] | None,
    ) -> None:
        assert len(heads) == len(tables), "a code is fed back for every head"
        self.shape, self.layers, self.final_norm = shape, layers, final_norm
        self.heads, self.tables, self.projection = heads, tables, projection
        self.rope = rope_table(len(heads) + 1, shape.head_dim, shape.rope_theta, heads[0].device)

    def frame(self, hidden: torch.Tensor, first: torch.Tensor, draw: Draw) -> None:
        """Draws the codes behind the first one.

        Args:
            hidden: [rows, backbone hidden] behind the backbone's final norm.
            first: [rows, hidden]: `tables[0]` row of the first code.
            draw: Called as draw(logits, codebook, next_table, next_rows, unscaled); it draws and
                stores the codes and puts their rows of next_table, if given, into next_rows. The
                logits must still be divided by the root mean square of `unscaled`, if given.
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
            eps = self.shape.norm_eps
            logits, unscaled = logits_before_norm(last, self.final_norm, head, eps)
            is_last = codebook == len(self.heads)
            table = None if is_last else self.tables[codebook]
            # NOTE: `last` may be `x` itself; a row of it is read before it is overwritten.
            draw(logits, codebook, table, None if is_last else x, unscaled)

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
            qkv, unscaled = linear_before_norm(x, layer.attention_norm, layer.qkv, eps)
            pairs = qkv.view(rows, 2, -1)
            mixed: list[torch.Tensor] = []
            for i in (0, 1):
                rest = None if unscaled is None else unscaled.view(rows, 2, -1)[:, i]
                mixed.append(self._attend(pairs[:, i], layer, caches[index], i, rest))
            if index == len(self.layers) - 1:  # position 0 only left its keys and values
                return self._finish(mixed[1], layer, x.view(rows, 2, -1)[:, 1].contiguous())
            x = self._finish(torch.stack(mixed, 1).view(rows * 2, -1), layer, x)
        raise AssertionError("a transformer has layers")

    def _step(self, x: torch.Tensor, caches: torch.Tensor, position: int) -> torch.Tensor:
        for index, layer in enumerate(self.layers):
            eps = self.shape.norm_eps
            qkv, unscaled = linear_before_norm(x, layer.attention_norm, layer.qkv, eps)
            mixed = self._attend(qkv, layer, caches[index], position, unscaled)
            x = self._finish(mixed, layer, x)
        return x

    def _attend(
        self,
        qkv: torch.Tensor,
        layer: LayerWeights,
        cache: torch.Tensor,
        position: int,
        unscaled: torch.Tensor | None,
    ) -> torch.Tensor:
        norms = layer.q_norm, layer.k_norm
        eps = self.shape.norm_eps
        return depth_attention(qkv, *norms, self.rope, cache, position, eps, unscaled)

    def _finish(self, mixed: torch.Tensor, layer: LayerWeights, x: torch.Tensor) -> torch.Tensor:
        x = linear_residual(mixed, layer.out, x)
        gated = norm_gate_up(x, layer.mlp_norm, layer.gate_up, self.shape.norm_eps)
        return linear_residual(gated, layer.down, x)
