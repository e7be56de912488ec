"""Convolutions of sequences (N, L, C) and volumes (N, D, H, W, C): C-K-S of one and three axes by that of two.

A sequence is an image of one row. A volume's depths are grouped by the taps of the filter's depth: a tap meets a run of
input depths at a run of output depths, and its share of each of the three operators is the 2-D operator over all images
of these, added where it lands. Depths in the padding are in no run. A stride splits the input depths by their remainder
(``geometry.Axis.parts``), and each part meets its sub-kernel with a stride of 1, as in KS-deconv-V2: what a transposed
convolution would put between the elements is in no run either. So no zero is multiplied.

Volumes lie in memory as (H, W, D, N, C). A run of neighbouring depths is then a batch of images in the engine's own
order, read and added to in place: nothing is padded or stacked, and only a stride in depth copies, part by part. What
it costs is that a result is read and written once per tap. Stacking taps as channels would make longer products, of as
many copies of the input.
"""

from __future__ import annotations

from collections.abc import Callable

from alpha.arguments import whole
from alpha.autograd import Function
from alpha.functions.autocasting import lowered
from alpha.functions.conv import (
    Conv2dFunction,
    ConvTranspose2dFunction,
    Given,
    Ints,
    convolution_steps,
    named,
    transposed_axes,
)
from alpha.functions.images import of_images
from alpha.functions.nothing import nothing
from alpha.functions.shape import reshape
from alpha.geometry import Axis, Geometry, VolumeGeometry
from alpha.tensor import Tensor

__all__ = ["conv1d", "conv3d", "conv_transpose1d", "conv_transpose3d"]

VOLUME_ORDER = (2, 3, 1, 0, 4)
"""Axes of a volume from outermost to innermost in memory: (H, W, D, N, C)."""

Product = Callable[[Tensor, int, Tensor | None, Tensor | None], Tensor]
"""(images, tap of the depth, bias, what to add into) to images: the 2-D operator with the filters' slice at the tap."""


# -- one axis ----------------------------------------------------------------------------------------------------


@lowered
@of_images("input", "weight", axes=1)
def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints | str = 0,
    dilation: Ints = 1,
    groups: int = 1,
    *,
    layout: str | None = None,
) -> Tensor:
    """1-D convolution (cross-correlation) that multiplies no zero of the padding.

    input: (N, L, IC), weight: (OC, FL, IC / groups), bias: (OC,); returns (N, OL, OC). Arguments and errors as for
    ``conv2d``.
    """
    groups = groups if type(groups) is int else whole("conv1d", "groups", groups)
    steps = convolution_steps(Given("conv1d", 1, input, weight, bias, groups), stride, padding, dilation)
    (s,), (p,), (d,) = steps
    geometry = named("conv1d", Geometry.make, (1, input.shape[1]), (1, weight.shape[1]), (1, s), (0, p), (1, d))
    if not len(input):
        return nothing((0, geometry.output[1], weight.shape[0]), input, weight, bias)
    return _sequence(Conv2dFunction.apply(_row(input), _row(weight), bias, None, geometry, groups, None))


@lowered
@of_images("input", "weight", axes=1)
def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
    *,
    layout: str | None = None,
) -> Tensor:
    """1-D transposed convolution (deconvolution) that multiplies no zero between or around the elements of input.

    input: (N, L, IC), weight: (IC, FL, OC / groups), bias: (OC,); returns (N, OL, OC). Arguments and errors as for
    ``conv_transpose2d``.
    """
    groups = groups if type(groups) is int else whole("conv_transpose1d", "groups", groups)
    axes = transposed_axes(
        Given("conv_transpose1d", 1, input, weight, bias, groups), stride, padding, output_padding, dilation
    )
    if not len(input):
        return nothing((0, axes[0].input, weight.shape[2] * groups), input, weight, bias)
    return _sequence(
        ConvTranspose2dFunction.apply(_row(input), _row(weight), bias, Geometry(Axis(1, 1), *axes), groups)
    )


