"""Rotary position table, and the reference of per-head norm plus rotation used by attention ops."""

from __future__ import annotations

import torch

from voxserve.kernels.rms_norm import rms_norm_reference


def rope_table(
    num_positions: int, head_dim: int, theta: float, device: torch.device | str = "cpu"
) -> torch.Tensor:
    """Builds the half-split rotary table.

    Args:
        num_positions: rows of the table.
        head_dim: width of one head, even.
        theta: base of the rotation frequencies.
        device: where the table lives.

    Returns:
        `[num_positions, head_dim]` float32: `head_dim / 2` cosines, then as many sines.
    """
    powers = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    angles = torch.outer(torch.arange(num_positions, dtype=torch.float32), theta**-powers)
    return torch.cat((angles.cos(), angles.sin()), -1).to(device)


def norm_rope_reference(
    heads: torch.Tensor,
    weight: torch.Tensor | None,
    table: torch.Tensor,
    positions: torch.Tensor,
    eps: float,
) -> torch.Tensor:
    """Normalises each head (if `weight` is given) and rotates it to its position.

    Args:
        heads: `[n, num_heads, head_dim]`.
        weight: `[head_dim]`, or None for no norm.
        table: from `rope_table`.
        positions: `[n]` integer.
        eps: the norm's epsilon.

    Returns:
        `[n, num_heads, head_dim]` of `heads`' type.
    """
    normed = heads if weight is None else rms_norm_reference(heads, weight, eps)
    wide = normed.to(torch.promote_types(heads.dtype, torch.float32))
    cos, sin = table[positions.long()][:, None].to(wide.dtype).chunk(2, -1)
    first, second = wide.chunk(2, -1)
    rotated = torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
    return rotated.to(heads.dtype)
