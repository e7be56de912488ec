"""Convolution layers: Conv2d, ConvTranspose2d."""

from __future__ import annotations

import math

from alpha import Tensor
from alpha import functions as F
from alpha.errors import ArgumentError
from nn import init
from nn.arguments import Size, empty_parameter, pair, positive
from nn.module import Module
from nn.parameter import Parameter


class _Conv(Module):
    """What both convolutions share: sizes, weight, bias, initialisation."""

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size,
        dilation: Size,
        groups: int,
        bias: bool,
        transposed: bool,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        self.in_channels = positive(in_channels, "in_channels", name)
        self.out_channels = positive(out_channels, "out_channels", name)
        self.kernel_size = pair(kernel_size, "kernel_size", name)
        self.stride = pair(stride, "stride", name)
        self.dilation = pair(dilation, "dilation", name)
        self.groups = positive(groups, "groups", name)
        if in_channels % groups or out_channels % groups:
            raise ArgumentError(
                f"[{name}] expected groups that divide in_channels and out_channels, got groups={groups}, "
                f"in_channels={in_channels} and out_channels={out_channels}"
            )
        first, last = (in_channels, out_channels) if transposed else (out_channels, in_channels)
        self.weight = empty_parameter(first, *self.kernel_size, last // groups)
        self.bias = empty_parameter(out_channels) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the weight kaiming-uniform with a = sqrt(5), and the bias uniform on ±1/sqrt(fan_in)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(init.fans(self.weight)[0])
            init.uniform_(self.bias, -bound, bound)

    def _repr(self, padding: object, output_padding: tuple[int, int] = (0, 0)) -> str:
        parts = [f"{self.in_channels}, {self.out_channels}", f"kernel_size={self.kernel_size}", f"stride={self.stride}"]
        parts += [f"padding={padding}"] if padding != (0, 0) else []
        parts += [f"output_padding={output_padding}"] if output_padding != (0, 0) else []
        parts += [f"dilation={self.dilation}"] if self.dilation != (1, 1) else []
        parts += [f"groups={self.groups}"] if self.groups != 1 else []
        parts += ["bias=False"] if self.bias is None else []
        return ", ".join(parts)


class Conv2d(_Conv):
    """Convolution of images (N, H, W, in_channels) to (N, OH, OW, out_channels); see ``functional.conv2d``.

    ``weight`` is (out_channels, FH, FW, in_channels / groups), ``bias`` (out_channels,). Sizes are one number or
    (rows, columns).

    Args:
        in_channels: channels of the input.
        out_channels: channels of the result.
        kernel_size: the filter's size.
        stride: step from one output position to the next.
        padding: rows and columns of zeros on each side; ``"valid"`` is 0; ``"same"`` keeps H and W, for stride 1 and
            filters whose extent is odd.
        dilation: step from one tap of the filter to the next.
        groups: independent convolutions side by side, each over its share of the channels.
        bias: whether a bias is learned.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size | str = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, dilation, groups, bias, transposed=False)
        self.padding = self._padding(padding)

    def _padding(self, padding: Size | str) -> tuple[int, int]:
        if not isinstance(padding, str):
            return pair(padding, "padding", "Conv2d", least=0)
        if padding == "valid":
            return 0, 0
        if padding != "same":
            raise ArgumentError(f'[Conv2d] expected padding as numbers, "same" or "valid", got {padding!r}')
        extents = [(k - 1) * d for k, d in zip(self.kernel_size, self.dilation, strict=True)]
        if self.stride != (1, 1) or any(extent % 2 for extent in extents):
            raise ArgumentError(
                '[Conv2d] expected stride 1 and an odd (kernel_size - 1) * dilation + 1 for padding="same", got '
                f"stride={self.stride}, kernel_size={self.kernel_size} and dilation={self.dilation}: give the padding "
                "in numbers"
            )
        return extents[0] // 2, extents[1] // 2

    def forward(self, x: Tensor) -> Tensor:
        """(N, H, W, in_channels) to (N, OH, OW, out_channels)."""
        return F.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)

    def extra_repr(self) -> str:
        return self._repr(self.padding)


class ConvTranspose2d(_Conv):
    """Transposed convolution of (N, H, W, in_channels), the input gradient of a Conv2d taken forward.

    The result's size is (H - 1) * stride - 2 * padding + (FH - 1) * dilation + 1 + output_padding. ``weight`` is
    (in_channels, FH, FW, out_channels / groups), ``bias`` (out_channels,).

    Args:
        in_channels: channels of the input.
        out_channels: channels of the result.
        kernel_size: the filter's size.
        stride: step in the result from one input position to the next.
        padding: rows and columns taken off each side of the result.
        output_padding: rows and columns added at the result's end; less than stride or dilation.
        groups: independent convolutions side by side, each over its share of the channels.
        bias: whether a bias is learned.
        dilation: step from one tap of the filter to the next.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        output_padding: Size = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Size = 1,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, dilation, groups, bias, transposed=True)
        self.padding = pair(padding, "padding", "ConvTranspose2d", least=0)
        self.output_padding = pair(output_padding, "output_padding", "ConvTranspose2d", least=0)

    def forward(self, x: Tensor) -> Tensor:
        """(N, H, W, in_channels) to (N, OH, OW, out_channels)."""
        return F.conv_transpose2d(
            x, self.weight, self.bias, self.stride, self.padding, self.output_padding, self.groups, self.dilation
        )

    def extra_repr(self) -> str:
        return self._repr(self.padding, self.output_padding)
