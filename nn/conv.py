"""Convolution layers of one, two and three axes: Conv1d to Conv3d, ConvTranspose1d to ConvTranspose3d."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

from alpha import Tensor
from alpha import functions as F
from alpha.arguments import flag
from alpha.dtypes import DtypeLike
from alpha.errors import ArgumentError
from alpha.functions.conv import named_padding
from alpha.geometry import Side
from alpha.nn import init
from alpha.nn.arguments import Sizes, choice, positive, several
from alpha.nn.layout import ImageLayer
from alpha.nn.parameter import Parameter
from alpha.nn.places import Device, empty_parameter, placed


class ConvNd(ImageLayer):
    """Base of all convolutions: sizes, weight, bias, initialisation."""

    axes: ClassVar[int]
    function: ClassVar[Callable[..., Any]]
    transposed: ClassVar[bool] = False
    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes,
        dilation: Sizes,
        groups: int,
        bias: bool,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        self.in_channels = positive(in_channels, "in_channels", name)
        self.out_channels = positive(out_channels, "out_channels", name)
        self.kernel_size = several(kernel_size, self.axes, "kernel_size", name)
        self.stride = several(stride, self.axes, "stride", name)
        self.dilation = several(dilation, self.axes, "dilation", name)
        self.groups = groups = positive(groups, "groups", name)
        in_channels, out_channels = self.in_channels, self.out_channels
        bias = flag(name, "bias", bias)
        if in_channels % groups or out_channels % groups:
            raise ArgumentError(
                f"[{name}] expected groups that divide in_channels and out_channels, got groups={groups}, "
                f"in_channels={in_channels} and out_channels={out_channels}"
            )
        first, last = (in_channels, out_channels) if self.transposed else (out_channels, in_channels)
        self.weight = self._filters(first, *self.kernel_size, last // groups)
        self.bias = empty_parameter(out_channels) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the weight kaiming-uniform with a = sqrt(5), and the bias uniform on ±1/sqrt(fan_in)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(init.fans(self.weight)[0])
            init.uniform_(self.bias, -bound, bound)

    @property
    def channels_last_filters(self) -> tuple[str, ...]:
        """Names of the parameters whose channels are last, where PyTorch has them second."""
        return ("weight", "weight_orig") if self.layout == "NHWC" else ()

    def _repr(self, padding: str | tuple[int, ...], output_padding: tuple[int, ...] = ()) -> str:
        parts = [f"{self.in_channels}, {self.out_channels}", f"kernel_size={self.kernel_size}", f"stride={self.stride}"]
        parts += [f"padding={padding}"] if isinstance(padding, str) or any(padding) else []
        parts += [f"output_padding={output_padding}"] if any(output_padding) else []
        parts += [f"dilation={self.dilation}"] if any(d > 1 for d in self.dilation) else []
        parts += [f"groups={self.groups}"] if self.groups != 1 else []
        parts += ["bias=False"] if self.bias is None else []
        return ", ".join(parts)


class PlainConvNd(ConvNd):
    """Base of the convolutions that are not transposed."""

    padding: str | tuple[int, ...]

    @placed
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Device = None,
        dtype: DtypeLike = None,
        *,
        layout: str | None = None,
    ) -> None:
        self._set_layout(layout)
        super().__init__(in_channels, out_channels, kernel_size, stride, dilation, groups, bias)
        name = type(self).__name__
        self.padding_mode = choice(padding_mode, ("zeros", "reflect", "replicate", "circular"), "padding_mode", name)
        sides: tuple[Side, ...]
        if isinstance(padding, str):
            sides = named_padding(name, padding, self.kernel_size, self.stride, self.dilation)
            self.padding = padding
        else:
            sides = self.padding = several(padding, self.axes, "padding", name, least=0)
        pairs = [side if isinstance(side, tuple) else (side, side) for side in sides]
        self._around = tuple(n for pair in reversed(pairs) for n in pair)

    def forward(self, x: Tensor) -> Tensor:
        """(N, ..., in_channels) to (N, ..., out_channels); one sample without the axis of the batch too."""
        x, padding = self.padded(x)
        found: Tensor = self.function(
            x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups, layout=self.layout
        )
        return found

    def padded(self, x: Tensor) -> tuple[Tensor, Any]:
        """What the function takes: x, or x with its own elements around it, and the padding that is left."""
        if self.padding_mode == "zeros":
            return x, self.padding
        around = self._around if self.layout == "NCHW" else (0, 0, *self._around)
        return F.pad(x, around, self.padding_mode), 0

    def extra_repr(self) -> str:
        mode = "" if self.padding_mode == "zeros" else f", padding_mode={self.padding_mode}"
        return f"{self._repr(self.padding)}{mode}"


class Conv1d(PlainConvNd):
    """Convolution of sequences (N, L, in_channels) to (N, OL, out_channels); see ``functional.conv1d``.

    ``weight`` is (out_channels, FL, in_channels / groups), ``bias`` (out_channels,). Arguments as of ``Conv2d``, with
    one number each.
    """

    axes = 1
    function = staticmethod(F.conv1d)


class Conv2d(PlainConvNd):
    """Convolution of images (N, H, W, in_channels) to (N, OH, OW, out_channels); see ``functional.conv2d``.

    ``weight`` is (out_channels, FH, FW, in_channels / groups), ``bias`` (out_channels,). Sizes are one number or
    (rows, columns).

    Args:
        in_channels: channels of the input.
        out_channels: channels of the result.
        kernel_size: the filter's size.
        stride: step from one output position to the next.
        padding: rows and columns of zeros on each side; ``"valid"`` is 0; ``"same"`` keeps H and W, for stride 1.
        dilation: step from one tap of the filter to the next.
        groups: independent convolutions side by side, each over its share of the channels.
        bias: whether a bias is learned.
        padding_mode: ``"zeros"``, or ``"reflect"``, ``"replicate"``, ``"circular"``: as ``functional.pad`` has them.
        device, dtype: where the parameters are made, and of which floats; the defaults unless given.
        layout: the order of axes, ``"NHWC"`` or ``"NCHW"`` (see ``alpha.set_image_layout``, whose layout it is by
            default): with ``"NCHW"`` images are (N, C, H, W) and the weight is (out_channels, in_channels, FH, FW).
    """

    axes = 2
    function = staticmethod(F.conv2d)


class Conv3d(PlainConvNd):
    """Convolution of volumes (N, D, H, W, in_channels) to (N, OD, OH, OW, out_channels); see ``functional.conv3d``.

    ``weight`` is (out_channels, FD, FH, FW, in_channels / groups), ``bias`` (out_channels,). Arguments as of
    ``Conv2d``, sizes one number or (depths, rows, columns).
    """

    axes = 3
    function = staticmethod(F.conv3d)


class ConvTransposeNd(ConvNd):
    """Base of the transposed convolutions."""

    transposed = True

    @placed
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        padding_mode: str = "zeros",
        device: Device = None,
        dtype: DtypeLike = None,
        *,
        layout: str | None = None,
    ) -> None:
        self._set_layout(layout)
        super().__init__(in_channels, out_channels, kernel_size, stride, dilation, groups, bias)
        name = type(self).__name__
        self.padding_mode = choice(padding_mode, ("zeros",), "padding_mode", name)
        self.padding = several(padding, self.axes, "padding", name, least=0)
        self.output_padding = several(output_padding, self.axes, "output_padding", name, least=0)

    def forward(self, x: Tensor) -> Tensor:
        """(N, ..., in_channels) to (N, ..., out_channels); one sample without the axis of the batch too."""
        steps = (self.stride, self.padding, self.output_padding, self.groups, self.dilation)
        found: Tensor = self.function(x, self.weight, self.bias, *steps, layout=self.layout)
        return found

    def extra_repr(self) -> str:
        return self._repr(self.padding, self.output_padding)


class ConvTranspose1d(ConvTransposeNd):
    """Transposed convolution of (N, L, in_channels), the input gradient of a Conv1d taken forward.

    ``weight`` is (in_channels, FL, out_channels / groups), ``bias`` (out_channels,). Arguments as of
    ``ConvTranspose2d``, with one number each.
    """

    axes = 1
    function = staticmethod(F.conv_transpose1d)


class ConvTranspose2d(ConvTransposeNd):
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
        device, dtype: where the parameters are made, and of which floats; the defaults unless given.
    """

    axes = 2
    function = staticmethod(F.conv_transpose2d)


class ConvTranspose3d(ConvTransposeNd):
    """Transposed convolution of (N, D, H, W, in_channels), the input gradient of a Conv3d taken forward.

    ``weight`` is (in_channels, FD, FH, FW, out_channels / groups), ``bias`` (out_channels,). Arguments as of
    ``ConvTranspose2d``, sizes one number or (depths, rows, columns).
    """

    axes = 3
    function = staticmethod(F.conv_transpose3d)
