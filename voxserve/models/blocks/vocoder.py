"""The upsampling half of a convolutional codec: ConvNeXt stages, then a DAC-style snake decoder.

Channels-last throughout. Each stateful convolution reads a padded buffer (`conv_state`): its
producer writes behind the history, which was gathered before the first stage and is scattered
after the last. A stage says which buffers it needs, in order, and takes as many of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from voxserve.kernels.causal_conv import causal_conv, conv_weight, transposed_weight
from voxserve.kernels.conv_state import ConvInput
from voxserve.kernels.depthwise_norm import depthwise_norm
from voxserve.kernels.residual_unit import ResidualUnitWeights, residual_unit
from voxserve.kernels.snake import snake_params
from voxserve.models.blocks.weights import WeightSource


@dataclass(frozen=True, slots=True)
class Buffer:
    """One convolution's input.

    Attributes:
        view: [rows, history + frames, channels].
        body: Its part behind the history, where the producer writes.
    """

    view: torch.Tensor
    body: torch.Tensor


class UpsampleConvNeXt:
    """Transposed convolution of kernel = stride, then a ConvNeXt block.

    Args:
        get: Source of tensors.
        prefix: Of the pair (`.0` and `.1` follow).
        stride: Upsampling factor.
        rate: Positions per codec frame after upsampling.
    """

    def __init__(self, get: WeightSource, prefix: str, stride: int, rate: int) -> None:
        block = f"{prefix}1."
        self.up = transposed_weight(get(f"{prefix}0.conv.weight"), stride)
        self.up_bias = get(f"{prefix}0.conv.bias").repeat(stride)
        self.taps = get(f"{block}dwconv.conv.weight")[:, 0].T.contiguous()
        self.taps_bias = get(f"{block}dwconv.conv.bias")
        self.norm = get(f"{block}norm.weight"), get(f"{block}norm.bias")
        self.wide = get(f"{block}pwconv1.weight").T[None].contiguous()
        self.wide_bias = get(f"{block}pwconv1.bias")
        gamma = get(f"{block}gamma")
        self.narrow = (get(f"{block}pwconv2.weight") * gamma[:, None]).T[None].contiguous()
        self.narrow_bias = get(f"{block}pwconv2.bias") * gamma
        channels = self.taps.shape[1]
        self.needs = (ConvInput(history=self.taps.shape[0] - 1, channels=channels, rate=rate),)

    def run(self, x: torch.Tensor, buffer: Buffer, out: torch.Tensor | None) -> torch.Tensor:
        """[rows, frames, channels] to [rows, frames * stride, channels], into `out` if given."""
        rows, frames, _ = x.shape
        causal_conv(x, self.up, self.up_bias, out=buffer.body.view(rows, frames, -1))
        normed = depthwise_norm(buffer.view, self.taps, self.taps_bias, *self.norm)
        hidden, _ = causal_conv(normed, self.wide, self.wide_bias, gelu=True)
        assert hidden is not None, "without a snake there is a plain output"
        result, _ = causal_conv(
            hidden, self.narrow, self.narrow_bias, residual=buffer.body, out=out
        )
        assert result is not None, "without a snake there is a plain output"
        return result


class SnakeBlock:
    """Transposed convolution (kernel = 2 * stride, right side trimmed) and residual units.

    The snakes sit between convolutions, so each producer applies the one its consumer needs.

    Args:
        get: Source of tensors.
        prefix: Of the block's list (`0` snake, `1` transposed, `2...` units).
        stride: Upsampling factor.
        dilations: Of the units' first convolutions.
        rate: Positions per codec frame before upsampling.
    """

    def __init__(
        self, get: WeightSource, prefix: str, stride: int, dilations: tuple[int, ...], rate: int
    ) -> None:
        weight = get(f"{prefix}1.conv.weight")
        self.first_snake = _snake(get, f"{prefix}0")
        self.up = transposed_weight(weight, stride)
        self.up_bias = get(f"{prefix}1.conv.bias").repeat(stride)
        self.units = tuple(
            _residual_unit(get, f"{prefix}{index}.", dilation)
            for index, dilation in enumerate(dilations, 2)
        )
        self.unit_snakes = tuple(
            _snake(get, f"{prefix}{index}.act1") for index in range(2, 2 + len(dilations))
        )
        # The transposed convolution computes `stride` positions at once: so does its snake.
        self.up_snake = self.unit_snakes[0].repeat(1, stride)
        self.needs = (
            ConvInput(history=1, channels=weight.shape[0], rate=rate),
            *(
                ConvInput(
                    history=(unit.conv1.shape[0] - 1) * unit.dilation,
                    channels=weight.shape[1],
                    rate=rate * stride,
                )
                for unit in self.units
            ),
        )

    def run(self, buffers: tuple[Buffer, ...], next_snake: torch.Tensor, out: torch.Tensor) -> None:
        """Reads its first buffer (already activated) and writes the activated result to `out`."""
        source, *inputs = buffers
        rows, frames, _ = source.body.shape
        first = inputs[0].body
        x = torch.empty(first.shape, dtype=first.dtype, device=first.device)
        causal_conv(
            *(source.view, self.up, self.up_bias),
            snake=self.up_snake,
            out=x.view(rows, frames, -1),
            snake_out=first.view(rows, frames, -1),
        )
        snakes = (*self.unit_snakes[1:], next_snake)
        targets = (*(item.body for item in inputs[1:]), out)
        last = len(self.units) - 1
        for index, (unit, snake, target) in enumerate(
            zip(self.units, snakes, targets, strict=True)
        ):
            activated = inputs[index].view
            plain = None if index == last else x
            residual_unit(x, activated, unit, snake, out=plain, snake_out=target)


def _snake(get: WeightSource, prefix: str) -> torch.Tensor:
    return snake_params(get(f"{prefix}.alpha"), get(f"{prefix}.beta"))


def _residual_unit(get: WeightSource, prefix: str, dilation: int) -> ResidualUnitWeights:
    return ResidualUnitWeights(
        conv1=conv_weight(get(f"{prefix}conv1.conv.weight")),
        bias1=get(f"{prefix}conv1.conv.bias"),
        dilation=dilation,
        snake2=_snake(get, f"{prefix}act2"),
        conv2=conv_weight(get(f"{prefix}conv2.conv.weight")),
        bias2=get(f"{prefix}conv2.conv.bias"),
    )
