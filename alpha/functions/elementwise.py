"""Element-wise functions: arithmetic, comparison, logic, selection, casts; PyTorch's names and semantics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np

from alpha import dtypes
from alpha.arguments import Shape, axes_in_order
from alpha.autograd import Function
from alpha.engine import Engine, RangeCheck
from alpha.errors import ArgumentError, DtypeError
from alpha.expressions import symbols
from alpha.expressions.functions import PointwiseFunction, pointwise
from alpha.expressions.graph import FLOAT, NUMBER
from alpha.expressions.operations import kind_of, program_of
from alpha.expressions.program import Program, conversion
from alpha.functions.operands import (
    Number,
    TensorLike,
    broadcast_shape,
    call,
    check_tensor,
    common_dtype,
    compute,
    filled,
    is_bool,
    is_number,
    operands,
    widest_dtype,
)
from alpha.launches import COPY
from alpha.places import destination
from alpha.tensor import Tensor

__all__ = [
    "abs",
    "add",
    "cast",
    "ceil",
    "clamp",
    "clone",
    "contiguous",
    "cos",
    "div",
    "eq",
    "erf",
    "exp",
    "expm1",
    "floor",
    "floor_divide",
    "ge",
    "gt",
    "isfinite",
    "isnan",
    "le",
    "log",
    "log1p",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "lt",
    "maximum",
    "minimum",
    "mul",
    "ne",
    "neg",
    "pow",
    "reciprocal",
    "remainder",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sqrt",
    "square",
    "sub",
    "tanh",
    "to",
    "where",
]

# -- definitions -------------------------------------------------------------------------------------------------

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
    "add", "sub", "mul", "div", "floor_divide", "remainder", "pow", "maximum", "minimum", "eq", "ne", "lt", "le", "gt",
    "ge", "logical_and", "logical_or", "logical_xor",
)  # fmt: skip
_OF_ONE = (
    "neg", "abs", "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "square", "reciprocal", "sin", "cos", "tanh",
    "sigmoid", "erf", "sign", "floor", "ceil", "logical_not", "isfinite", "isnan",
)  # fmt: skip
PRIMITIVES = {operation: _primitive(operation) for operation in (*_OF_TWO, *_OF_ONE)}
"""The functions that are one operation, or one written by others (``alpha.expressions.symbols``)."""

_OF_BOOLS = {operation: _primitive(operation) for operation in PRIMITIVES if operation.startswith("logical_")}
"""The same of bools: kept apart, so that each finds at once what it was traced to."""

# Gradients whose largest and smallest numbers are PyTorch's: those derived from products differ there.
PRIMITIVES["square"].gradient(lambda grad, x: grad * (x * 2))


@pointwise
def _where(condition: Any, x: Any, y: Any) -> Any:
    return symbols.apply("where", condition, x, y)


@pointwise
def _clamp(x: Any, low: Any, high: Any) -> Any:
    return symbols.clamped(x, low, high)


@pointwise
def _clamp_from(x: Any, low: Any) -> Any:
    return symbols.clamped(x, low, None)


@pointwise
def _clamp_to(x: Any, high: Any) -> Any:
    return symbols.clamped(x, None, high)


for _function in (_where, _clamp, _clamp_from, _clamp_to):
    _function.takes_integers = True


def _evaluated(operation: str, *values: Any) -> Tensor:
    """An operation of tensors of one dtype, numbers, and symbols."""
    for value in values:
        if type(value) is Tensor:
            if not dtypes.is_float(value.dtype):
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


def _of_integers(function: PointwiseFunction, *values: Any) -> Tensor:
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
    if _alike(values) or symbols.is_symbolic(*values):
        return list(values)
    found = operands(name, *values)
    dtype = dtype_of(found)
    if floating and not dtypes.is_float(dtype):
        dtype = dtypes.default_float
    if not logical and dtypes.is_bool(dtype):
        raise DtypeError(f"[{name}] expected numbers, got bool: cast it, or use the logical functions")
    broadcast_shape(name, *found)
    return [cast(value, dtype) if isinstance(value, Tensor) else value for value in found]


def _alike(values: Sequence[Any]) -> bool:
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


def add(x: TensorLike, y: TensorLike) -> Tensor:
    """x + y, broadcast; of bools the logical or."""
    found: Tensor | None = PRIMITIVES["add"].latest.launch_outside(x, y)
    return _evaluated("add", *convert("add", x, y, logical=True)) if found is None else found


def sub(x: TensorLike, y: TensorLike) -> Tensor:
    """x - y, broadcast; of numbers alone: a bool on either side is refused, as in PyTorch."""
    found: Tensor | None = PRIMITIVES["sub"].latest.launch_outside(x, y)
    return _evaluated("sub", *convert("sub", x, y, dtype_of=_dtype_of_numbers)) if found is None else found


def _dtype_of_numbers(values: Sequence[Tensor | Number]) -> np.dtype[Any]:
    """The common dtype of values none of which is a bool; DtypeError where one is."""
    if any(map(is_bool, values)):
        raise DtypeError("[sub] expected numbers, got bool: cast it, or use the logical functions")
    return common_dtype(values)


def mul(x: TensorLike, y: TensorLike) -> Tensor:
    """x * y, broadcast; of bools the logical and."""
    found: Tensor | None = PRIMITIVES["mul"].latest.launch_outside(x, y)
    return _evaluated("mul", *convert("mul", x, y, logical=True)) if found is None else found


def div(x: TensorLike, y: TensorLike) -> Tensor:
    """x / y, broadcast; of two integers float32."""
    found: Tensor | None = PRIMITIVES["div"].latest.launch_outside(x, y)
    return _evaluated("div", *convert("div", x, y, floating=True)) if found is None else found


def floor_divide(x: TensorLike, y: TensorLike) -> Tensor:
    """floor(x / y), broadcast, outside the graph; an integer divided by 0 is 0, as in NumPy."""
    found: Tensor | None = PRIMITIVES["floor_divide"].latest.launch_outside(x, y)
    return found if found is not None else _evaluated("floor_divide", *_detached(convert("floor_divide", x, y)))


def remainder(x: TensorLike, y: TensorLike) -> Tensor:
    """x - floor(x / y) * y, broadcast: it has the divisor's sign, as Python's ``%``, but a zero has that of x."""
    found: Tensor | None = PRIMITIVES["remainder"].latest.launch_outside(x, y)
    return _evaluated("remainder", *convert("remainder", x, y)) if found is None else found


def pow(x: TensorLike, exponent: TensorLike) -> Tensor:
    """x ** exponent, broadcast; ArgumentError for an integer to a negative integer power."""
    simpler = _POWERS.get(exponent) if type(exponent) in (int, float) else None
    found: Tensor | None = (
        PRIMITIVES["pow"].latest.launch_outside(x, exponent) if simpler is None else simpler.latest.launch_outside(x)
    )
    if found is not None and (simpler is None or type(exponent) is int or dtypes.is_float(found.dtype)):
        return found
    if simpler is None and type(exponent) is int and 0 <= exponent < _LIMIT_IN_EVERY_DTYPE:
        found = _POWER_OF_NUMBER.launches.launch_outside(x, exponent)
        if found is not None:
            return found
    base, exponent = convert("pow", x, exponent)
    if not symbols.is_symbolic(base, exponent):
        dtype = common_dtype([base, exponent])
        if not dtypes.is_float(dtype):
            _check_not_negative(exponent, dtype)
            if simpler is not None:
                return _of_integers(simpler, base)
            return compute("pow", base, exponent)
        power = None if isinstance(exponent, Tensor) else _POWERS.get(exponent)
        if power is not None:
            return power(base)
    return PRIMITIVES["pow"](base, exponent)


def _power(exponent: float) -> PointwiseFunction:
    """The power of an exponent for which there is something simpler: products, a root, or of 1 the base itself."""
    function = pointwise(lambda x: symbols.apply("pow", x, exponent))
    function.name, function.takes_integers = "pow", True
    if exponent != 1:
        function.gradient(lambda grad, x: grad * (symbols.apply("pow", x, exponent - 1) * exponent))
    return function


_POWERS = {exponent: _power(exponent) for exponent in (-2, -1, -0.5, 0.5, 1, 2, 3)}


_POWER_OF_NUMBER = program_of("pow", (FLOAT, NUMBER))
"""What engines compute of integers; ``PRIMITIVES`` has another, since integers to negative powers are refused."""

_LIMIT_IN_EVERY_DTYPE = 128
"""An exponent below this is one in every dtype of integers."""

_INT64_MAX = 2**63 - 1


def _check_not_negative(exponent: Tensor | Number, dtype: np.dtype[Any]) -> None:
    check = RangeCheck(ArgumentError, "[pow] expected integers to powers >= 0, got {value}: cast x with .float()")
    if isinstance(exponent, Tensor):
        exponent.engine.check_range(cast(exponent.detach(), dtypes.default_int), 0, _INT64_MAX, check)
    elif exponent < 0 or np.array(exponent).astype(dtype) < 0:  # a number takes the tensor's dtype, and wraps around
        raise check.error(exponent, 0)


def maximum(x: TensorLike, y: TensorLike) -> Tensor:
    """The larger of two, broadcast; NaN where either is."""
    found: Tensor | None = PRIMITIVES["maximum"].latest.launch_outside(x, y)
    return _evaluated("maximum", *convert("maximum", x, y, logical=True)) if found is None else found


def minimum(x: TensorLike, y: TensorLike) -> Tensor:
    """The smaller of two, broadcast; NaN where either is."""
    found: Tensor | None = PRIMITIVES["minimum"].latest.launch_outside(x, y)
    return _evaluated("minimum", *convert("minimum", x, y, logical=True)) if found is None else found


# -- functions of one operand ------------------------------------------------------------------------------------


def _detached(values: Sequence[Any]) -> list[Any]:
    return [value.detach() if isinstance(value, Tensor) else value for value in values]


def _float(name: str, x: TensorLike) -> Tensor:
    """The argument as floats: integers and bools become float32."""
    value: Tensor = convert(name, x, floating=True)[0]
    return value


def _numeric(name: str, x: TensorLike) -> Tensor:
    value: Tensor = convert(name, x)[0]
    return value


def neg(x: TensorLike) -> Tensor:
    """-x."""
    found: Tensor | None = PRIMITIVES["neg"].latest.launch_outside(x)
    return _evaluated("neg", _numeric("neg", x)) if found is None else found


def abs(x: TensorLike) -> Tensor:
    """|x|; its gradient at 0 is 0."""
    found: Tensor | None = PRIMITIVES["abs"].latest.launch_outside(x)
    return _evaluated("abs", _numeric("abs", x)) if found is None else found


def exp(x: TensorLike) -> Tensor:
    """e to the power of each element."""
    found: Tensor | None = PRIMITIVES["exp"].latest.launch_outside(x)
    return PRIMITIVES["exp"](_float("exp", x)) if found is None else found


def expm1(x: TensorLike) -> Tensor:
    """e to the power of each element, minus 1; accurate near 0."""
    found: Tensor | None = PRIMITIVES["expm1"].latest.launch_outside(x)
    return PRIMITIVES["expm1"](_float("expm1", x)) if found is None else found


def log(x: TensorLike) -> Tensor:
    """Natural logarithms: -inf at 0, NaN below."""
    found: Tensor | None = PRIMITIVES["log"].latest.launch_outside(x)
    return PRIMITIVES["log"](_float("log", x)) if found is None else found


def log1p(x: TensorLike) -> Tensor:
    """log(1 + x), accurate near 0."""
    found: Tensor | None = PRIMITIVES["log1p"].latest.launch_outside(x)
    return PRIMITIVES["log1p"](_float("log1p", x)) if found is None else found


def sqrt(x: TensorLike) -> Tensor:
    """Square roots."""
    found: Tensor | None = PRIMITIVES["sqrt"].latest.launch_outside(x)
    return PRIMITIVES["sqrt"](_float("sqrt", x)) if found is None else found


def rsqrt(x: TensorLike) -> Tensor:
    """1 / sqrt(x)."""
    found: Tensor | None = PRIMITIVES["rsqrt"].latest.launch_outside(x)
    return PRIMITIVES["rsqrt"](_float("rsqrt", x)) if found is None else found


def square(x: TensorLike) -> Tensor:
    """x * x; of bools int64."""
    found: Tensor | None = PRIMITIVES["square"].latest.launch_outside(x)
    if found is not None:
        return found
    value: Tensor = convert("square", x, logical=True)[0]
    return _evaluated("square", cast(value, dtypes.default_int) if dtypes.is_bool(value.dtype) else value)


def reciprocal(x: TensorLike) -> Tensor:
    """1 / x."""
    found: Tensor | None = PRIMITIVES["reciprocal"].latest.launch_outside(x)
    return PRIMITIVES["reciprocal"](_float("reciprocal", x)) if found is None else found


def sin(x: TensorLike) -> Tensor:
    """Sines of radians."""
    found: Tensor | None = PRIMITIVES["sin"].latest.launch_outside(x)
    return PRIMITIVES["sin"](_float("sin", x)) if found is None else found


def cos(x: TensorLike) -> Tensor:
    """Cosines of radians."""
    found: Tensor | None = PRIMITIVES["cos"].latest.launch_outside(x)
    return PRIMITIVES["cos"](_float("cos", x)) if found is None else found


def tanh(x: TensorLike) -> Tensor:
    """Hyperbolic tangents."""
    found: Tensor | None = PRIMITIVES["tanh"].latest.launch_outside(x)
    return PRIMITIVES["tanh"](_float("tanh", x)) if found is None else found


def sigmoid(x: TensorLike) -> Tensor:
    """1 / (1 + exp(-x))."""
    found: Tensor | None = PRIMITIVES["sigmoid"].latest.launch_outside(x)
    return PRIMITIVES["sigmoid"](_float("sigmoid", x)) if found is None else found


def erf(x: TensorLike) -> Tensor:
    """The error function: 2 / sqrt(pi) * integral of exp(-t * t) from 0 to x."""
    found: Tensor | None = PRIMITIVES["erf"].latest.launch_outside(x)
    return PRIMITIVES["erf"](_float("erf", x)) if found is None else found


def sign(x: TensorLike) -> Tensor:
    """-1, 0 or 1; its gradient is 0. A bool is its own sign."""
    found: Tensor | None = PRIMITIVES["sign"].latest.launch_outside(x)
    if found is not None:
        return found
    value: Tensor = convert("sign", x, logical=True)[0]
    return clone(value) if dtypes.is_bool(value.dtype) else _evaluated("sign", value)


def floor(x: TensorLike) -> Tensor:
    """The largest integers not above the elements; the gradient is 0."""
    return _rounded("floor", x)


def ceil(x: TensorLike) -> Tensor:
    """The smallest integers not below the elements; the gradient is 0."""
    return _rounded("ceil", x)


def _rounded(name: str, x: TensorLike) -> Tensor:
    found: Tensor | None = PRIMITIVES[name].latest.launch_outside(x)
    if found is not None:
        return found
    value = _numeric(name, x)
    return PRIMITIVES[name](value) if dtypes.is_float(value.dtype) else clone(value)


# -- selection ---------------------------------------------------------------------------------------------------


@overload
def where(condition: TensorLike) -> tuple[Tensor, ...]: ...
@overload
def where(condition: TensorLike, x: TensorLike, y: TensorLike) -> Tensor: ...
def where(condition: TensorLike, x: TensorLike = None, y: TensorLike = None) -> Any:
    """x where the condition (bool) holds, else y; the three broadcast. Of a condition alone ``nonzero`` as a tuple."""
    if x is None and y is None:
        from alpha.functions.selection import nonzero  # here: it imports this module

        return nonzero(condition, as_tuple=True)
    found: Tensor | None = _where.latest.launch_outside(condition, x, y)
    if found is not None:
        return found
    if symbols.is_symbolic(condition, x, y):
        return _where(condition, x, y)
    first, second = (x, y) if type(x) is Tensor else (y, x)
    if type(condition) is Tensor and dtypes.is_bool(condition.dtype) and _alike((first, second)):
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
    return _where(mask, x, y) if dtypes.is_float(dtype) else computed(_where, "where", mask, x, y)


def clamp(x: TensorLike, min: TensorLike | None = None, max: TensorLike | None = None) -> Tensor:
    """Elements limited to min..max, numbers or tensors, max where they are in the wrong order.

    The gradient is x's inside, bounds included; beyond a bound it is the bound's.
    """
    if min is None and max is None:
        raise ArgumentError("[clamp] expected min, max or both, got neither")
    limited = _clamp_to if min is None else _clamp_from if max is None else _clamp
    bounds = (max,) if min is None else (min,) if max is None else (min, max)
    result: Tensor | None = limited.latest.launch_outside(x, *bounds)
    if result is not None:
        return result
    if symbols.is_symbolic(x, min, max):
        traced: Any = symbols.clamped(x, min, max)
        return traced  # type: ignore[no-any-return]
    value, *found = convert("clamp", x, *bounds, logical=any(isinstance(b, Tensor | np.ndarray) for b in bounds))
    if dtypes.is_float(value.dtype):
        return limited(value, *found)
    if isinstance(value, Tensor) and dtypes.is_integer(value.dtype) and _tensors_first(found):
        return _of_integers(limited, value, *found)
    value = value if min is None else compute("maximum", value, found[0])
    return value if max is None else compute("minimum", value, found[-1])


def _tensors_first(values: Sequence[Any]) -> bool:
    """Whether no number stands before a tensor."""
    kinds = [isinstance(value, Tensor) for value in values]
    return kinds == sorted(kinds, reverse=True)


# -- comparison and logic: no gradient ---------------------------------------------------------------------------


def _compare(name: str, x: TensorLike, y: TensorLike) -> Tensor:
    found: Tensor | None = PRIMITIVES[name].latest.launch_outside(x, y)
    if found is not None:
        return found
    return _evaluated(name, *convert(name, x, y, logical=True, dtype_of=widest_dtype))


def _logical(name: str, *values: TensorLike) -> Tensor:
    for value in values:
        if type(value) is not Tensor or not dtypes.is_bool(value.dtype):
            return _evaluated(name, *convert(name, *values, logical=True, dtype_of=widest_dtype))
    return _OF_BOOLS[name](*values)


def eq(x: TensorLike, y: TensorLike) -> Tensor:
    """Where x equals y, as bool."""
    return _compare("eq", x, y)


def ne(x: TensorLike, y: TensorLike) -> Tensor:
    """Where x differs from y, as bool."""
    return _compare("ne", x, y)


def lt(x: TensorLike, y: TensorLike) -> Tensor:
    """Where x < y, as bool."""
    return _compare("lt", x, y)


def le(x: TensorLike, y: TensorLike) -> Tensor:
    """Where x <= y, as bool."""
    return _compare("le", x, y)


def gt(x: TensorLike, y: TensorLike) -> Tensor:
    """Where x > y, as bool."""
    return _compare("gt", x, y)


def ge(x: TensorLike, y: TensorLike) -> Tensor:
    """Where x >= y, as bool."""
    return _compare("ge", x, y)


def logical_and(x: TensorLike, y: TensorLike) -> Tensor:
    """Where both differ from 0, as bool."""
    return _logical("logical_and", x, y)


def logical_or(x: TensorLike, y: TensorLike) -> Tensor:
    """Where either differs from 0, as bool."""
    return _logical("logical_or", x, y)


def logical_xor(x: TensorLike, y: TensorLike) -> Tensor:
    """Where exactly one differs from 0, as bool."""
    return _logical("logical_xor", x, y)


def logical_not(x: TensorLike) -> Tensor:
    """Where x is 0, as bool."""
    return _logical("logical_not", x)


def isfinite(x: TensorLike) -> Tensor:
    """Where elements are neither infinite nor NaN, as bool."""
    found: Tensor | None = PRIMITIVES["isfinite"].latest.launch_outside(x)
    return found if found is not None else _evaluated("isfinite", convert("isfinite", x, logical=True)[0])


def isnan(x: TensorLike) -> Tensor:
    """Where elements are NaN, as bool."""
    found: Tensor | None = PRIMITIVES["isnan"].latest.launch_outside(x)
    if found is not None:
        return found
    (value,) = convert("isnan", x, logical=True)
    is_whole = isinstance(value, Tensor) and not dtypes.is_float(value.dtype)
    return compute("ne", value, value) if is_whole else PRIMITIVES["isnan"](value)


# -- dtype, engine, memory ---------------------------------------------------------------------------------------


class Cast(Function):
    """The values in another dtype."""

    fresh = True

    def forward(self, x: Tensor, dtype: np.dtype[Any]) -> Tensor:
        self.dtype = x.dtype
        return x.storage.engine.pointwise("cast", conversion(dtype), (x,), ())[0]

    def backward(self, grad: Tensor) -> Tensor:
        return grad.storage.engine.pointwise("cast", conversion(self.dtype), (grad,), ())[0]

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        return cast(grad, self.dtype)


class Clone(Function):
    """The values in memory of their own, in an order of axes."""

    passes_on = True

    def forward(self, x: Tensor, order: Shape | None) -> Tensor:
        return x.storage.engine.copied(x, order)

    def backward(self, grad: Tensor) -> Tensor:
        return grad


class Move(Function):
    """The values on another engine."""

    fresh = True

    def forward(self, x: Tensor, engine: Engine) -> Tensor:
        self.engine = x.engine
        return engine.from_numpy(x.engine.to_numpy(x))

    def backward(self, grad: Tensor) -> Tensor:
        return self.engine.from_numpy(grad.engine.to_numpy(grad))

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        return to(grad, self.engine)


def cast(x: Tensor, dtype: dtypes.DtypeLike) -> Tensor:
    """The values in another dtype, itself if it has it; between floats gradients pass."""
    wanted = dtypes.as_dtype(dtype, "cast")
    if isinstance(x, Tensor) and x.dtype == wanted:
        return x
    found: Tensor | None = conversion(wanted).launches.launch_outside(x)
    if found is not None:
        return found
    check_tensor("cast", x)
    return call(Cast, x, wanted)


def to(x: Tensor, *target: Any, **options: Any) -> Tensor:
    """On another device or in another dtype, or both; itself where nothing changes.

    ``to("cuda")``, ``to(engine)``, ``to(alpha.float64)``, ``to(device, dtype)``, ``to(other)`` as another tensor is,
    and by name: ``device``, ``dtype``, ``copy=True`` for a copy in any case. ``non_blocking`` says nothing here.
    """
    check_tensor("to", x)
    if len(target) == 1 and not options and isinstance(target[0], np.dtype):
        return cast(x, target[0])
    engine, dtype, copy = destination("to", target, options)
    moved = x if engine is None or x.engine is engine else call(Move, x, engine)
    moved = moved if dtype is None else cast(moved, dtype)
    return clone(x) if copy and moved is x else moved


def clone(x: Tensor) -> Tensor:
    """A copy with memory of its own, in the same order of axes."""
    found: Tensor | None = COPY.launch_outside(x, None)
    if found is not None:
        return found
    check_tensor("clone", x)
    return call(Clone, x, None)


def contiguous(x: Tensor, order: Sequence[int] | None = None) -> Tensor:
    """Itself if dense in the given order of axes (row-major by default), else such a copy."""
    check_tensor("contiguous", x)
    wanted = axes_in_order("contiguous", order, len(x.shape))
    if x.is_contiguous(wanted):
        return x
    found: Tensor | None = COPY.launch_outside(x, wanted)
    return call(Clone, x, wanted) if found is None else found
