"""Dropout with counter-based random numbers: of elements, of channels, and that which keeps mean and variance."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from alpha import random
from alpha.arguments import flag
from alpha.autograd import Function
from alpha.dtypes import is_float
from alpha.errors import ArgumentError, DtypeError, ShapeError, described
from alpha.expressions import dropout as expression
from alpha.expressions.functions import pointwise
from alpha.functions.drawing import rand
from alpha.functions.elementwise import where
from alpha.functions.images import of_images
from alpha.functions.inplace import written_by
from alpha.tensor import Tensor

__all__ = ["alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"]

_SATURATION = 1.7580993408473766
"""Minus the least value of SELU: scale * alpha of Klambauer et al., arXiv 1706.02515."""


class Dropout(Function):
    """Zeroes elements at random and scales the others."""

    fresh = True

    def forward(self, x: Tensor, p: float) -> Tensor:
        seed, offset = random.reserve(x.numel())
        out, mask = x.engine.dropout(x, p, seed, offset)
        self.scale = expression.scale(p)
        self.save(mask)
        return out

    def backward(self, grad: Tensor) -> Tensor:
        (mask,) = self.saved
        return grad.storage.engine.pointwise("dropout", expression.KEPT, (grad, mask), (self.scale,))[0]

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        """The same as a function of the gradient."""
        (mask,) = self.saved
        return _kept(grad, mask, self.scale, 0.0, 0.0)


@pointwise
def _kept(x, mask, scale, shift, dropped):  # type: ignore[no-untyped-def]
    """Not a product with the mask: an element that is not finite stays out of what is dropped."""
    return where(mask, x * scale + shift, dropped)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Each element is 0 with probability p, else x / (1 - p); ``input`` itself unless ``training``.

    ``inplace`` writes it to the input. The draw depends on ``alpha.manual_seed`` and what was drawn before, and is the
    same on every engine. Srivastava et al., JMLR 15, 2014.
    """
    if not _drops("dropout", input, p, training):
        return input
    if inplace is not False and flag("dropout", "inplace", inplace):
        written: Tensor = _written(input, p)
        return written
    out: Tensor = Dropout.apply(input, float(p))
    return out


_written = written_by(dropout)


def _drops(function: str, x: Any, p: Any, training: Any) -> bool:
    """Whether anything is dropped, by arguments that are as they should be."""
    if isinstance(p, bool) or not isinstance(p, int | float | np.integer | np.floating) or not 0 <= p <= 1:
        raise ArgumentError(f"[{function}] expected a probability p in 0..1, got {described(p)}")
    if not isinstance(x, Tensor) or not is_float(x.dtype):
        kind: Any = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise DtypeError(f"[{function}] expected a float32 or float64 tensor, got {kind}: cast it with .float()")
    return flag(function, "training", training) and p != 0


# -- channels ----------------------------------------------------------------------------------------------------


def _channels(x: Tensor) -> tuple[int, ...]:
    """The shape of a mask that has an element for each channel of each sample of (N, ..., C)."""
    return (x.shape[0], *(1,) * (x.ndim - 2), x.shape[-1])


def _zeroed(x: Tensor, p: float) -> Tensor:
    """Channels that are 0 with probability p, else scaled."""
    return _kept(x, rand(_channels(x), engine=x.engine) >= p, expression.scale(p), 0.0, 0.0)


def _of_channels(name: str, drop: Callable[[Tensor, float], Tensor], axes: int | None, ndims: tuple[int, ...]) -> Any:
    """A function that drops whole channels of tensors with so many axes, the batch's among them."""

    @of_images("x", axes=axes)
    def dropped(x: Tensor, p: float, *, layout: str | None = None) -> Tensor:
        if x.ndim not in ndims:
            counts = " or ".join(str(n) for n in ndims)
            raise ShapeError(f"[{name}] expected a tensor (N, ..., C) of {counts} axes, got {x.shape}")
        return drop(x, p)

    dropped.__name__ = name
    return dropped


_OF_CHANNELS = {
    "dropout1d": _of_channels("dropout1d", _zeroed, 1, (3,)),
    "dropout2d": _of_channels("dropout2d", _zeroed, None, (2, 3, 4)),
    "dropout3d": _of_channels("dropout3d", _zeroed, 3, (5,)),
}


def _dropped(name: str, drop: Any, x: Tensor, p: float, training: bool, inplace: bool, **options: Any) -> Tensor:
    """What a function drops, written into x where that is asked for."""
    if not _drops(name, x, p, training):
        return x
    if flag(name, "inplace", inplace):
        written: Tensor = written_by(drop)(x, float(p), **options)
        return written
    found: Tensor = drop(x, float(p), **options)
    return found


def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, *, layout: str | None = None
) -> Tensor:
    """``dropout`` of whole channels of sequences (N, L, C), or one (L, C)."""
    return _dropped("dropout1d", _OF_CHANNELS["dropout1d"], input, p, training, inplace, layout=layout)


def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, *, layout: str | None = None
) -> Tensor:
    """``dropout`` of whole channels of images (N, H, W, C). Tompson et al., arXiv 1411.4280.

    Three axes are a batch of sequences (N, L, C), as PyTorch takes them.
    """
    return _dropped("dropout2d", _OF_CHANNELS["dropout2d"], input, p, training, inplace, layout=layout)


def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, *, layout: str | None = None
) -> Tensor:
    """``dropout`` of whole channels of volumes (N, D, H, W, C), or one (D, H, W, C)."""
    return _dropped("dropout3d", _OF_CHANNELS["dropout3d"], input, p, training, inplace, layout=layout)


# -- what keeps mean and variance --------------------------------------------------------------------------------


def _saturated(x: Tensor, p: float, shape: tuple[int, ...]) -> Tensor:
    """Elements at SELU's least value with probability p; all scaled and shifted to the mean 0 and variance 1."""
    if p == 1:
        return x * 0.0
    scale = 1 / math.sqrt((_SATURATION**2 * p + 1) * (1 - p))
    shift = scale * _SATURATION * p
    return _kept(x, rand(shape, engine=x.engine) >= p, scale, shift, shift - scale * _SATURATION)


def _saturated_elements(x: Tensor, p: float) -> Tensor:
    return _saturated(x, p, x.shape)


@of_images("x")
def _saturated_channels(x: Tensor, p: float, *, layout: str | None = None) -> Tensor:
    if x.ndim < 2:
        raise ShapeError(f"[feature_alpha_dropout] expected a tensor (N, ..., C), got {x.shape}")
    return _saturated(x, p, _channels(x))


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout for networks of SELU: elements become its least value, and mean and variance stay 0 and 1.

    Klambauer et al., arXiv 1706.02515.
    """
    return _dropped("alpha_dropout", _saturated_elements, input, p, training, inplace)


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False, *, layout: str | None = None
) -> Tensor:
    """``alpha_dropout`` of whole channels of (N, ..., C)."""
    return _dropped("feature_alpha_dropout", _saturated_channels, input, p, training, inplace, layout=layout)
