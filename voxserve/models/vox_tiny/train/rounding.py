"""Rounds weights to 8 bits as the small file stores them, with gradients passed straight through.

Rounding is off until the last part of a training; then the model learns weights that stand it.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

LARGEST = 127


def row_scales(weight: torch.Tensor) -> torch.Tensor:
    """[..., 1] factor of each row, as fp16 holds it."""
    scales = weight.abs().amax(-1, keepdim=True) / LARGEST
    return scales.clamp(min=2.0**-20).half().to(weight.dtype)


def rounded(weight: torch.Tensor) -> torch.Tensor:
    """The weight as int8 times a factor per row; gradients are the unrounded weight's."""
    with torch.no_grad():
        scales = row_scales(weight)
        stored = torch.round(weight / scales).clamp(-LARGEST, LARGEST) * scales
    return weight + (stored - weight).detach()


class RoundedLinear(nn.Linear):
    """A linear layer that can round its matrix."""

    is_rounded = False

    def __init__(self, inputs: int, outputs: int, bias: bool = False) -> None:
        super().__init__(inputs, outputs, bias)
        if bias:
            nn.init.zeros_(self.bias)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """[..., outputs]."""
        weight = rounded(self.weight) if self.is_rounded else self.weight
        return F.linear(input, weight, self.bias)


class RoundedEmbedding(nn.Embedding):
    """A table that can round its rows."""

    is_rounded = False

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """[..., width]."""
        weight = rounded(self.weight) if self.is_rounded else self.weight
        return F.embedding(input, weight)


def set_rounding(model: nn.Module, is_rounded: bool) -> None:
    """Switches rounding of every matrix of a model."""
    for module in model.modules():
        if isinstance(module, RoundedLinear | RoundedEmbedding):
            module.is_rounded = is_rounded
