"""Arithmetic and elementary functions of complex numbers, which NumPy computes, and their gradients.

Gradients are PyTorch's: of a real loss L with z = x + iy it is dL/dx + i dL/dy. For a function f that is holomorphic
the gradient of its argument is that of its result times the conjugate of f'(z) (Kreutz-Delgado, "The complex gradient
operator and the CR-calculus", 2009).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from alpha import dtypes
from alpha.autograd import Function
from alpha.errors import DtypeError
from alpha.tensor import Tensor

Slopes = Callable[..., Sequence[Any]]


def of_complex(operation: str, *values: Any) -> Tensor:
    """An operation of tensors of one complex dtype and numbers; DtypeError where complex numbers have none such."""
    found = OPERATIONS.get(operation)
    if found is None:
        raise DtypeError(
            f"[{operation}] expected floats, got complex numbers, which have no such function: take .abs(), .real or "
            ".imag"
        )
    result: Tensor = Holomorphic.apply(*values, operation=operation)
    return result


def on_host(function: str, x: Tensor) -> np.ndarray[Any, Any]:
    """A complex tensor's array; DtypeError where it does not lie in the host's memory."""
    if not x.engine.memory.is_on_host:
        raise DtypeError(
            f"[{function}] expected floats on {x.engine.name}, got {x.dtype}: complex numbers are computed on the CPU "
            "alone, move them with .to('cpu')"
        )
    return x.engine.to_numpy(x)


class Holomorphic(Function):
    """One of ``OPERATIONS``."""

    fresh = True

    def forward(self, *values: Any, operation: str) -> Tensor:
        self.operation = operation
        tensors = [value for value in values if isinstance(value, Tensor)]
        self.values = [None if isinstance(value, Tensor) else value for value in values]
        self.shapes = [value.shape if isinstance(value, Tensor) else () for value in values]
        dtype = tensors[-1].dtype
        arrays = [on_host(operation, x) if isinstance(x, Tensor) else np.asarray(x).astype(dtype) for x in values]
        with np.errstate(all="ignore"):
            result = tensors[0].engine.from_numpy(np.asarray(OPERATIONS[operation][0](*arrays), dtype))
        reads = _READS.get(operation, "a")
        names = "mab" if operation == "where" else "ab"
        kept = [x if isinstance(x, Tensor) and name in reads else None for x, name in zip(values, names, strict=False)]
        self.save(*kept, result if "y" in reads else None)
        return result

    @property
    def title(self) -> str:
        return self.operation

    def backward(self, grad: Tensor) -> list[Tensor | None]:
        *kept, result = self.saved
        values = [x if number is None else number for x, number in zip(kept, self.values, strict=True)]
        slopes = OPERATIONS[self.operation][1](result, *values)
        found: list[Tensor | None] = []
        for need, slope, shape in zip(self.needs, slopes, self.shapes, strict=True):
            found.append(_summed(_scaled(grad, slope), shape) if need else None)
        return found


def _scaled(grad: Tensor, slope: Any) -> Tensor:
    """A gradient times the conjugate of a slope; a slope of bools says where it flows."""
    if not isinstance(slope, Tensor):
        return grad * slope.conjugate()  # type: ignore[no-any-return]
    return of_complex("where", slope, grad, 0) if dtypes.is_bool(slope.dtype) else grad * conjugate(slope)


def _summed(grad: Any, shape: tuple[int, ...]) -> Tensor:
    """The gradient of an operand that was repeated, which is of its dtype."""
    extra = grad.ndim - len(shape)
    axes = tuple(a for a in range(grad.ndim) if a < extra or (shape[a - extra] == 1 and grad.shape[a] != 1))
    found: Tensor = grad.sum(axes).reshape(shape) if axes else grad
    return found


class Conjugate(Function):
    """The numbers with the sign of their imaginary parts turned."""

    fresh = True

    def forward(self, x: Tensor) -> Tensor:
        return x.engine.from_numpy(np.conj(on_host("conj", x)))

    def backward(self, grad: Tensor) -> Tensor:
        return conjugate(grad)


def conjugate(x: Tensor) -> Tensor:
    """The conjugates of complex numbers; other numbers as they are."""
    if not dtypes.is_complex(x.dtype):
        return x
    result: Tensor = Conjugate.apply(x)
    return result


def _power_slopes(y: Any, a: Any, b: Any) -> Sequence[Any]:
    # 0 has no logarithm: with respect to the exponent 0 ** b does not change.
    base = a if isinstance(a, Tensor) else y * 0 + a
    zero = base == 0
    logarithm = of_complex("log", of_complex("where", zero, base * 0 + 1, base)) if isinstance(b, Tensor) else None
    return b * base ** (b - 1), None if logarithm is None else y * logarithm


def _sinc_slope(y: Any, a: Any) -> Any:
    # At 0 the difference is 0, whatever it is divided by.
    return ((a * math.pi).cos() - y) / of_complex("where", a == 0, a * 0 + 1, a)


OPERATIONS: dict[str, tuple[Callable[..., Any], Slopes]] = {
    "add": (np.add, lambda y, a, b: (1, 1)),
    "sub": (np.subtract, lambda y, a, b: (1, -1)),
    "mul": (np.multiply, lambda y, a, b: (b, a)),
    "div": (np.divide, lambda y, a, b: (1 / b, -y / b)),
    "pow": (np.power, _power_slopes),
    "where": (np.where, lambda y, mask, a, b: (None, mask, ~mask)),
    "neg": (np.negative, lambda y, a: (-1,)),
    "square": (np.square, lambda y, a: (2 * a,)),
    "reciprocal": (np.reciprocal, lambda y, a: (-y * y,)),
    "sqrt": (np.sqrt, lambda y, a: (0.5 / y,)),
    "rsqrt": (lambda a: 1 / np.sqrt(a), lambda y, a: (-0.5 * y / a,)),
    "exp": (np.exp, lambda y, a: (y,)),
    "exp2": (lambda a: np.exp(a * a.real.dtype.type(math.log(2))), lambda y, a: (y * math.log(2),)),
    "expm1": (np.expm1, lambda y, a: (y + 1,)),
    "log": (np.log, lambda y, a: (1 / a,)),
    "log2": (np.log2, lambda y, a: (1 / (a * math.log(2)),)),
    "log10": (np.log10, lambda y, a: (1 / (a * math.log(10)),)),
    "log1p": (np.log1p, lambda y, a: (1 / (a + 1),)),
    "sigmoid": (lambda a: 1 / (1 + np.exp(-a)), lambda y, a: (y * (1 - y),)),
    "sin": (np.sin, lambda y, a: (a.cos(),)),
    "cos": (np.cos, lambda y, a: (-a.sin(),)),
    "tan": (np.tan, lambda y, a: (1 + y * y,)),
    "sinc": (np.sinc, lambda y, a: (_sinc_slope(y, a),)),
    "asin": (np.arcsin, lambda y, a: (1 / (1 - a * a).sqrt(),)),
    "acos": (np.arccos, lambda y, a: (-1 / (1 - a * a).sqrt(),)),
    "atan": (np.arctan, lambda y, a: (1 / (1 + a * a),)),
    "sinh": (np.sinh, lambda y, a: (a.cosh(),)),
    "cosh": (np.cosh, lambda y, a: (a.sinh(),)),
    "tanh": (np.tanh, lambda y, a: (1 - y * y,)),
    "asinh": (np.arcsinh, lambda y, a: (1 / (1 + a * a).sqrt(),)),
    "acosh": (np.arccosh, lambda y, a: (1 / ((a - 1).sqrt() * (a + 1).sqrt()),)),
    "atanh": (np.arctanh, lambda y, a: (1 / (1 - a * a),)),
}
"""What NumPy computes, and the derivatives by each argument, of the result and the arguments."""

_READS = {
    "add": "", "sub": "", "neg": "", "mul": "ab", "div": "yb", "pow": "yab", "where": "m", "reciprocal": "y",
    "sqrt": "y", "rsqrt": "ya", "exp": "y", "exp2": "y", "expm1": "y", "sigmoid": "y", "tan": "y", "tanh": "y",
    "sinc": "ya",
}  # fmt: skip
"""What derivatives are made of: the result y, the arguments a and b, the condition m; of others the argument."""
