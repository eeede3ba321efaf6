"""Residual vector quantisation, decoding side: codes to the codec's first activations."""

from __future__ import annotations

import torch


def codebook(embedding_sum: torch.Tensor, usage: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    """Entries of a codebook kept as running sums.

    Args:
        embedding_sum: [codes, width].
        usage: [codes], how often each entry was used.
        eps: Least usage.

    Returns:
        [codes, width] float32 (float64 stays).
    """
    wide = torch.promote_types(embedding_sum.dtype, torch.float32)
    return embedding_sum.to(wide) / usage.to(wide).clamp(min=eps)[:, None]


def projected_codebook(
    embedding_sum: torch.Tensor, usage: torch.Tensor, projection: torch.Tensor
) -> torch.Tensor:
    """Entries already projected out of the quantiser's space, which is linear: sums stay sums.

    Args:
        embedding_sum: [codes, width].
        usage: [codes].
        projection: [out, width, 1], a pointwise convolution without bias.

    Returns:
        [codes, out] of `embedding_sum`'s type.
    """
    entries = codebook(embedding_sum, usage)
    return (entries @ projection[:, :, 0].to(entries.dtype).T).to(embedding_sum.dtype)
