"""Pooling layers over images (N, H, W, C): MaxPool2d, AvgPool2d, AdaptiveAvgPool2d."""

from __future__ import annotations

from alpha import Tensor
from alpha import functions as F
from alpha.arguments import flag
from alpha.nn.arguments import Size, pair
from alpha.nn.layout import ImageLayer


class MaxPool2d(ImageLayer):
    """The largest value in each window.

    Args:
        kernel_size: the window's size.
        stride: step from one window to the next; by default the window's size.
        padding: rows and columns on each side that never win.
        dilation: step from one element of the window to the next.
        ceil_mode: whether a last window may reach over the edge.
        layout: the order of axes, as for ``Conv2d``.
    """

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        dilation: Size = 1,
        *,
        ceil_mode: bool = False,
        layout: str | None = None,
    ) -> None:
        super().__init__()
        self._set_layout(layout)
        self.kernel_size = pair(kernel_size, "kernel_size", "MaxPool2d")
        self.stride = self.kernel_size if stride is None else pair(stride, "stride", "MaxPool2d")
        self.padding = pair(padding, "padding", "MaxPool2d", least=0)
        self.dilation = pair(dilation, "dilation", "MaxPool2d")
        self.ceil_mode = flag("MaxPool2d", "ceil_mode", ceil_mode)

    def forward(self, x: Tensor) -> Tensor:
        """(N, H, W, C) to (N, OH, OW, C)."""
        steps = (self.stride, self.padding, self.dilation, self.ceil_mode)
        return F.max_pool2d(self._seen(x), self.kernel_size, *steps, layout=self.layout)

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, dilation={self.dilation}, "
            f"ceil_mode={self.ceil_mode}"
        )


class AvgPool2d(ImageLayer):
    """The mean of each window.

    Args:
        kernel_size: the window's size.
        stride: step from one window to the next; by default the window's size.
        padding: rows and columns of zeros on each side.
        ceil_mode: whether a last window may reach over the edge.
        count_include_pad: whether the zeros of the padding count in the mean.
        layout: the order of axes, as for ``Conv2d``.
    """

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        *,
        layout: str | None = None,
    ) -> None:
        super().__init__()
        self._set_layout(layout)
        self.kernel_size = pair(kernel_size, "kernel_size", "AvgPool2d")
        self.stride = self.kernel_size if stride is None else pair(stride, "stride", "AvgPool2d")
        self.padding = pair(padding, "padding", "AvgPool2d", least=0)
        self.ceil_mode = flag("AvgPool2d", "ceil_mode", ceil_mode)
        self.count_include_pad = flag("AvgPool2d", "count_include_pad", count_include_pad)

    def forward(self, x: Tensor) -> Tensor:
        """(N, H, W, C) to (N, OH, OW, C)."""
        steps = (self.stride, self.padding, self.ceil_mode, self.count_include_pad)
        return F.avg_pool2d(self._seen(x), self.kernel_size, *steps, layout=self.layout)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AdaptiveAvgPool2d(ImageLayer):
    """Means over windows that cover the image, so many that the result has a given size; 1 is the global mean.

    Args:
        output_size: (rows, columns) of the result, or one number for both; None keeps the input's.
        layout: the order of axes, as for ``Conv2d``.
    """

    def __init__(self, output_size: int | tuple[int | None, int | None] | None, *, layout: str | None = None) -> None:
        super().__init__()
        self._set_layout(layout)
        both = output_size if isinstance(output_size, tuple | list) else (output_size, output_size)
        checked = pair([1 if n is None else n for n in both], "output_size", "AdaptiveAvgPool2d")
        rows, columns = [None if n is None else size for n, size in zip(both, checked, strict=True)]
        self.output_size = rows, columns

    def forward(self, x: Tensor) -> Tensor:
        """(N, H, W, C) to (N, *output_size, C)."""
        return F.adaptive_avg_pool2d(self._seen(x), self.output_size, layout=self.layout)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"
