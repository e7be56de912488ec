"""Comparison, logic and selection; what kinds of numbers there are. Of these only ``where`` has a gradient."""

from __future__ import annotations

import math
from typing import Any, overload

import numpy as np

from alpha import dtypes
from alpha.arguments import flag, number
from alpha.errors import ArgumentError, DtypeError, described
from alpha.expressions import symbols
from alpha.expressions.functions import pointwise
from alpha.functions.casting import cast
from alpha.functions.complex_arithmetic import of_complex
from alpha.functions.operands import (
    TensorLike,
    broadcast_shape,
    check_tensor,
    common_dtype,
    compute,
    filled,
    is_number,
    operands,
    widest_dtype,
)
from alpha.functions.primitives import OF_BOOLS, PRIMITIVES, alike, computed, convert, evaluated
from alpha.tensor import Tensor

__all__ = [
    "allclose", "can_cast", "eq", "equal", "ge", "greater", "greater_equal", "gt", "heaviside", "is_complex",
    "is_floating_point", "is_tensor", "isclose", "isfinite", "isinf", "isnan", "isneginf", "isposinf", "isreal", "le",
    "less", "less_equal", "logical_and", "logical_not", "logical_or", "logical_xor", "lt", "ne", "not_equal",
    "promote_types", "result_type", "signbit", "where",
]  # fmt: skip

# -- selection ---------------------------------------------------------------------------------------------------


@pointwise
def _where(condition: Any, x: Any, y: Any) -> Any:
    return symbols.apply("where", condition, x, y)


_where.takes_integers = True


@overload
def where(condition: TensorLike) -> tuple[Tensor, ...]: ...


@overload
def where(condition: TensorLike, input: TensorLike, other: TensorLike) -> Tensor: ...


def where(condition: TensorLike, input: TensorLike | None = None, other: TensorLike | None = None) -> Any:
    """input where the condition (bool) holds, else other; the three broadcast.

    Of a condition alone ``nonzero`` as a tuple.
    """
    if input is None or other is None:
        if input is not other:
            raise ArgumentError("[where] expected a condition alone or three arguments, got two: give other as well")
        from alpha.functions.selection import nonzero  # here: it imports this module

        return nonzero(condition, as_tuple=True)
    x, y = input, other
    found: Tensor | None = _where.latest.launch_outside(condition, x, y)
    if found is not None:
        return found
    if symbols.is_symbolic(condition, x, y):
        return _where(condition, x, y)
    first, second = (x, y) if type(x) is Tensor else (y, x)
    if type(condition) is Tensor and dtypes.is_bool(condition.dtype) and alike((first, second)):
        return _where(condition, x, y)
    mask, x, y = operands("where", np.asarray(condition) if is_number(condition) else condition, x, y)
    if not dtypes.is_bool(mask.dtype):
        raise DtypeError(f"[where] expected a condition of bool, got {mask.dtype}: compare it first")
    if not isinstance(x, Tensor) and not isinstance(y, Tensor):
        x = filled(mask.strided(mask.offset, (), ()), x, common_dtype((x, y)))
    values = x, y
    dtype = common_dtype(values)
    broadcast_shape("where", mask, *values)
    x, y = (cast(value, dtype) if isinstance(value, Tensor) else value for value in values)
    if dtypes.is_complex(dtype):
        return of_complex("where", mask, x, y)
    return _where(mask, x, y) if dtypes.is_float(dtype) else computed(_where, "where", mask, x, y)


@pointwise
def _heaviside(x: Any, values: Any) -> Any:
    return symbols.apply("where", x == 0, values, symbols.apply("where", x > 0, 1.0, 0.0))


def heaviside(input: TensorLike, values: TensorLike) -> Tensor:
    """0 below 0, 1 above, and at 0 the values, broadcast; outside the graph. Both are of one dtype."""
    found = operands("heaviside", input, values)
    kinds = {x.dtype if isinstance(x, Tensor) else dtypes.of_scalar(x) for x in found}
    if len(kinds) > 1:
        raise DtypeError(
            f"[heaviside] expected input and values of one dtype, got {' and '.join(sorted(map(str, kinds)))}: cast one"
        )
    x, y = [value.detach() if isinstance(value, Tensor) else value for value in found]
    if dtypes.is_float(kinds.pop()):
        return _heaviside(x, y)
    return where(eq(x, 0), y, cast(gt(x, 0), y.dtype))


# -- comparison and logic ----------------------------------------------------------------------------------------


