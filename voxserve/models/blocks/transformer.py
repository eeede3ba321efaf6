"""The decoder-only backbone: RMS norm, grouped attention with optional head norms, SwiGLU.

Written on the room of kernels, so the same program runs through plain torch on a CPU and through
fused kernels on a GPU. A cache holds the context of every slot in pages; rows and packed prompt
tokens name their slots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from voxserve.kernels.decode_attention import decode_attention
from voxserve.kernels.fused_linear import (
    fold_norm,
    linear_before_norm,
    linear_residual,
    norm_gate_up,
)
from voxserve.kernels.kv_cache import PAGE_SIZE, qk_norm_rope_write
from voxserve.kernels.prefill_attention import prefill_attention
from voxserve.kernels.rms_norm import rms_norm
from voxserve.kernels.rope import rope_table
from voxserve.models.blocks.weights import WeightSource


@dataclass(frozen=True, slots=True)
class TransformerShape:
    """Sizes and constants of a transformer.

    Attributes:
        num_layers, hidden, ffn, num_heads, num_kv_heads, head_dim: Sizes.
        rope_theta: Base of the rotation.
        norm_eps: Added to mean squares.
        has_head_norms: Queries and keys are normalised per head.
    """

    num_layers: int
    hidden: int
    ffn: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope_theta: float
    norm_eps: float
    has_head_norms: bool = True

    def layer_shapes(self, prefix: str) -> dict[str, tuple[int, ...]]:
        """Checkpoint names and shapes of all layers and the final norm, as `layers.N...`."""
        q_width, kv_width = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        layer = {
            "self_attn.q_proj.weight": (q_width, self.hidden),
            "self_attn.k_proj.weight": (kv_width, self.hidden),
            "self_attn.v_proj.weight": (kv_width, self.hidden),
            "self_attn.o_proj.weight": (self.hidden, q_width),
            "mlp.gate_proj.weight": (self.ffn, self.hidden),
            "mlp.up_proj.weight": (self.ffn, self.hidden),
            "mlp.down_proj.weight": (self.hidden, self.ffn),
            "input_layernorm.weight": (self.hidden,),
            "post_attention_layernorm.weight": (self.hidden,),
        }
        if self.has_head_norms:
            layer["self_attn.q_norm.weight"] = (self.head_dim,)
            layer["self_attn.k_norm.weight"] = (self.head_dim,)
        shapes = {
            f"{prefix}layers.{index}.{name}": shape
            for index in range(self.num_layers)
            for name, shape in layer.items()
        }
        return shapes | {f"{prefix}norm.weight": (self.hidden,)}


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer, as the kernels read it: matrices are [out, in].

    Attributes:
        attention_norm, mlp_norm: [hidden], or None when folded into the matrix behind it.
        qkv: [(heads + 2 * kv_heads) * head_dim, hidden].
        q_norm, k_norm: [head_dim] or None.
        out: [hidden, heads * head_dim].
        gate_up: [2 * ffn, hidden], gate first.
        down: [hidden, ffn].
    """

    attention_norm: torch.Tensor | None
    qkv: torch.Tensor
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    out: torch.Tensor
    mlp_norm: torch.Tensor | None
    gate_up: torch.Tensor
    down: torch.Tensor


def layer_weights(
    get: WeightSource,
    prefix: str,
    shape: TransformerShape,
    scale_out: Callable[[str, torch.Tensor], torch.Tensor] = lambda _part, weight: weight,
) -> tuple[LayerWeights, ...]:
    """Reads all layers under `prefix` and joins what the kernels take as one matrix.

    Args:
        get: Source of tensors.
        prefix: Ends with a dot, or is empty.
        shape: Sizes.
        scale_out: Called with the layer's prefix and "self_attn" or "mlp", and the matrix that
            ends that half (for layer scales).
    """
    layers = []
    for index in range(shape.num_layers):
        name = f"{prefix}layers.{index}."
        attention, mlp = f"{name}self_attn.", f"{name}mlp."
        has_norms = shape.has_head_norms
        layers.append(
            LayerWeights(
                attention_norm=get(f"{name}input_layernorm.weight"),
                qkv=torch.cat([get(f"{attention}{part}_proj.weight") for part in "qkv"]),
                q_norm=get(f"{attention}q_norm.weight") if has_norms else None,
                k_norm=get(f"{attention}k_norm.weight") if has_norms else None,
                out=scale_out(f"{name}self_attn", get(f"{attention}o_proj.weight")),
                mlp_norm=get(f"{name}post_attention_layernorm.weight"),
                gate_up=torch.cat([get(f"{mlp}{part}_proj.weight") for part in ("gate", "up")]),
                down=scale_out(f"{name}mlp", get(f"{mlp}down_proj.weight")),
            )
        )
    return tuple(layers)


def with_folded_norms(layers: tuple[LayerWeights, ...]) -> tuple[LayerWeights, ...]:
    """Folds each norm's scale into the matrix behind it, which spares a kernel a GPU's time."""
    folded = []
    for layer in layers:
        qkv, gate_up = layer.qkv, layer.gate_up
        if layer.attention_norm is not None:
            qkv = fold_norm(qkv, layer.attention_norm)
        if layer.mlp_norm is not None:
            gate_up = fold_norm(gate_up, layer.mlp_norm)
        folded.append(replace(layer, attention_norm=None, qkv=qkv, mlp_norm=None, gate_up=gate_up))
    return tuple(folded)