def _row(x: Tensor) -> Tensor:
    """Sequences as images of one row; a view."""
    return reshape(x, (x.shape[0], 1, *x.shape[1:]))


def _sequence(x: Tensor) -> Tensor:
    """Images of one row as sequences; a view."""
    return reshape(x, (x.shape[0], *x.shape[2:]))


# -- three axes --------------------------------------------------------------------------------------------------


class _VolumeFunction(Function):
    """What both convolutions of volumes share: what is kept for backward, and what it may add into."""

    fresh = True

    def keep(self, x: Tensor, w: Tensor, geometry: VolumeGeometry, groups: int) -> Tensor:
        """Saves what backward needs; x in the volumes' order."""
        self.geometry, self.groups = geometry, groups
        x = x.contiguous(VOLUME_ORDER)
        self.save(x if self.needs[1] else None, w if self.needs[0] else None)
        return x

    def into(self) -> Tensor | None:
        """The gradient of x that has already arrived, if it lies in the volumes' order."""
        grad = self.accumulator(0)
        return grad if grad is not None and grad.is_contiguous(VOLUME_ORDER) else None


class Conv3dFunction(_VolumeFunction):
    """Y = conv(X, W): per tap of the depth, ConvV2 forward, KS-deconv-V2 for dX, Sk-dilated-V2 for dW."""

    def forward(self, x: Tensor, w: Tensor, bias: Tensor | None, geometry: VolumeGeometry, groups: int) -> Tensor:
        return _convolution(self.keep(x, w, geometry, groups), w, bias, geometry, groups)

    def backward(self, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, w = self.saved
        dy = dy.contiguous(VOLUME_ORDER)
        dx = _input_grad(dy, w, None, self.geometry, self.groups, self.into()) if self.needs[0] else None
        dw = _weight_grad(x, dy, self.geometry, self.groups) if self.needs[1] else None
        return dx, dw, dy.engine.channel_sum(dy) if self.needs[2] else None

    def backward_in_graph(self, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, w = self.saved
        kind = self.geometry, self.groups
        dx = ConvTranspose3dFunction.apply(dy, w, None, *kind) if self.needs[0] else None
        dw = Conv3dWeightGradient.apply(self.argument_in_graph(0, x), dy, *kind) if self.needs[1] else None
        return dx, dw, dy.sum((0, 1, 2, 3)) if self.needs[2] else None


class ConvTranspose3dFunction(_VolumeFunction):
    """Y = deconv(X, W), the input gradient of a convolution taken forward."""

    def forward(self, x: Tensor, w: Tensor, bias: Tensor | None, geometry: VolumeGeometry, groups: int) -> Tensor:
        return _input_grad(self.keep(x, w, geometry, groups), w, bias, geometry, groups)

    def backward(self, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, w = self.saved
        dy = dy.contiguous(VOLUME_ORDER)
        dx = _convolution(dy, w, None, self.geometry, self.groups, self.into()) if self.needs[0] else None
        dw = _weight_grad(dy, x, self.geometry, self.groups) if self.needs[1] else None
        return dx, dw, dy.engine.channel_sum(dy) if self.needs[2] else None

    def backward_in_graph(self, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, w = self.saved
        kind = self.geometry, self.groups
        dx = Conv3dFunction.apply(dy, w, None, *kind) if self.needs[0] else None
        dw = Conv3dWeightGradient.apply(dy, self.argument_in_graph(0, x), *kind) if self.needs[1] else None
        return dx, dw, dy.sum((0, 1, 2, 3)) if self.needs[2] else None


class Conv3dWeightGradient(Function):
    """dW of Y = conv(X, W), from X and dY."""

    fresh = True

    def forward(self, x: Tensor, dy: Tensor, geometry: VolumeGeometry, groups: int) -> Tensor:
        self._kind = geometry, groups
        self.save(x, dy)
        return _weight_grad(x.contiguous(VOLUME_ORDER), dy.contiguous(VOLUME_ORDER), geometry, groups)

    def backward(self, dw: Tensor) -> tuple[Tensor | None, ...]:
        x, dy = self.saved
        dx = ConvTranspose3dFunction.apply(dy, dw, None, *self._kind) if self.needs[0] else None
        return dx, Conv3dFunction.apply(x, dw, None, *self._kind) if self.needs[1] else None


@lowered
@of_images("input", "weight", axes=3)
def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints | str = 0,
    dilation: Ints = 1,
    groups: int = 1,
    *,
    layout: str | None = None,
) -> Tensor:
    """3-D convolution (cross-correlation) that multiplies no zero of the padding.

    input: (N, ID, IH, IW, IC), weight: (OC, FD, FH, FW, IC / groups), bias: (OC,); returns (N, OD, OH, OW, OC). Stride,
    padding and dilation are one number, or one for depths, one for rows and one for columns. Arguments and errors as
    for ``conv2d``.
    """
    groups = groups if type(groups) is int else whole("conv3d", "groups", groups)
    steps = convolution_steps(Given("conv3d", 3, input, weight, bias, groups), stride, padding, dilation)
    geometry = named("conv3d", VolumeGeometry.make, input.shape[1:4], weight.shape[1:4], *steps)
    if not len(input):
        return nothing((0, *geometry.output, weight.shape[0]), input, weight, bias)
    result: Tensor = Conv3dFunction.apply(input, weight, bias, geometry, groups)
    return result


@lowered
@of_images("input", "weight", axes=3)
def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
    *,
    layout: str | None = None,
) -> Tensor:
    """3-D transposed convolution (deconvolution) that multiplies no zero between or around the elements of input.

    input: (N, ID, IH, IW, IC), weight: (IC, FD, FH, FW, OC / groups), bias: (OC,); returns (N, OD, OH, OW, OC).
    Arguments and errors as for ``conv_transpose2d``.
    """
    groups = groups if type(groups) is int else whole("conv_transpose3d", "groups", groups)
    depths, *others = transposed_axes(
        Given("conv_transpose3d", 3, input, weight, bias, groups), stride, padding, output_padding, dilation
    )
    geometry = VolumeGeometry(depths, Geometry(*others))
    if not len(input):
        return nothing((0, *geometry.input, weight.shape[4] * groups), input, weight, bias)
    result: Tensor = ConvTranspose3dFunction.apply(input, weight, bias, geometry, groups)
    return result


def _convolution(
    x: Tensor, w: Tensor, bias: Tensor | None, geometry: VolumeGeometry, groups: int, into: Tensor | None = None
) -> Tensor:
    """ConvV2 of volumes, added into ``into`` where it is given."""

    def product(images: Tensor, tap: int, bias: Tensor | None, into: Tensor | None) -> Tensor:
        return x.engine.conv2d(images, _slice(w, tap), bias, geometry.images, groups, accumulate=into)

    shape, out = (x.shape[0], *geometry.output, w.shape[0]), into
    for part in geometry.depths.parts:
        if part.runs:
            taps = [(run.tap, run.inputs, run.outputs) for run in part.runs]
            out = _sum_of_taps(_depths(x, part.inputs).contiguous(VOLUME_ORDER), taps, product, shape, bias, out)
    return _filled(x, shape, bias) if out is None else out


def _input_grad(
    dy: Tensor, w: Tensor, bias: Tensor | None, geometry: VolumeGeometry, groups: int, into: Tensor | None = None
) -> Tensor:
    """KS-deconv-V2 of volumes, added into ``into`` where it is given."""
    engine, parts = dy.engine, geometry.depths.parts

    def product(images: Tensor, tap: int, bias: Tensor | None, into: Tensor | None) -> Tensor:
        return engine.conv2d_input_grad(images, _slice(w, tap), geometry.images, groups, bias, into)

    taps = [[(run.tap, run.outputs, run.inputs) for run in part.runs] for part in parts]
    shape = (dy.shape[0], *geometry.input, w.shape[4] * groups)
    if len(parts) == 1:
        return _sum_of_taps(dy, taps[0], product, shape, bias, into)
    out = engine.empty(shape, dy.dtype, VOLUME_ORDER) if into is None else into
    for part, part_taps in zip(parts, taps, strict=True):
        found = _sum_of_taps(dy, part_taps, product, (shape[0], len(part.inputs), *shape[2:]), bias, None)
        place = _depths(out, part.inputs)
        if into is None:
            engine.copy(found, place)
        else:
            engine.elementwise("add", place, found, out=place)
    return out


def _weight_grad(x: Tensor, dy: Tensor, geometry: VolumeGeometry, groups: int) -> Tensor:
    """Sk-dilated-V2 of volumes: a tap's filter gradient is that of the images that meet under it."""
    engine, depths = x.engine, geometry.depths
    dw = engine.empty((dy.shape[4], depths.filter, *geometry.images.filter, x.shape[4] // groups), x.dtype)
    if sum(len(part.runs) for part in depths.parts) < depths.filter:  # taps that reach x nowhere
        engine.fill(dw, 0)
    for part in depths.parts:
        if part.runs:
            source = _depths(x, part.inputs).contiguous(VOLUME_ORDER)
            for run in part.runs:
                images, grads = _images(_depths(source, run.inputs)), _images(_depths(dy, run.outputs))
                engine.copy(engine.conv2d_weight_grad(images, grads, geometry.images, groups), _slice(dw, run.tap))
    return dw


def _sum_of_taps(
    x: Tensor,
    taps: list[tuple[int, range, range]],
    product: Product,
    shape: tuple[int, ...],
    bias: Tensor | None,
    into: Tensor | None,
) -> Tensor:
    """The products of taps (tap, depths of x, depths of the result), added up from the bias on, or to ``into``.

    A first tap that lands on every depth makes the result, so that nothing is filled and read again.
    """
    out = into
    for tap, sources, targets in taps:
        images = _images(_depths(x, sources))
        if out is None and len(targets) == shape[1]:
            out = _volumes(product(images, tap, bias, None), shape)
        else:
            out = _filled(x, shape, bias) if out is None else out
            product(images, tap, None, _images(_depths(out, targets)))
    return _filled(x, shape, bias) if out is None else out


def _filled(like: Tensor, shape: tuple[int, ...], bias: Tensor | None) -> Tensor:
    """Volumes of the bias, or of zeros."""
    out = like.engine.empty(shape, like.dtype, VOLUME_ORDER)
    if bias is None:
        like.engine.fill(out, 0)
    else:
        like.engine.copy(bias, out)
    return out


def _slice(w: Tensor, tap: int) -> Tensor:
    """The filters of images at a tap of the depth; a view."""
    return w.strided(w.offset + tap * w.strides[1], (w.shape[0], *w.shape[2:]), (w.strides[0], *w.strides[2:]))


def _depths(x: Tensor, depths: range) -> Tensor:
    """The volumes at some depths; a view."""
    shape = (x.shape[0], len(depths), *x.shape[2:])
    strides = (x.strides[0], x.strides[1] * depths.step, *x.strides[2:])
    return x.strided(x.offset + depths.start * x.strides[1], shape, strides)


def _images(x: Tensor) -> Tensor:
    """The images of neighbouring depths, depth by depth, of volumes in their order; a view."""
    step = x.strides[0] if x.shape[0] > 1 else x.strides[1]
    return x.strided(x.offset, (x.shape[0] * x.shape[1], *x.shape[2:]), (step, *x.strides[2:]))


def _volumes(images: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Such images as volumes; a view."""
    step, *others = images.strides
    return images.strided(images.offset, shape, (step, shape[0] * step, *others))