def _compare(name: str, x: TensorLike, y: TensorLike) -> Tensor:
    found: Tensor | None = PRIMITIVES[name].latest.launch_outside(x, y)
    if found is not None:
        return found
    return evaluated(name, *convert(name, x, y, logical=True, dtype_of=widest_dtype))


def _logical(name: str, *values: TensorLike) -> Tensor:
    for value in values:
        if type(value) is not Tensor or not dtypes.is_bool(value.dtype):
            return evaluated(name, *convert(name, *values, logical=True, dtype_of=widest_dtype))
    return OF_BOOLS[name](*values)


def eq(input: TensorLike, other: TensorLike) -> Tensor:
    """Where input equals other, as bool."""
    return _compare("eq", input, other)


def ne(input: TensorLike, other: TensorLike) -> Tensor:
    """Where input differs from other, as bool."""
    return _compare("ne", input, other)


def lt(input: TensorLike, other: TensorLike) -> Tensor:
    """Where input < other, as bool."""
    return _compare("lt", input, other)


def le(input: TensorLike, other: TensorLike) -> Tensor:
    """Where input <= other, as bool."""
    return _compare("le", input, other)


def gt(input: TensorLike, other: TensorLike) -> Tensor:
    """Where input > other, as bool."""
    return _compare("gt", input, other)


def ge(input: TensorLike, other: TensorLike) -> Tensor:
    """Where input >= other, as bool."""
    return _compare("ge", input, other)


def logical_and(input: TensorLike, other: TensorLike) -> Tensor:
    """Where both differ from 0, as bool."""
    return _logical("logical_and", input, other)


def logical_or(input: TensorLike, other: TensorLike) -> Tensor:
    """Where either differs from 0, as bool."""
    return _logical("logical_or", input, other)


def logical_xor(input: TensorLike, other: TensorLike) -> Tensor:
    """Where exactly one differs from 0, as bool."""
    return _logical("logical_xor", input, other)


def logical_not(input: TensorLike) -> Tensor:
    """Where input is 0, as bool."""
    return _logical("logical_not", input)


def isfinite(input: TensorLike) -> Tensor:
    """Where elements are neither infinite nor NaN, as bool."""
    found: Tensor | None = PRIMITIVES["isfinite"].latest.launch_outside(input)
    return found if found is not None else evaluated("isfinite", convert("isfinite", input, logical=True)[0])


def isnan(input: TensorLike) -> Tensor:
    """Where elements are NaN, as bool."""
    found: Tensor | None = PRIMITIVES["isnan"].latest.launch_outside(input)
    if found is not None:
        return found
    (value,) = convert("isnan", input, logical=True)
    is_whole = isinstance(value, Tensor) and not dtypes.is_float(value.dtype)
    return compute("ne", value, value) if is_whole else PRIMITIVES["isnan"](value)


@pointwise
def _isinf(x: Any) -> Any:
    return abs(x) == math.inf


@pointwise
def _isposinf(x: Any) -> Any:
    return x == math.inf


@pointwise
def _isneginf(x: Any) -> Any:
    return x == -math.inf


@pointwise
def _signbit(x: Any) -> Any:
    return symbols.apply("copysign", 1.0, x) < 0


def isinf(input: TensorLike) -> Tensor:
    """Where elements are infinite, as bool."""
    return _kind("isinf", input)


def isposinf(input: TensorLike) -> Tensor:
    """Where elements are inf, as bool."""
    return _kind("isposinf", input)


def isneginf(input: TensorLike) -> Tensor:
    """Where elements are -inf, as bool."""
    return _kind("isneginf", input)


def signbit(input: TensorLike) -> Tensor:
    """Where elements have a minus sign, -0 too, as bool."""
    return _kind("signbit", input)


_KINDS = {"isinf": _isinf, "isposinf": _isposinf, "isneginf": _isneginf, "signbit": _signbit}


def _kind(name: str, x: TensorLike) -> Tensor:
    expression = _KINDS[name]
    found: Tensor | None = expression.latest.launch_outside(x)
    if found is not None:
        return found
    value = convert(name, x, logical=True)[0]
    if symbols.is_symbolic(value) or dtypes.is_float(value.dtype):
        return expression(value)
    if dtypes.is_complex(value.dtype):
        if name != "isinf":
            return of_complex(name, value)  # which says that there is none
        from alpha.functions.complex_numbers import imag, real  # here: it imports this family

        return logical_or(isinf(real(value.detach())), isinf(imag(value.detach())))
    return lt(value, 0) if name == "signbit" else ne(value, value)