class PagedCache:
    """Keys and values of all slots, in pages; the last slot and the last page are scratch.

    Args:
        shape: Of the transformer whose context is kept.
        num_slots: Slots without the scratch one.
        num_pages: Pages to share; 0 gives each slot `max_tokens` of its own.
        max_tokens: Longest context of a slot.
        dtype: Of keys and values.
        device: Where they live.

    Attributes:
        pages: [layers, pages + 1, 2, kv_heads, PAGE_SIZE, head_dim].
        table: [slots + 1, max_pages] int32, the pages of each slot in order.
        lengths: [slots + 1] int32, tokens in the cache.
    """

    def __init__(
        self,
        shape: TransformerShape,
        num_slots: int,
        num_pages: int,
        max_tokens: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        per_slot = -(-max_tokens // PAGE_SIZE)
        owned = num_pages == 0
        count = num_slots * per_slot if owned else num_pages
        page = (2, shape.num_kv_heads, PAGE_SIZE, shape.head_dim)
        self.pages = torch.zeros((shape.num_layers, count + 1, *page), dtype=dtype, device=device)
        self.table = torch.full((num_slots + 1, per_slot), count, dtype=torch.int32, device=device)
        self.lengths = torch.zeros(num_slots + 1, dtype=torch.int32, device=device)
        if owned:
            own = torch.arange(count, dtype=torch.int32, device=device)
            self.table[:num_slots] = own.view(num_slots, per_slot)

    def row(self, pages: Sequence[int]) -> NDArray[np.int32]:
        """[max_pages], a slot's row of the table: its pages in order, then the scratch page."""
        row = np.full(self.table.shape[1], self.pages.shape[1] - 1, np.int32)
        row[: len(pages)] = pages
        return row


class Transformer:
    """Layers over a paged cache.

    Args:
        shape: Sizes.
        layers: From `layer_weights`.
        final_norm: [hidden].
        max_positions: Rows of the rotary table.
    """

    def __init__(
        self,
        shape: TransformerShape,
        layers: tuple[LayerWeights, ...],
        final_norm: torch.Tensor,
        max_positions: int,
    ) -> None:
        self.shape, self.layers, self.final_norm = shape, layers, final_norm
        self.rope = rope_table(max_positions, shape.head_dim, shape.rope_theta, final_norm.device)

    def decode(self, x: torch.Tensor, cache: PagedCache, slots: torch.Tensor) -> torch.Tensor:
        """One token per row, at position `cache.lengths[slot]`; the caller advances the lengths.

        Args:
            x: [rows, hidden], overwritten.
            cache: Context.
            slots: [rows] int32.

        Returns:
            [rows, hidden] behind the final norm.
        """
        eps = self.shape.norm_eps
        for index, layer in enumerate(self.layers):
            qkv, unscaled = linear_before_norm(x, layer.attention_norm, layer.qkv, eps)
            mixed = decode_attention(
                *(qkv, layer.q_norm, layer.k_norm, self.rope, cache.pages[index]),
                *(cache.table, cache.lengths, slots, eps, unscaled),
            )
            x = linear_residual(mixed, layer.out, x)
            gated = norm_gate_up(x, layer.mlp_norm, layer.gate_up, eps)
            x = linear_residual(gated, layer.down, x)
        return self.normalise(x)

    def prefill(
        self, x: torch.Tensor, cache: PagedCache, slots: torch.Tensor, positions: torch.Tensor
    ) -> torch.Tensor:
        """Packed prompts.

        Args:
            x: [tokens, hidden], overwritten.
            cache: Context, filled.
            slots: [tokens] int32, each token's slot.
            positions: [tokens] int32.

        Returns:
            [tokens, hidden] before the final norm.
        """
        eps = self.shape.norm_eps
        for index, layer in enumerate(self.layers):
            qkv, unscaled = linear_before_norm(x, layer.attention_norm, layer.qkv, eps)
            pages = cache.pages[index]
            queries = qk_norm_rope_write(
                *(qkv, layer.q_norm, layer.k_norm, self.rope, pages),
                *(cache.table, slots, positions, eps, unscaled),
            )
            mixed = prefill_attention(queries, pages, cache.table, slots, positions)
            x = linear_residual(mixed, layer.out, x)
            gated = norm_gate_up(x, layer.mlp_norm, layer.gate_up, eps)
            x = linear_residual(gated, layer.down, x)
        return x

    def normalise(self, x: torch.Tensor) -> torch.Tensor:
        """The final norm."""
        return rms_norm(x, self.final_norm, self.shape.norm_eps)


def fold_projection(
    table: torch.Tensor, layers: Sequence[tuple[torch.Tensor, torch.Tensor]]
) -> torch.Tensor:
    """A table whose rows are already projected, so that looking one up is all that is left to do.

    Args:
        table: [ids, in].
        layers: Weight [out, in] and bias [out] of one or more linear layers with SiLU between.

    Returns:
        [ids, out] of the table's type; computed in at least float32 and rounded once.
    """
    wide = torch.promote_types(table.dtype, torch.float32)
    layers = [(weight.to(wide), bias.to(wide)) for weight, bias in layers]
    out = table.new_empty((table.shape[0], layers[-1][0].shape[0]))
    for start in range(0, table.shape[0], _FOLD_ROWS):
        rows = F.linear(table[start : start + _FOLD_ROWS].to(wide), *layers[0])
        for layer in layers[1:]:
            rows = F.linear(F.silu(rows), *layer)
        out[start : start + _FOLD_ROWS] = rows
    return out


_FOLD_ROWS = 16384  # bounds the memory of the wide rows
