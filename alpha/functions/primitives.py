"""Primitives: the functions that are one operation of expressions, and how arguments become theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from alpha import dtypes
from alpha.errors import DtypeError
from alpha.expressions import symbols
from alpha.expressions.functions import PointwiseFunction, pointwise
from alpha.expressions.graph import FLOAT, NUMBER
from alpha.expressions.operations import kind_of, program_of
from alpha.expressions.program import Program
from alpha.functions.autocasting import in_float32
from alpha.functions.casting import cast
from alpha.functions.complex_arithmetic import of_complex
from alpha.functions.operands import Number, TensorLike, broadcast_shape, common_dtype, compute, operands
from alpha.tensor import Tensor

# Each function of floats is one expression; its loop and its gradients' loop come from it (alpha/expressions).
# Integers and bools have no gradients: of them the engine computes the operation of the same name.


def _primitive(operation: str) -> PointwiseFunction:
    """The function of one operation that expressions have."""
    if operation in _OF_TWO:
        function = pointwise(lambda x, y: symbols.apply(operation, x, y))
    else:
        function = pointwise(lambda x: symbols.apply(operation, x))
    function.name = operation
    function.takes_integers = operation != "pow"  # a launch would not look for integers to negative powers
    return function


_OF_TWO = (
    "add", "sub", "mul", "div", "floor_divide", "remainder", "fmod", "pow", "maximum", "minimum", "atan2", "copysign",
    "nextafter", "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift", "eq", "ne", "lt", "le", "gt",
    "ge", "logical_and", "logical_or", "logical_xor",
)  # fmt: skip
_OF_ONE = (
    "neg", "abs", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "square", "reciprocal",
    "sin", "cos", "tan", "atan", "tanh", "sigmoid", "erf", "erfc", "erfcx", "erfinv", "ndtri", "lgamma",
    "i0e", "i1e", "sign", "floor", "ceil", "trunc", "round", "bitwise_not", "logical_not", "isfinite", "isnan",
)  # fmt: skip
PRIMITIVES = {operation: _primitive(operation) for operation in (*_OF_TWO, *_OF_ONE)}
"""The functions that are one operation, or one written by others (``alpha.expressions.symbols``)."""

OF_BOOLS = {operation: _primitive(operation) for operation in PRIMITIVES if operation.startswith("logical_")}
"""The same of bools: kept apart, so that each finds at once what it was traced to."""

# Gradients whose largest and smallest numbers are PyTorch's: those derived from products differ there.
PRIMITIVES["square"].gradient(lambda grad, x: grad * (x * 2))


def evaluated(operation: str, *values: Any) -> Tensor:
    """An operation of tensors of one dtype, numbers, and symbols."""
    for value in values:
        if type(value) is Tensor:
            if not dtypes.is_float(value.dtype):
                if dtypes.is_complex(value.dtype) and operation not in _OF_ANY:
                    return of_complex(operation, *values)
                return computed(PRIMITIVES[operation], operation, *values)
            break
    return PRIMITIVES[operation](*values)


def computed(function: PointwiseFunction, operation: str, *values: Any) -> Tensor:
    """The engine's operation of integers and bools, whose launch the function will try first at the next call."""
    result = compute(operation, *values)
    program = launchable(operation, *values)
    if program is not None:
        function.latest = program.launches
    return result


def launchable(operation: str, *values: Any) -> Program | None:
    """The program of an operation of integers or bools whose launch takes the values as they are; None without one."""
    kinds = tuple([kind_of(value) for value in values])
    tensors = [kind for kind in kinds if kind != NUMBER]
    in_order = (*tensors, *[NUMBER] * (len(kinds) - len(tensors))) == kinds
    # A number beside bools may be of another dtype.
    return program_of(operation, kinds) if in_order and (FLOAT in kinds or NUMBER not in kinds) else None


def of_integers(function: PointwiseFunction, *values: Any) -> Tensor:
    """A function's program of tensors of integers, and numbers after them."""
    tensors = [value for value in values if isinstance(value, Tensor)]
    program = function.of_kinds(tuple([kind_of(value) for value in values])).program
    result: Tensor = tensors[0].engine.pointwise(function.name, program, tensors, values[len(tensors) :])[0]
    function.latest = program.launches
    return result


