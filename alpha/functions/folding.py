"""Blocks of images as columns, and columns added up to images: unfold and fold."""

from __future__ import annotations

import itertools

from alpha.autograd import Function
from alpha.errors import ShapeError
from alpha.functions.images import channels_last, channels_second
from alpha.functions.operands import call, check_float
from alpha.functions.padding import pad
from alpha.functions.pool_windows import Size, per_axis
from alpha.functions.shape import permute, reshape, squeeze, unsqueeze
from alpha.geometry import Geometry
from alpha.layout import is_channels_first
from alpha.tensor import Tensor

__all__ = ["fold", "unfold"]


class Unfold(Function):
    """The windows of padded images (N, H, W, C), by the window's rows and columns: (N, FH, FW, OH, OW, C)."""

    fresh = True

    def forward(self, x: Tensor, geometry: Geometry) -> Tensor:
        self.geometry, self.shape = geometry, x.shape
        return x.engine.copied(_windows(x, geometry), range(6))

    def backward(self, grad: Tensor) -> Tensor:
        return call(Fold, grad, self.geometry)


class Fold(Function):
    """Windows (N, FH, FW, OH, OW, C) added up where they lie in padded images (N, H, W, C)."""

    fresh = True

    def forward(self, x: Tensor, geometry: Geometry) -> Tensor:
        self.geometry = geometry
        engine, (n, *_, c) = x.engine, x.shape
        out = engine.full((n, *geometry.input, c), 0, x.dtype)
        places = _windows(out, geometry)
        for row, column in itertools.product(range(geometry.rows.filter), range(geometry.columns.filter)):
            here = _tap(places, row, column)
            engine.elementwise("add", here, _tap(x, row, column), out=here)
        return out

    def backward(self, grad: Tensor) -> Tensor:
        return call(Unfold, grad, self.geometry)


def _windows(x: Tensor, geometry: Geometry) -> Tensor:
    """The windows of images without padding, as a view."""
    n, row, column, c = x.strides
    rows, columns = geometry.rows, geometry.columns
    shape = (x.shape[0], *geometry.filter, *geometry.output, x.shape[3])
    steps = (row * rows.dilation, column * columns.dilation, row * rows.stride, column * columns.stride)
    return x.strided(x.offset, shape, (n, *steps, c))


def _tap(x: Tensor, row: int, column: int) -> Tensor:
    """What windows have at one of their places, as a view (N, OH, OW, C)."""
    n, down, across, *others = x.strides
    return x.strided(x.offset + row * down + column * across, (x.shape[0], *x.shape[3:]), (n, *others))


def unfold(
    input: Tensor,
    kernel_size: Size,
    dilation: Size = 1,
    padding: Size = 0,
    stride: Size = 1,
    *,
    layout: str | None = None,
) -> Tensor:
    """Each window of images as a column: (N, L, C * FH * FW) of (N, H, W, C), or without the axis of the batch.

    L = OH * OW windows, row by row; within a column the channel varies slowest, as in PyTorch. With the layout "NCHW"
    the images are (N, C, H, W), the columns (N, C * FH * FW, L).
    """
    check_float("unfold", input)
    if input.ndim == 3:
        return squeeze(unfold(unsqueeze(input, 0), kernel_size, dilation, padding, stride, layout=layout), 0)
    if input.ndim != 4:
        raise ShapeError(f"[unfold] expected images (N, H, W, C), got {input.shape}: add the missing axes")
    first = is_channels_first("unfold", layout)
    x = channels_last(input) if first else input
    geometry, pads = _geometry("unfold", x.shape[1:3], kernel_size, dilation, padding, stride)
    rows, columns = pads
    if rows or columns:
        x = pad(x, (0, 0, columns, columns, rows, rows))
    blocks = call(Unfold, x, geometry)
    n, fh, fw, oh, ow, c = blocks.shape
    found = reshape(permute(blocks, (0, 3, 4, 5, 1, 2)), (n, oh * ow, c * fh * fw))
    return permute(found, (0, 2, 1)) if first else found


def fold(
    input: Tensor,
    output_size: Size,
    kernel_size: Size,
    dilation: Size = 1,
    padding: Size = 0,
    stride: Size = 1,
    *,
    layout: str | None = None,
) -> Tensor:
    """The reverse of ``unfold``, but that elements of windows which lie on each other are added up.

    (N, L, C * FH * FW), or (L, C * FH * FW), to images of the ``output_size``.
    """
    check_float("fold", input)
    if input.ndim == 2:
        alone = fold(unsqueeze(input, 0), output_size, kernel_size, dilation, padding, stride, layout=layout)
        return squeeze(alone, 0)
    first, size = is_channels_first("fold", layout), per_axis("fold", "output_size", output_size, 2, 1)
    geometry, (rows, columns) = _geometry("fold", size, kernel_size, dilation, padding, stride)
    x = permute(input, (0, 2, 1)) if first and input.ndim == 3 else input
    (fh, fw), (oh, ow) = geometry.filter, geometry.output
    if x.ndim != 3 or x.shape[1] != oh * ow or x.shape[2] % (fh * fw):
        raise ShapeError(
            f"[fold] expected {oh * ow} windows of a multiple of {fh} * {fw} elements, (N, windows, elements), got "
            f"{x.shape}"
        )
    c = x.shape[2] // (fh * fw)
    blocks = permute(reshape(x, (x.shape[0], oh, ow, c, fh, fw)), (0, 4, 5, 1, 2, 3))
    images = call(Fold, blocks, geometry)
    if rows or columns:
        images = pad(images, (0, 0, -columns, -columns, -rows, -rows))
    return channels_second(images) if first else images


def _geometry(
    function: str, size: tuple[int, ...], kernel_size: Size, dilation: Size, padding: Size, stride: Size
) -> tuple[Geometry, tuple[int, ...]]:
    """The windows over padded images, and the padding."""
    names = {"kernel_size": kernel_size, "stride": stride, "padding": padding, "dilation": dilation}
    kernel, steps, pads, spread = (
        per_axis(function, name, value, 2, 0 if name == "padding" else 1) for name, value in names.items()
    )
    whole = tuple(n + 2 * p for n, p in zip(size, pads, strict=True))
    if any((k - 1) * d + 1 > n for k, d, n in zip(kernel, spread, whole, strict=True)):
        raise ShapeError(
            f"[{function}] expected windows that fit the padded image, got a size of {tuple(size)} with kernel_size "
            f"{kernel}, padding {pads} and dilation {spread}"
        )
    return Geometry.make(whole, kernel, steps, (0, 0), spread), pads
