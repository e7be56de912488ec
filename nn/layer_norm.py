"""Normalisation layers without a batch's statistics: LayerNorm, RMSNorm, GroupNorm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alpha import Tensor
from alpha import functions as F
from alpha.arguments import flag, number
from alpha.dtypes import DtypeLike
from alpha.errors import ArgumentError, ShapeError
from alpha.nn import init
from alpha.nn.arguments import positive
from alpha.nn.layout import ImageLayer
from alpha.nn.module import Module
from alpha.nn.parameter import Parameter
from alpha.nn.places import Device, empty_parameter, placed


class Affine(Module):
    """Base of the layers: eps, a weight that starts at 1 and a bias that starts at 0."""

    weight: Parameter | None
    bias: Parameter | None

    def __init__(self, shape: tuple[int, ...], eps: float, weight: bool, bias: bool) -> None:
        super().__init__()
        self.eps = _checked_eps(type(self).__name__, eps)
        self.weight = empty_parameter(*shape) if weight else None
        self.bias = empty_parameter(*shape) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the weight to 1 and the bias to 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)


class LayerNorm(Affine):
    """y = (x - mean) / sqrt(var + eps) * weight + bias over the last axes. Ba et al., arXiv 1607.06450.

    Over images (N, H, W, C), ``LayerNorm(C)`` normalises each pixel, ``LayerNorm((H, W, C))`` each image; a weight from
    PyTorch over (C, H, W) is to be transposed to (H, W, C).

    Args:
        normalized_shape: lengths of the axes that are normalised, and weight's and bias's shape; an int for the last.
        eps: added to the variance.
        elementwise_affine: whether weight and bias are learned.
        bias: whether a bias is learned beside the weight.
        device, dtype: where the parameters are made, and of which floats; the defaults unless given.
    """

    @placed
    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Device = None,
        dtype: DtypeLike = None,
    ) -> None:
        self.normalized_shape = _lengths("LayerNorm", normalized_shape)
        self.elementwise_affine = elementwise_affine = flag("LayerNorm", "elementwise_affine", elementwise_affine)
        bias = flag("LayerNorm", "bias", bias)
        super().__init__(self.normalized_shape, eps, elementwise_affine, elementwise_affine and bias)

    def forward(self, x: Tensor) -> Tensor:
        """(..., *normalized_shape) to the same."""
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        affine = f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        return f"{self.normalized_shape}, eps={self.eps}, {affine}"


class RMSNorm(Module):
    """y = x / sqrt(mean(x ** 2) + eps) * weight over the last axes. Zhang & Sennrich, arXiv 1910.07467.

    Args:
        normalized_shape: lengths of the axes that are normalised, and the weight's shape; an int for the last.
        eps: added to the mean of the squares; None for the distance from 1 to the next number of x's dtype.
        elementwise_affine: whether a weight is learned.
        device, dtype: where the parameters are made, and of which floats; the defaults unless given.
    """

    weight: Parameter | None

    @placed
    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Device = None,
        dtype: DtypeLike = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _lengths("RMSNorm", normalized_shape)
        self.elementwise_affine = flag("RMSNorm", "elementwise_affine", elementwise_affine)
        self.eps = None if eps is None else _checked_eps("RMSNorm", eps)
        self.weight = empty_parameter(*self.normalized_shape) if self.elementwise_affine else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the weight to 1."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """(..., *normalized_shape) to the same."""
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


def _checked_eps(layer: str, eps: float) -> float:
    eps = number(layer, "eps", eps)
    if not eps >= 0:
        raise ArgumentError(f"[{layer}] expected eps >= 0, got {eps}")
    return eps


def _lengths(layer: str, normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    """The lengths of the axes that are normalised; an error unless each is positive and there is one."""
    single = not isinstance(normalized_shape, tuple | list)
    lengths: tuple[Any, ...] = (normalized_shape,) if single else tuple(normalized_shape)  # type: ignore[arg-type]
    if not lengths:
        raise ArgumentError(f"[{layer}] expected normalized_shape with at least one length, got none")
    return tuple([positive(n, "normalized_shape", layer) for n in lengths])


class GroupNorm(Affine, ImageLayer):
    """y = (x - mean) / sqrt(var + eps) * weight + bias over the positions and a group of channels of each sample.

    Wu & He, arXiv 1803.08494. Neighbouring channels form a group.

    Args:
        num_groups: groups that the channels are split into.
        num_channels: the number of channels.
        eps: added to the variance.
        affine: whether weight and bias, one per channel, are learned.
        bias: whether a bias is learned beside the weight.
        device, dtype: where the parameters are made, and of which floats; the defaults unless given.
        layout: the order of axes, as for ``Conv2d``.
    """

    @placed
    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Device = None,
        dtype: DtypeLike = None,
        *,
        bias: bool = True,
        layout: str | None = None,
    ) -> None:
        self.num_groups = positive(num_groups, "num_groups", "GroupNorm")
        self.num_channels = positive(num_channels, "num_channels", "GroupNorm")
        if self.num_channels % self.num_groups:
            raise ArgumentError(
                f"[GroupNorm] expected num_groups that divide num_channels, got num_groups={num_groups} and "
                f"num_channels={num_channels}"
            )
        self.affine = affine = flag("GroupNorm", "affine", affine)
        super().__init__((self.num_channels,), eps, affine, flag("GroupNorm", "bias", bias) and affine)
        self._set_layout(layout)

    def forward(self, x: Tensor) -> Tensor:
        """(N, ..., num_channels) to the same."""
        if x.ndim < 2 or x.shape[self._channel_axis(x.ndim)] != self.num_channels:
            channels = self.num_channels
            first, last = (
                (f"x (N, {channels}, ...)", "second, as (N, C, H, W)"),
                (f"x (N, ..., {channels})", "last, as (N, H, W, C)"),
            )
            wanted, place = first if self.layout == "NCHW" else last
            raise ShapeError(f"[group_norm] expected {wanted}, got {x.shape}: channels come {place}")
        return F.group_norm(x, self.num_groups, self.weight, self.bias, self.eps, layout=self.layout)

    def extra_repr(self) -> str:
        parts = f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"
        return f"{parts}, bias={self.bias is not None}"