def isreal(input: TensorLike) -> Tensor:
    """Where elements are real numbers, as bool: where their imaginary part is 0."""
    value = convert("isreal", input, logical=True)[0]
    if dtypes.is_complex(value.dtype):
        from alpha.functions.complex_numbers import imag  # here: it imports this family

        return eq(imag(value.detach()), 0)
    return filled(value, True, dtypes.bool_)


@pointwise
def _isclose(x: Any, y: Any, relative: Any, absolute: Any) -> Any:
    difference = abs(x - y)
    within = symbols.apply("isfinite", difference) & (difference <= absolute + abs(y * relative))
    return (x == y) | within


@pointwise
def _isclose_or_nan(x: Any, y: Any, relative: Any, absolute: Any) -> Any:
    return _isclose(x, y, relative, absolute) | (isnan(x) & isnan(y))


def isclose(
    input: TensorLike, other: TensorLike, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Tensor:
    """Where |input - other| <= atol + rtol * |other|, broadcast, as bool; where they are equal in any case."""
    relative, absolute = number("isclose", "rtol", rtol), number("isclose", "atol", atol)
    if not (relative >= 0 and absolute >= 0):
        raise ArgumentError(f"[isclose] expected rtol and atol >= 0, got {rtol} and {atol}")
    function = _isclose_or_nan if flag("isclose", "equal_nan", equal_nan) else _isclose
    values = convert("isclose", input, other, floating=True, logical=True)
    if any(isinstance(v, Tensor) and dtypes.is_complex(v.dtype) for v in values):
        first, second = values
        return _are_close(first, second, relative, absolute, equal_nan)
    return function(*[v.detach() if isinstance(v, Tensor) else v for v in values], relative, absolute)


def _are_close(x: Any, y: Any, relative: float, absolute: float, equal_nan: bool) -> Tensor:
    """``isclose`` of complex numbers: their distance is compared."""
    x, y = [v.detach() if isinstance(v, Tensor) else v for v in (x, y)]
    distance = (x - y).abs()
    size = y.abs() if isinstance(y, Tensor) else abs(y)
    found = logical_or(eq(x, y), logical_and(isfinite(distance), le(distance, absolute + relative * size)))
    return logical_or(found, logical_and(ne(x, x), ne(y, y))) if equal_nan and isinstance(y, Tensor) else found


def allclose(
    input: TensorLike, other: TensorLike, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> bool:
    """Whether ``isclose`` holds everywhere."""
    return _everywhere(isclose(input, other, rtol, atol, equal_nan))


def equal(input: Tensor, other: Tensor) -> bool:
    """Whether both have one shape and equal elements."""
    check_tensor("equal", input, other)
    return input.shape == other.shape and _everywhere(eq(input, other))


def _everywhere(found: Tensor) -> bool:
    return bool(found.engine.reduce("all", found, tuple(range(found.ndim)), False).item())


# -- dtypes ------------------------------------------------------------------------------------------------------


def is_tensor(obj: Any) -> bool:
    """Whether it is a Tensor."""
    return isinstance(obj, Tensor)


def is_floating_point(input: Tensor) -> bool:
    """Whether a tensor is of floats."""
    check_tensor("is_floating_point", input)
    return dtypes.is_float(input.dtype)


def is_complex(input: Tensor) -> bool:
    """Whether a tensor is of complex numbers."""
    check_tensor("is_complex", input)
    return dtypes.is_complex(input.dtype)


def result_type(tensor1: TensorLike, tensor2: TensorLike) -> dtypes.DType:
    """The dtype in which two tensors or numbers meet in arithmetic."""
    for value in (tensor1, tensor2):
        if not isinstance(value, Tensor) and not is_number(value):
            raise DtypeError(f"[result_type] expected tensors and numbers, got {described(value)}")
    return common_dtype([tensor1, tensor2])


def promote_types(type1: dtypes.DtypeLike, type2: dtypes.DtypeLike) -> dtypes.DType:
    """The dtype in which tensors of two dtypes meet in arithmetic."""
    return dtypes.promote(dtypes.as_dtype(type1, "promote_types"), dtypes.as_dtype(type2, "promote_types"))


def can_cast(from_: dtypes.DtypeLike, to: dtypes.DtypeLike) -> bool:
    """Whether numbers may be written into a tensor of another dtype: from bool to integer to float, not back."""
    given, wanted = dtypes.as_dtype(from_, "can_cast"), dtypes.as_dtype(to, "can_cast")
    return dtypes.category(given) <= dtypes.category(wanted)


# PyTorch's other names.
greater, greater_equal, less, less_equal, not_equal = gt, ge, lt, le, ne