def convert(
    name: str,
    *values: Any,
    floating: bool = False,
    logical: bool = False,
    dtype_of: Callable[[Sequence[Tensor | Number]], np.dtype[Any]] = common_dtype,
) -> list[Any]:
    """Arguments as tensors of one dtype (and numbers) on one engine whose shapes broadcast.

    ``floating`` makes float32 of integers; bool is refused unless ``logical``. Symbols of ``alpha.pointwise`` stay.
    """
    if alike(values) or symbols.is_symbolic(*values):
        return list(values)
    found = operands(name, *values)
    dtype = dtype_of(found)
    if floating and not dtypes.has_gradients(dtype):
        dtype = dtypes.default_float
    if not logical and dtypes.is_bool(dtype):
        raise DtypeError(f"[{name}] expected numbers, got bool: cast it, or use the logical functions")
    broadcast_shape(name, *found)
    return [cast(value, dtype) if isinstance(value, Tensor) else value for value in found]


def alike(values: Sequence[Any]) -> bool:
    """Whether they are float tensors of one engine and dtype, and numbers: so they may stay as they are."""
    first = values[0]
    if type(first) is not Tensor or not dtypes.is_float(first.dtype):
        return False
    for value in values[1:]:
        if type(value) is Tensor:
            if value.dtype is not first.dtype or value.storage.engine is not first.storage.engine:
                return False
        elif type(value) is not float and (type(value) is not int or not -(2**63) <= value < 2**63):
            return False
    return True


def as_floats(name: str, x: TensorLike) -> Tensor:
    """The argument as floats: integers and bools become float32."""
    value: Tensor = convert(name, x, floating=True)[0]
    return value


def numeric(name: str, x: TensorLike) -> Tensor:
    """The argument as a tensor of numbers; DtypeError for bools."""
    value: Tensor = convert(name, x)[0]
    return value


_IN_FLOAT32 = (
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log1p", "log2", "reciprocal", "rsqrt", "sinh",
    "tan",
)  # fmt: skip
"""Functions whose results have few correct digits, or none, where their arguments have few; see ``autocasting``."""


def of_floats(expression: PointwiseFunction, description: str) -> Callable[[TensorLike], Tensor]:
    """The public function of one tensor that an expression is: integers and bools become float32."""
    name = expression.name.lstrip("_")

    def function(input: TensorLike) -> Tensor:
        found: Tensor | None = expression.latest.launch_outside(input)
        return applied(expression, as_floats(name, input)) if found is None else found

    _name(function, name, description, expression)
    return in_float32(function) if name in _IN_FLOAT32 else function


def of_two_floats(expression: PointwiseFunction, description: str) -> Callable[[TensorLike, TensorLike], Tensor]:
    """The public function of two tensors, or a tensor and a number, that an expression is; they broadcast."""
    name = expression.name.lstrip("_")

    def function(input: TensorLike, other: TensorLike) -> Tensor:
        found: Tensor | None = expression.latest.launch_outside(input, other)
        if found is not None:
            return found
        return applied(expression, *convert(name, input, other, floating=True, logical=True))

    _name(function, name, description, expression)
    return function


def applied(expression: PointwiseFunction, *values: Any) -> Tensor:
    """A function of floats, or that of complex numbers of the same name."""
    if any(isinstance(value, Tensor) and dtypes.is_complex(value.dtype) for value in values):
        return of_complex(expression.name.lstrip("_"), *values)
    return expression(*values)


_OF_ANY = ("eq", "ne", "logical_and", "logical_or", "logical_xor", "logical_not", "isfinite", "isnan")
"""Operations whose results are bools, of complex numbers too."""

EXPRESSIONS: dict[str, PointwiseFunction] = {}
"""By the names of the public functions of floats that they are: in place these are one pass over memory."""


def _name(function: Any, name: str, description: str, expression: PointwiseFunction) -> None:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = description
    EXPRESSIONS[name] = expression
