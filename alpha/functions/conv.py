"""Convolution and transposed convolution: C-K-S made differentiable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alpha.autograd import Function
from alpha.errors import ArgumentError, DtypeError, ShapeError
from alpha.geometry import Axis, Geometry, transposed_input

if TYPE_CHECKING:
    from alpha.tensor import Tensor

__all__ = ["conv2d", "conv_transpose2d"]

IntPair = int | tuple[int, int]


class Conv2dFunction(Function):
    """Y = act(conv(X, W) + residual): ConvV2 forward, KS-deconv-V2 for dX, Sk-dilated-V2 for dW."""

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
        # Where the residual's gradient is all of dy, it is handed through and no longer ours alone.
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
        db = engine.channel_sum(dy) if self.needs[2] else None
        dx = None
        if self.needs[0]:
            dx = engine.conv2d_input_grad(dy, w, geometry, groups, accumulate=self.accumulator(0))
        return dx, dw, db, dy if self.needs[3] else None


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


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntPair = 1,
    padding: IntPair = 0,
    dilation: IntPair = 1,
    groups: int = 1,
    residual: Tensor | None = None,
    activation: str | None = None,
    negative_slope: float = 0.01,
) -> Tensor:
    """2-D convolution (cross-correlation) that multiplies no zero of the padding, then ``+ residual`` and activation.

    Args:
        x: images (N, IH, IW, IC).
        weight: filters (OC, FH, FW, IC / groups).
        bias: (OC,), or None.
        stride, padding, dilation: one number, or one for rows and one for columns.
        groups: into how many groups channels are split; group g's outputs see group g's inputs alone.
        residual: added before the activation; shaped as the result.
        activation: None, ``"relu"`` or ``"leaky_relu"`` (with ``negative_slope`` >= 0), in the same pass over memory.

    Returns:
        (N, OH, OW, OC), OH = (IH + 2 * padding - dilation * (FH - 1) - 1) // stride + 1.

    Raises:
        ShapeError, DtypeError, EngineError, ArgumentError: what does not fit, with both shapes.
    """
    _check("conv2d", x, weight, bias, groups)
    if x.shape[3] != weight.shape[3] * groups:
        raise ShapeError(
            f"[conv2d] expected x.shape[3] == w.shape[3]{f' * groups ({groups})' if groups > 1 else ''} (input "
            f"channels), got x: {x.shape} and w: {weight.shape}"
        )
    if weight.shape[0] % groups:
        raise ShapeError(f"[conv2d] expected w.shape[0] divisible by groups ({groups}), got w: {weight.shape}")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ShapeError(f"[conv2d] expected bias of shape ({weight.shape[0]},), got {bias.shape}")
    steps = [pair("conv2d", *named) for named in (("stride", stride), ("padding", padding), ("dilation", dilation))]
    try:
        geometry = Geometry.make((x.shape[1], x.shape[2]), (weight.shape[1], weight.shape[2]), *steps)
    except ShapeError as error:
        raise ShapeError(str(error).replace("[geometry]", "[conv2d]")) from None
    slope = slope_of("conv2d", activation, negative_slope)
    if residual is not None:
        _check_residual(residual, x, (x.shape[0], *geometry.output, weight.shape[0]))
    result: Tensor = Conv2dFunction.apply(x, weight, bias, residual, geometry, groups, slope)
    return result


def conv_transpose2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntPair = 1,
    padding: IntPair = 0,
    output_padding: IntPair = 0,
    groups: int = 1,
    dilation: IntPair = 1,
) -> Tensor:
    """2-D transposed convolution (deconvolution) that multiplies no zero between or around the elements of x.

    Args:
        x: (N, IH, IW, IC).
        weight: filters (IC, FH, FW, OC / groups).
        bias: (OC,), or None.
        stride, padding, dilation: those of the convolution that this one transposes.
        output_padding: rows and columns added at the far side, less than stride or dilation.
        groups: into how many groups channels are split.

    Returns:
        (N, OH, OW, OC), OH = (IH - 1) * stride - 2 * padding + dilation * (FH - 1) + output_padding + 1.
    """
    _check("conv_transpose2d", x, weight, bias, groups)
    if x.shape[3] != weight.shape[0] or weight.shape[0] % groups:
        raise ShapeError(
            f"[conv_transpose2d] expected x.shape[3] == w.shape[0] (input channels), divisible by groups ({groups}), "
            f"got x: {x.shape} and w: {weight.shape}"
        )
    channels = weight.shape[3] * groups
    if bias is not None and bias.shape != (channels,):
        raise ShapeError(f"[conv_transpose2d] expected bias of shape ({channels},), got {bias.shape}")
    strides, paddings, extras, dilations = (
        pair("conv_transpose2d", name, value)
        for name, value in (
            ("stride", stride),
            ("padding", padding),
            ("output_padding", output_padding),
            ("dilation", dilation),
        )
    )
    axes = []
    for axis in range(2):
        s, p, e, d = strides[axis], paddings[axis], extras[axis], dilations[axis]
        if e >= max(s, d):
            raise ArgumentError(
                f"[conv_transpose2d] expected output_padding < max(stride, dilation), got {e} with stride {s} and "
                f"dilation {d}"
            )
        size = transposed_input(x.shape[axis + 1], weight.shape[axis + 1], s, p, e, d)
        if size < 1:
            raise ShapeError(
                f"[conv_transpose2d] expected a result of at least one element, got {size} from x: {x.shape}, "
                f"w: {weight.shape}, stride {s}, padding {p}: use less padding"
            )
        axes.append(Axis(size, weight.shape[axis + 1], s, (p, p - e), d))
    geometry = Geometry(axes[0], axes[1])
    result: Tensor = ConvTranspose2dFunction.apply(x, weight, bias, geometry, groups)
    return result


def pair(function: str, name: str, value: Any) -> tuple[int, int]:
    """(rows, columns) from one int or two; ArgumentError for anything else, or below what the name allows."""
    least = 0 if "padding" in name else 1
    if type(value) is int and value >= least:
        return value, value
    if type(value) is tuple and len(value) == 2:  # what layers give, checked without loops
        rows, columns = value
        if type(rows) is int and type(columns) is int and rows >= least and columns >= least:
            return rows, columns
    both = (value, value) if isinstance(value, int) else value
    if (
        not isinstance(both, tuple | list)
        or len(both) != 2
        or any(isinstance(v, bool) or not isinstance(v, int) or v < least for v in both)
    ):
        raise ArgumentError(f"[{function}] expected {name} as one int or two, each >= {least}, got {value!r}")
    return both[0], both[1]


def slope_of(function: str, activation: str | None, negative_slope: float) -> float | None:
    """The engines' slope for an activation that is fused: its mask in backward is the result's sign."""
    slopes = {None: None, "relu": 0.0, "leaky_relu": negative_slope}
    if activation not in slopes:
        raise ArgumentError(f'[{function}] expected activation None, "relu" or "leaky_relu", got {activation!r}')
    if activation == "leaky_relu" and not negative_slope >= 0:
        raise ArgumentError(f"[{function}] expected negative_slope >= 0, got {negative_slope}: the mask is y's sign")
    return slopes[activation]


def _check_residual(residual: Tensor, x: Tensor, shape: tuple[int, ...]) -> None:
    x.engine.check_owner("conv2d", residual)
    if residual.shape != shape or residual.dtype != x.dtype:
        raise ShapeError(
            f"[conv2d] expected a residual shaped as the result, {shape} of {x.dtype}, got {residual.shape} of "
            f"{residual.dtype}"
        )


def _check(function: str, x: Tensor, weight: Tensor, bias: Tensor | None, groups: int) -> None:
    """What both convolutions ask of their arguments."""
    if x.ndim != 4 or weight.ndim != 4:
        raise ShapeError(
            f"[{function}] expected images (N, H, W, C) and filters of 4 axes, got x: {x.shape} and w: {weight.shape}"
        )
    if 0 in x.shape or 0 in weight.shape:
        raise ShapeError(f"[{function}] expected no empty axis, got x: {x.shape} and w: {weight.shape}")
    if isinstance(groups, bool) or not isinstance(groups, int) or groups < 1:
        raise ArgumentError(f"[{function}] expected groups >= 1, got {groups!r}")
    others = [weight] if bias is None else [weight, bias]
    x.engine.check_owner(function, *others)
    for other in others:
        if other.dtype != x.dtype:
            raise DtypeError(
                f"[{function}] expected x, weight and bias of one dtype, got {x.dtype} and {other.dtype}: cast one"
            )
    if x.dtype.kind != "f":
        raise DtypeError(f"[{function}] expected float32 or float64, got {x.dtype}: cast it first")
