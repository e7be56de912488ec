"""Dropout with counter-based random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha import random
from alpha.arguments import flag
from alpha.autograd import Function
from alpha.dtypes import is_float
from alpha.errors import ArgumentError, DtypeError, described
from alpha.expressions import dropout as expression
from alpha.functions.elementwise import where
from alpha.functions.inplace import written_by
from alpha.tensor import Tensor

__all__ = ["dropout"]


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
        (mask,) = self.saved
        return where(mask, grad * self.scale, 0.0)


def dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Each element is 0 with probability p, else x / (1 - p); x itself unless ``training``. ``inplace`` writes it to x.

    The draw depends on ``alpha.manual_seed`` and what was drawn before, and is the same on every engine.
    Srivastava et al., JMLR 15, 2014.
    """
    if isinstance(p, bool) or not isinstance(p, int | float | np.integer | np.floating) or not 0 <= p <= 1:
        raise ArgumentError(f"[dropout] expected a probability p in 0..1, got {described(p)}")
    if not isinstance(x, Tensor) or not is_float(x.dtype):
        kind: Any = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise DtypeError(f"[dropout] expected a float32 or float64 tensor, got {kind}: cast it with .float()")
    if not flag("dropout", "training", training) or p == 0:
        return x
    if inplace is not False and flag("dropout", "inplace", inplace):
        written: Tensor = _written(x, p)
        return written
    out: Tensor = Dropout.apply(x, float(p))
    return out


_written = written_by(dropout)
