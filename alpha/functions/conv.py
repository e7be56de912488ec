"""Convolution and transposed convolution of images: C-K-S made differentiable, and checks for any number of axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from alpha import dtypes
from alpha.arguments import number, whole
from alpha.autograd import Function
from alpha.errors import ArgumentError, DtypeError, ShapeError, described
from alpha.functions.autocasting import lowered
from alpha.functions.elementwise import where
from alpha.functions.images import of_images
from alpha.functions.nothing import nothing
from alpha.functions.operands import check_room, check_tensor
from alpha.geometry import Axis, Geometry, Side, transposed_input
from alpha.tensor import Tensor

__all__ = ["conv2d", "conv_transpose2d"]

AnyGeometry = TypeVar("AnyGeometry")
Ints = int | tuple[int, ...]
"""One number, or one per axis."""

MAX_STEP = 2**31 - 1
"""Largest stride, padding or dilation: kernels' tables hold positions as 32-bit numbers."""

INPUTS = {1: "sequences (N, L, C)", 2: "images (N, H, W, C)", 3: "volumes (N, D, H, W, C)"}


class Conv2dFunction(Function):
    """Y = act(conv(X, W) + residual): ConvV2 forward, KS-deconv-V2 for dX, Sk-dilated-V2 for dW."""

    passes_on = True

    def forward(
        self,
        x: Tensor,
        w: Tensor,
        bias: Tensor | None,
        residual: Tensor | None,
        geometry: Geometry,
        groups: int,
        slope: float | None,
    ) -> Tensor:
        self._geometry, self._groups, self._slope = geometry, groups, slope
        # Where the residual's gradient is dy itself, others hold it too.
        self.fresh = not (residual is not None and slope is None)
        y = x.engine.conv2d(x, w, bias, geometry, groups, residual, slope)
        self.save(x if self.needs[1] else None, w if self.needs[0] else None, None if slope is None else y)
        return y

    def backward(self, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, w, y = self.saved
        engine, geometry, groups = dy.engine, self._geometry, self._groups
        if self._slope is not None:
            dy = engine.leaky_relu_grad(dy, y, self._slope)
        dw = engine.conv2d_weight_grad(x, dy, geometry, groups) if self.needs[1] else None
        del x, y
        self.drop_saved()  # dx may lie where x did
        db = engine.channel_sum(dy) if self.needs[2] else None
        dx = None
        if self.needs[0]:
            dx = self._input_grad(dy, w)
        return dx, dw, db, dy if self.needs[3] else None

    def _input_grad(self, dy: Tensor, w: Tensor) -> Tensor:
        """dX, added to what has arrived; past the activation of a BatchNorm that made X, if it is complete by that."""
        engine, kind, accumulate = dy.engine, (self._geometry, self._groups), self.accumulator(0)
        normalising = self.completed(0)
        before = None if normalising is None else normalising.normalised_result()
        if normalising is None or before is None:
            return engine.conv2d_input_grad(dy, w, *kind, accumulate=accumulate)
        dx, found = engine.conv2d_input_grad_past(dy, w, *kind, before, accumulate)
        if found is not None:
            self.hand_over(normalising, found)
        return dx

    def backward_in_graph(self, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, w, y = self.saved
        if self._slope is not None:
            dy = where(y.detach() > 0, dy, dy * self._slope)
        kind = self._geometry, self._groups
        dx = ConvTranspose2dFunction.apply(dy, w, None, *kind) if self.needs[0] else None
        dw = Conv2dWeightGradient.apply(x, dy, *kind) if self.needs[1] else None
        return dx, dw, dy.sum((0, 1, 2)) if self.needs[2] else None, dy if self.needs[3] else None


class ConvTranspose2dFunction(Function):
    """Y = deconv(X, W), the input gradient of a convolution: KS-deconv-V2 forward, ConvV2 for dX."""

    fresh = True

    def forward(self, x: Tensor, w: Tensor, bias: Tensor | None, geometry: Geometry, groups: int) -> Tensor:
        self._geometry, self._groups = geometry, groups
        self.save(x if self.needs[1] else None, w if self.needs[0] else None)
        return x.engine.conv2d_input_grad(x, w, geometry, groups, bias)

    def backward(self, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, w = self.saved
        engine, geometry, groups = dy.engine, self._geometry, self._groups
        dx = engine.conv2d(dy, w, None, geometry, groups) if self.needs[0] else None
        dw = engine.conv2d_weight_grad(dy, x, geometry, groups) if self.needs[1] else None
        db = engine.channel_sum(dy) if self.needs[2] else None
        return dx, dw, db

    def backward_in_graph(self, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, w = self.saved
        kind = self._geometry, self._groups
        dx = Conv2dFunction.apply(dy, w, None, None, *kind, None) if self.needs[0] else None
        dw = Conv2dWeightGradient.apply(dy, x, *kind) if self.needs[1] else None
        return dx, dw, dy.sum((0, 1, 2)) if self.needs[2] else None


class Conv2dWeightGradient(Function):
    """dW of Y = conv(X, W), from X and dY: Sk-dilated-V2."""

    fresh = True

    def forward(self, x: Tensor, dy: Tensor, geometry: Geometry, groups: int) -> Tensor:
        self._kind = geometry, groups
        self.save(x, dy)
        return x.engine.conv2d_weight_grad(x, dy, geometry, groups)

    def backward(self, dw: Tensor) -> tuple[Tensor | None, ...]:
        x, dy = self.saved
        dx = ConvTranspose2dFunction.apply(dy, dw, None, *self._kind) if self.needs[0] else None
        return dx, Conv2dFunction.apply(x, dw, None, None, *self._kind, None) if self.needs[1] else None


@lowered
@of_images("input", "weight", "residual", axes=2)
def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints | str = 0,
    dilation: Ints = 1,
    groups: int = 1,
    residual: Tensor | None = None,
    activation: str | None = None,
    negative_slope: float = 0.01,
    *,
    layout: str | None = None,
) -> Tensor:
    """2-D convolution (cross-correlation) that multiplies no zero of the padding, then ``+ residual`` and activation.

    Args:
        input: images (N, IH, IW, IC).
        weight: filters (OC, FH, FW, IC / groups).
        bias: (OC,), or None.
        stride, padding, dilation: one number, or one for rows and one for columns. Padding may also be ``"valid"``, for
            0, or ``"same"``, for the input's size with stride 1.
        groups: into how many groups channels are split; group g's outputs see group g's inputs alone.
        residual: added before the activation; shaped as the result.
        activation: None, ``"relu"`` or ``"leaky_relu"`` (with ``negative_slope`` >= 0), in the same pass over memory.

    Returns:
        (N, OH, OW, OC), OH = (IH + 2 * padding - dilation * (FH - 1) - 1) // stride + 1.

    Raises:
        ShapeError, DtypeError, EngineError, ArgumentError: what does not fit, with both shapes.
    """
    groups = groups if type(groups) is int else whole("conv2d", "groups", groups)
    steps = convolution_steps(Given("conv2d", 2, input, weight, bias, groups), stride, padding, dilation)
    geometry = named("conv2d", Geometry.make, input.shape[1:3], weight.shape[1:3], *steps)
    slope = slope_of("conv2d", activation, negative_slope)
    if residual is not None:
        _check_residual(residual, input, (input.shape[0], *geometry.output, weight.shape[0]))
    if not input.shape[0]:
        return nothing((0, *geometry.output, weight.shape[0]), input, weight, bias, residual)
    result: Tensor = Conv2dFunction.apply(input, weight, bias, residual, geometry, groups, slope)
    return result


@lowered
@of_images("input", "weight", axes=2)
def conv_transpose2d(
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
    """2-D transposed convolution (deconvolution) that multiplies no zero between or around the elements of input.

    Args:
        input: (N, IH, IW, IC).
        weight: filters (IC, FH, FW, OC / groups).
        bias: (OC,), or None.
        stride, padding, dilation: those of the convolution that this one transposes.
        output_padding: rows and columns added at the far side, less than stride or dilation.
        groups: into how many groups channels are split.

    Returns:
        (N, OH, OW, OC), OH = (IH - 1) * stride - 2 * padding + dilation * (FH - 1) + output_padding + 1.
    """
    groups = groups if type(groups) is int else whole("conv_transpose2d", "groups", groups)
    axes = transposed_axes(
        Given("conv_transpose2d", 2, input, weight, bias, groups), stride, padding, output_padding, dilation
    )
    if not input.shape[0]:
        return nothing((0, *(axis.input for axis in axes), weight.shape[3] * groups), input, weight, bias)
    result: Tensor = ConvTranspose2dFunction.apply(input, weight, bias, Geometry(*axes), groups)
    return result


# -- what convolutions of one, two and three axes ask of their arguments ------------------------------------------


class Given(NamedTuple):
    """A convolution call's arguments: the function's name for errors, the number of axes, tensors and groups."""

    function: str
    axes: int
    x: Tensor
    weight: Tensor
    bias: Tensor | None
    groups: int


def convolution_steps(
    given: Given, stride: Ints, padding: Ints | str, dilation: Ints
) -> tuple[tuple[int, ...], tuple[Side, ...], tuple[int, ...]]:
    """(stride, padding, dilation) of each axis of a convolution whose tensors fit each other."""
    _check(given)
    function, axes, x, weight, bias, groups = given
    if x.shape[-1] != weight.shape[-1] * groups:
        last = axes + 1
        raise ShapeError(
            f"[{function}] expected x.shape[{last}] == w.shape[{last}]"
            f"{f' * groups ({described(groups)})' if groups > 1 else ''} "
            f"(input channels), got x: {x.shape} and w: {weight.shape}"
        )
    if weight.shape[0] % groups:
        raise ShapeError(
            f"[{function}] expected w.shape[0] divisible by groups ({described(groups)}), got w: {weight.shape}"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ShapeError(f"[{function}] expected bias of shape ({weight.shape[0]},), got {bias.shape}")
    strides, dilations = numbers(function, "stride", stride, axes), numbers(function, "dilation", dilation, axes)
    if isinstance(padding, str):
        return strides, named_padding(function, padding, weight.shape[1:-1], strides, dilations), dilations
    return strides, numbers(function, "padding", padding, axes), dilations


def transposed_axes(given: Given, stride: Ints, padding: Ints, output_padding: Ints, dilation: Ints) -> list[Axis]:
    """The axes of the convolution that is transposed, of tensors that fit each other."""
    _check(given)
    function, axes, x, weight, bias, groups = given
    if x.shape[-1] != weight.shape[0] or weight.shape[0] % groups:
        raise ShapeError(
            f"[{function}] expected x.shape[{axes + 1}] == w.shape[0] (input channels), divisible by groups "
            f"({described(groups)}), got x: {x.shape} and w: {weight.shape}"
        )
    channels = weight.shape[-1] * groups
    if bias is not None and bias.shape != (channels,):
        raise ShapeError(f"[{function}] expected bias of shape ({channels},), got {bias.shape}")
    steps = (("stride", stride), ("padding", padding), ("output_padding", output_padding), ("dilation", dilation))
    found = []
    for output, filter, s, p, e, d in zip(
        x.shape[1:-1], weight.shape[1:-1], *(numbers(function, *step, axes) for step in steps), strict=True
    ):
        if e >= max(s, d):
            raise ArgumentError(
                f"[{function}] expected output_padding < max(stride, dilation), got {e} with stride {s} and "
                f"dilation {d}"
            )
        size = transposed_input(output, filter, s, p, e, d)
        if size < 1:
            raise ShapeError(
                f"[{function}] expected a result of at least one element, got {size} from x: {x.shape}, "
                f"w: {weight.shape}, stride {s}, padding {p}: use less padding"
            )
        found.append(Axis(size, filter, s, (p, p - e), d))
    check_room(x.engine, (x.shape[0], *(axis.input for axis in found), channels), x.dtype)
    return found


def named(function: str, make: Callable[..., AnyGeometry], *arguments: tuple[Any, ...]) -> AnyGeometry:
    """Makes a geometry; the error for a filter that does not fit has the function's name."""
    try:
        return make(*arguments)
    except ShapeError as error:
        raise ShapeError(str(error).replace("[geometry]", f"[{function}]")) from None


def numbers(function: str, name: str, value: Any, axes: int) -> tuple[int, ...]:
    """One int per axis, from one or several; ArgumentError for anything else, or below what the name allows."""
    least = 0 if "padding" in name else 1
    if type(value) is int and least <= value <= MAX_STEP:
        return (value,) * axes
    given = (value,) * axes if type(value) is not tuple and isinstance(value, int | np.integer) else value
    if isinstance(given, (tuple, list)) and len(given) == axes:
        for n in given:  # a plain loop, for speed: every call of a convolution checks three or four arguments so
            if type(n) is not int or not least <= n <= MAX_STEP:
                break
        else:
            return tuple(given)
        if all(isinstance(n, int | np.integer) and not isinstance(n, bool) and least <= n <= MAX_STEP for n in given):
            return tuple(int(n) for n in given)
    several = {1: "one int,", 2: "one int or two, each", 3: "one int or three, each"}[axes]
    entries = given if isinstance(given, tuple | list) else ()
    far = any(isinstance(n, int | np.integer) and n > MAX_STEP for n in entries)
    limit = f" and <= {MAX_STEP}" if far else ""
    raise ArgumentError(f"[{function}] expected {name} as {several} >= {least}{limit}, got {described(value)}")


def named_padding(
    name: str, padding: str, filter: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> tuple[Side, ...]:
    """The numbers for padding ``"valid"`` or ``"same"``, for the function or layer of that name.

    Where an extent is even, one element more comes behind the input than before it.
    """
    if padding == "valid":
        return (0,) * len(filter)
    if padding != "same":
        raise ArgumentError(f'[{name}] expected padding as numbers, "same" or "valid", got {described(padding)}')
    if any(s != 1 for s in stride):
        raise ArgumentError(
            f'[{name}] expected stride 1 for padding="same", got stride={stride}: give the padding in numbers'
        )
    extents = [(f - 1) * d for f, d in zip(filter, dilation, strict=True)]
    return tuple(n // 2 if n % 2 == 0 else (n // 2, n - n // 2) for n in extents)


def slope_of(function: str, activation: str | None, negative_slope: float) -> float | None:
    """The engines' slope for an activation that is fused: its mask in backward is the result's sign."""
    if activation is None:
        return None
    if not isinstance(activation, str) or activation not in ("relu", "leaky_relu"):
        raise ArgumentError(
            f'[{function}] expected activation None, "relu" or "leaky_relu", got {described(activation)}'
        )
    if activation == "relu":
        return 0.0
    slope = number(function, "negative_slope", negative_slope)
    if not slope >= 0:
        raise ArgumentError(f"[{function}] expected negative_slope >= 0, got {negative_slope}: the mask is y's sign")
    return slope


def _check_residual(residual: Tensor, x: Tensor, shape: tuple[int, ...]) -> None:
    check_tensor("conv2d", residual)
    x.engine.check_owner("conv2d", residual)
    if residual.shape != shape or residual.dtype != x.dtype:
        raise ShapeError(
            f"[conv2d] expected a residual shaped as the result, {shape} of {x.dtype}, got {residual.shape} of "
            f"{residual.dtype}"
        )


def _check(given: Given) -> None:
    """Checks that convolutions and transposed convolutions share."""
    function, axes, x, weight, bias, groups = given
    if not isinstance(x, Tensor) or not isinstance(weight, Tensor) or not (bias is None or isinstance(bias, Tensor)):
        check_tensor(function, x, weight, *(() if bias is None else (bias,)))
    if x.ndim != axes + 2 or weight.ndim != axes + 2:
        raise ShapeError(
            f"[{function}] expected {INPUTS[axes]} and filters of {axes + 2} axes, got x: {x.shape} and w: "
            f"{weight.shape}"
        )
    if 0 in x.shape[1:] or 0 in weight.shape:
        raise ShapeError(
            f"[{function}] expected no empty axis but the first of x, got x: {x.shape} and w: {weight.shape}"
        )
    if type(groups) is not int or groups < 1:
        raise ArgumentError(f"[{function}] expected groups >= 1, got {described(groups)}")
    others = [weight] if bias is None else [weight, bias]
    x.engine.check_owner(function, *others)
    for other in others:
        if other.dtype != x.dtype:
            raise DtypeError(
                f"[{function}] expected x, weight and bias of one dtype, got {x.dtype} and {other.dtype}: cast one"
            )
    if not dtypes.is_float(x.dtype):
        raise DtypeError(f"[{function}] expected {dtypes.float_names()}, got {x.dtype}: cast it first")
