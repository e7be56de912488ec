"""Complex numbers and their parts: real and imaginary, absolute values and angles, conjugates."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha import dtypes
from alpha.autograd import Function
from alpha.errors import DtypeError, ShapeError
from alpha.functions.arithmetic import atan2, mul
from alpha.functions.casting import cast, clone
from alpha.functions.comparison import isnan, where
from alpha.functions.complex_arithmetic import conjugate, on_host
from alpha.functions.joining import stack
from alpha.functions.operands import TensorLike, call, check_float, check_tensor, operands
from alpha.functions.transcendental import cos, sin
from alpha.functions.views import broadcast_tensors
from alpha.tensor import Tensor

__all__ = [
    "angle", "complex", "conj", "conj_physical", "imag", "is_conj", "polar", "real", "resolve_conj", "resolve_neg",
    "view_as_complex", "view_as_real",
]  # fmt: skip


class AsReal(Function):
    """Complex numbers as pairs of floats."""

    def forward(self, x: Tensor) -> Tensor:
        shape, strides = (*x.shape, 2), (*[2 * stride for stride in x.strides], 1)
        found = Tensor(x.storage, 2 * x.offset, shape, strides, dtypes.real_of(x.dtype))
        return x.engine.copied(found) if self.needs[0] else found

    def backward(self, grad: Tensor) -> Tensor:
        return view_as_complex(grad)


class AsComplex(Function):
    """Pairs of floats as complex numbers."""

    def forward(self, x: Tensor) -> Tensor:
        pairs = x
        is_apart = x.strides[-1] != 1 or x.offset % 2 or any(stride % 2 for stride in x.strides[:-1])
        if is_apart or self.needs[0]:
            pairs = x.engine.copied(x, tuple(range(x.ndim)))
        strides = tuple([stride // 2 for stride in pairs.strides[:-1]])
        return Tensor(pairs.storage, pairs.offset // 2, x.shape[:-1], strides, dtypes.complex_of(x.dtype))

    def backward(self, grad: Tensor) -> Tensor:
        return view_as_real(grad)


class Absolute(Function):
    """The absolute values of complex numbers, as floats; the gradient at 0 is 0."""

    fresh = True

    def forward(self, x: Tensor) -> Tensor:
        self.save(x)
        return x.engine.from_numpy(np.abs(on_host("abs", x)))

    def backward(self, grad: Tensor) -> Tensor:
        (x,) = self.saved
        return direction(x) * grad


def absolute_of_complex(x: Tensor) -> Tensor:
    """|x| of complex numbers, as floats."""
    return call(Absolute, x)


def direction(x: Tensor) -> Tensor:
    """x / |x| of complex numbers, 0 at 0."""
    size = absolute_of_complex(x)
    return where(size == 0, 0.0, x / where(size == 0, 1.0, size))


def view_as_real(input: Tensor) -> Tensor:
    """Complex numbers as floats (..., 2): real and imaginary parts, in the same memory.

    Within the graph it is a copy, so that what is written to it is not lost to gradients. DtypeError unless complex.
    """
    return call(AsReal, _complex("view_as_real", input))


def view_as_complex(input: Tensor) -> Tensor:
    """Floats (..., 2) as complex numbers (...), in the same memory where pairs lie side by side; else a copy."""
    check_float("view_as_complex", input)
    if not input.shape or input.shape[-1] != 2:
        raise ShapeError(
            f"[view_as_complex] expected a last axis of length 2, got shape {input.shape}: stack the parts"
        )
    return call(AsComplex, input if input.dtype in dtypes.FLOATS else cast(input, dtypes.float32))


def real(input: Tensor) -> Tensor:
    """The real parts of complex numbers, in the same memory outside the graph; of other numbers themselves."""
    check_tensor("real", input)
    return view_as_real(input)[..., 0] if dtypes.is_complex(input.dtype) else input


def imag(input: Tensor) -> Tensor:
    """The imaginary parts of complex numbers, in the same memory outside the graph; DtypeError for other numbers."""
    return view_as_real(_complex("imag", input))[..., 1]


def complex(real: Tensor, imag: Tensor) -> Tensor:
    """real + i * imag of two float tensors of one dtype, broadcast."""
    check_float("complex", real, imag)
    if real.dtype != imag.dtype:
        raise DtypeError(f"[complex] expected parts of one dtype, got {real.dtype} and {imag.dtype}: cast one")
    return view_as_complex(stack(broadcast_tensors(real, imag), -1))


def polar(abs: Tensor, angle: Tensor) -> Tensor:
    """abs * (cos(angle) + i * sin(angle)) of two float tensors of one dtype, broadcast."""
    check_float("polar", abs, angle)
    return complex(mul(abs, cos(angle)), mul(abs, sin(angle)))


def conj(input: Tensor) -> Tensor:
    """Complex conjugates; other numbers as they are."""
    check_tensor("conj", input)
    return conjugate(input)


def conj_physical(input: Tensor) -> Tensor:
    """Complex conjugates; a copy of other numbers."""
    check_tensor("conj_physical", input)
    return conjugate(input) if dtypes.is_complex(input.dtype) else clone(input)


def angle(input: TensorLike) -> Tensor:
    """The angles of complex numbers in radians; of others 0, pi of negative ones and NaN of NaN, as float32."""
    value: Any = operands("angle", input)[0]
    if dtypes.is_complex(value.dtype):
        return atan2(imag(value), real(value))
    value = value if dtypes.is_float(value.dtype) else cast(value, dtypes.default_float)
    return where(value < 0, float(np.pi), where(isnan(value), value, 0.0))


def of_parts(like: Tensor, first: Any, second: Any) -> Tensor:
    """Complex numbers of parts, of which one is a tensor and one may be a number; both are cast to a tensor's parts."""
    kind = dtypes.real_of(_complex("of_parts", like).dtype)
    one, other = [
        cast(x, kind) if isinstance(x, Tensor) else like.engine.full((), x, kind)
        for x in operands("complex", first, second)
    ]
    return complex(one, other)


def is_conj(input: Tensor) -> bool:
    """Whether conjugates are still to be computed: never, for ``conj`` computes them."""
    check_tensor("is_conj", input)
    return False


def resolve_conj(input: Tensor) -> Tensor:
    """The tensor itself: ``conj`` has computed what it stands for."""
    check_tensor("resolve_conj", input)
    return input


def resolve_neg(input: Tensor) -> Tensor:
    """The tensor itself: no negation waits to be computed."""
    check_tensor("resolve_neg", input)
    return input


def _complex(function: str, x: Any) -> Tensor:
    check_tensor(function, x)
    if not dtypes.is_complex(x.dtype):
        raise DtypeError(f"[{function}] expected complex64 or complex128, got {x.dtype}: see alpha.complex")
    found: Tensor = x
    return found
