"""Matrix products of the decode step with the pointwise work around them inside.

Weights are `[out, in]` as checkpoints have them. `norm_linear` and `norm_gate_up` normalise
their input on the way in; `linear_residual` adds into the residual stream on the way out.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from voxserve.kernels.backend import use_reference
from voxserve.kernels.linear_kernel import LinearTile, launch_linear
from voxserve.kernels.rms_norm import rms_norm, rms_norm_reference
from voxserve.kernels.silu_mul import silu_mul, silu_mul_reference


def fold_norm(weight: torch.Tensor, norm_weight: torch.Tensor) -> torch.Tensor:
    """Folds a norm's scale into the product behind it, so that the product's norm_weight is None.

    Args:
        weight: `[out, in]`.
        norm_weight: `[in]`.

    Returns:
        `[out, in]` of `weight`'s type, multiplied in float32 and rounded once.
    """
    return (weight.float() * norm_weight.float()).to(weight.dtype)


def linear_tile(rows: int, inputs: int, outputs: int, kind: str) -> LinearTile | None:
    """Chooses a program shape, or None where the vendor's library is faster.

    Source: the fastest of 3 to 7 shapes and of the library for each product of a 1.7 B backbone
    and its depth transformer at 1, 64, 128 and 256 rows on an H200.

    Args:
        rows: rows of the batch.
        inputs: width of a row.
        outputs: width of the result.
        kind: `gated` or `residual`.
    """
    if inputs % 512 or outputs < 1024 or rows > 64:
        return None
    if kind == "gated":
        return LinearTile(16, 32, 256, 4, 3) if rows <= 16 else None
    return LinearTile(16 if rows <= 16 else 64, 32, 128, 4, 4, split=4)


def norm_linear_reference(
    x: torch.Tensor, norm_weight: torch.Tensor | None, weight: torch.Tensor, eps: float
) -> torch.Tensor:
    """Plain torch: norm, then product."""
    return F.linear(rms_norm_reference(x, norm_weight, eps), weight)


def norm_linear(
    x: torch.Tensor, norm_weight: torch.Tensor | None, weight: torch.Tensor, eps: float = 1e-6
) -> torch.Tensor:
    """Returns `rms_norm(x) @ weight.T`.

    Args:
        x: `[rows, in]`.
        norm_weight: `[in]`, or None when folded into `weight` (`fold_norm`).
        weight: `[out, in]`.
        eps: the norm's epsilon.

    Returns:
        `[rows, out]`.
    """
    if use_reference(x):
        return norm_linear_reference(x, norm_weight, weight, eps)
    return F.linear(rms_norm(x, norm_weight, eps), weight)


def logits_linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """`x @ weight.T` whose sums are not rounded to the inputs' type.

    The largest of a few thousand logits lie close together: rounded to bfloat16, every 200th best
    code is another one, and ties become common.

    Args:
        x: `[rows, in]`.
        weight: `[out, in]`.

    Returns:
        `[rows, out]` float32; of the inputs' type where that is wider.
    """
    if x.dtype in (torch.float32, torch.float64):
        return F.linear(x, weight)
    if not x.is_cuda:
        return F.linear(x.float(), weight.float())
    return torch.mm(x, weight.T, out_dtype=torch.float32)


def logits_before_norm(
    x: torch.Tensor, norm_weight: torch.Tensor | None, weight: torch.Tensor, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """`linear_before_norm` with float32 sums (see `logits_linear`)."""
    if norm_weight is None and not use_reference(x):
        return logits_linear(x, weight), x
    return logits_linear(rms_norm(x, norm_weight, eps), weight), None


def linear_before_norm(
    x: torch.Tensor, norm_weight: torch.Tensor | None, weight: torch.Tensor, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """`norm_linear` that may leave the division by the root mean square to what reads its result.

    A norm kernel in front of a product costs a launch; the reader has each row at hand anyway.

    Args:
        x: `[rows, in]`, contiguous.
        norm_weight: `[in]`, or None when folded into `weight` (`fold_norm`).
        weight: `[out, in]`.
        eps: the norm's epsilon.

    Returns:
        `[rows, out]`, and `x` if its rows must still be divided by the root mean square of `x`'s
        (the `unscaled` argument of the attention ops, `silu_mul` and `sample`), else None.
    """
    if norm_weight is None and not use_reference(x):
        return F.linear(x, weight), x
    return norm_linear(x, norm_weight, weight, eps), None


def norm_gate_up_reference(
    x: torch.Tensor, norm_weight: torch.Tensor | None, gate_up: torch.Tensor, eps: float
) -> torch.Tensor:
    """Plain torch: norm, product, gated activation."""
    return silu_mul_reference(norm_linear_reference(x, norm_weight, gate_up, eps))


def norm_gate_up(
    x: torch.Tensor, norm_weight: torch.Tensor | None, gate_up: torch.Tensor, eps: float = 1e-6
) -> torch.Tensor:
    """Returns `silu(h @ gate.T) * (h @ up.T)` with `h = rms_norm(x)`.

    Args:
        x: `[rows, in]`.
        norm_weight: `[in]`, or None when folded into `gate_up`.
        gate_up: `[2 * ffn, in]`, the gate's rows first.
        eps: the norm's epsilon.

    Returns:
        `[rows, ffn]`.
    """
    if use_reference(x):
        return norm_gate_up_reference(x, norm_weight, gate_up, eps)
    tile = linear_tile(x.shape[0], x.shape[1], gate_up.shape[0] // 2, "gated")
    if tile is not None and norm_weight is None:
        return launch_linear(x, gate_up, tile, norm=True, gated=True, eps=eps)
    if norm_weight is None:
        return silu_mul(F.linear(x, gate_up), x, eps)
    return silu_mul(F.linear(rms_norm(x, norm_weight, eps), gate_up))


def linear_residual(x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    """Adds `x @ weight.T` to `residual` in place and returns it.

    Args:
        x: `[rows, in]`.
        weight: `[out, in]`.
        residual: `[rows, out]`, updated in place.

    Returns:
        `residual`.
    """
    if not use_reference(x):
        tile = linear_tile(x.shape[0], x.shape[1], weight.shape[0], "residual")
        if tile is not None:
            return launch_linear(x, weight, tile, residual=residual)
    return torch.addmm(residual, x, weight.t(), out=residual)
