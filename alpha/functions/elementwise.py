"""Element-wise functions: arithmetic, comparison, logic, selection, casts; PyTorch's names and semantics."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from alpha import dtypes, engines
from alpha.arguments import axes_in_order
from alpha.autograd import Function
from alpha.engine import Engine, RangeCheck
from alpha.errors import ArgumentError, DtypeError
from alpha.expressions import symbols
from alpha.expressions.functions import pointwise
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
    sum_to,
    widest_dtype,
)
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

# -- arithmetic of two operands ----------------------------------------------------------------------------------


class Binary(Function):
    """``op`` of two operands; a subclass gives each one's gradient before it is summed to the operand's shape."""

    op = ""

    def forward(self, x: Tensor | Number, y: Tensor | Number, in_place: bool = False) -> Tensor:
        """``in_place`` writes into x, of which a copy is kept then if a gradient needs it."""
        self.shapes = tuple(value.shape if isinstance(value, Tensor) else () for value in (x, y))
        kept = tuple(clone(k) if in_place and isinstance(k, Tensor) and k is x else k for k in self.keep(x, y))
        self.numbers = tuple(None if isinstance(k, Tensor) else k for k in kept)
        self.save(*(k if isinstance(k, Tensor) else None for k in kept))
        return compute(self.op, x, y, out=x if in_place and isinstance(x, Tensor) else None)

    def keep(self, x: Any, y: Any) -> tuple[Any, ...]:
        """The operands that the gradients need."""
        return ()

    def kept(self) -> tuple[Any, ...]:
        """What ``keep`` returned."""
        return tuple(
            saved if number is None else number for saved, number in zip(self.saved, self.numbers, strict=True)
        )

    def gradient(self, argument: int, grad: Tensor, *kept: Any) -> Tensor:
        """The gradient for the first or the second operand."""
        raise NotImplementedError(f"[{type(self).__name__}] expected a subclass with gradient, got none: write one")

    def backward(self, grad: Tensor) -> tuple[Tensor | None, ...]:
        kept = self.kept()
        return tuple(
            sum_to(self.gradient(argument, grad, *kept), self.shapes[argument]) if self.needs[argument] else None
            for argument in range(2)
        )


class Add(Binary):
    """x + y."""

    op = "add"

    def gradient(self, argument: int, grad: Tensor, *kept: Any) -> Tensor:
        return grad


class Sub(Binary):
    """x - y."""

    op = "sub"

    def gradient(self, argument: int, grad: Tensor, *kept: Any) -> Tensor:
        return compute("neg", grad) if argument else grad


class Mul(Binary):
    """x * y."""

    op = "mul"
    fresh = True

    def keep(self, x: Any, y: Any) -> tuple[Any, ...]:
        return x if self.needs[1] else None, y if self.needs[0] else None

    def gradient(self, argument: int, grad: Tensor, *kept: Any) -> Tensor:
        return compute("mul", grad, kept[1 - argument])


class Div(Binary):
    """x / y."""

    op = "div"
    fresh = True

    def keep(self, x: Any, y: Any) -> tuple[Any, ...]:
        return x if self.needs[1] else None, y

    def gradient(self, argument: int, grad: Tensor, *kept: Any) -> Tensor:
        x, y = kept
        if argument == 0:
            return compute("div", grad, y)
        return compute("mul", compute("neg", grad), compute("div", compute("div", x, y), y))


class Remainder(Binary):
    """x - floor(x / y) * y; a zero has the sign of x, as in PyTorch."""

    op = "remainder"

    def keep(self, x: Any, y: Any) -> tuple[Any, ...]:
        return (x, y) if self.needs[1] else ()

    def gradient(self, argument: int, grad: Tensor, *kept: Any) -> Tensor:
        if argument == 0:
            return grad
        return compute("neg", compute("mul", grad, compute("floor_divide", *kept)))


class Pow(Binary):
    """x ** y; where x is 0 and y >= 0 the gradient for y is 0, as in PyTorch."""

    op = "pow"
    fresh = True

    def forward(self, x: Tensor | Number, y: Tensor | Number, in_place: bool = False) -> Tensor:
        if isinstance(y, Tensor) or y not in _ROOTS:
            return super().forward(x, y, in_place)
        tensor: Any = x  # of two numbers nothing is made here
        self.shapes, self.numbers = (tensor.shape, ()), (None, y)
        self.save(tensor, None)
        return _power(tensor, y)

    def keep(self, x: Any, y: Any) -> tuple[Any, ...]:
        return x, y

    def gradient(self, argument: int, grad: Tensor, *kept: Any) -> Tensor:
        x, y = kept
        if argument == 0:
            return _power_gradient(grad, x, y)
        power = compute("pow", x, y)
        if isinstance(x, Tensor):
            slope = compute("mul", power, compute("log", x))
            still = compute("logical_and", compute("eq", x, 0), compute("ge", y, 0))
            return compute("mul", grad, compute("where", still, 0.0, slope))
        if x != 0:
            return compute("mul", grad, compute("mul", power, math.log(x) if x > 0 else math.nan))
        slope = compute("mul", power, -math.inf)
        return compute("mul", grad, compute("where", compute("ge", y, 0), 0.0, slope))


_ROOTS = (0.5, -0.5)
"""Powers that are square roots, as in PyTorch: they differ from powers at -0 and -inf."""


def _power(x: Any, y: Number) -> Tensor:
    """x ** y of a number y."""
    if y not in _ROOTS:
        return compute("pow", x, y)
    root = compute("sqrt", x)
    return root if y > 0 else compute("reciprocal", root, out=root)


def _power_gradient(grad: Tensor, x: Tensor, y: Tensor | Number) -> Tensor:
    """grad * y * x ** (y - 1), and 0 where y is 0."""
    if not isinstance(y, Tensor):
        if y == 0:
            return filled(grad, 0)
        return compute("mul", grad, compute("mul", _power(x, y - 1), y))
    slope = compute("mul", grad, compute("mul", compute("pow", x, compute("sub", y, 1)), y))
    return compute("where", compute("eq", y, 0), 0.0, slope)


class Extremum(Binary):
    """The larger or the smaller of two.

    Where they are equal each gets half the gradient; where one is NaN both get it whole, as in PyTorch.
    """

    fresh = True

    def keep(self, x: Any, y: Any) -> tuple[Any, ...]:
        return x, y

    def gradient(self, argument: int, grad: Tensor, *kept: Any) -> Tensor:
        operand, other = kept[argument], kept[1 - argument]
        loses = compute("lt" if self.op == "maximum" else "gt", operand, other)
        share = compute("where", compute("eq", operand, other), compute("mul", grad, 0.5), grad)
        return compute("where", loses, 0.0, share)


class Maximum(Extremum):
    """max(x, y)."""

    op = "maximum"


class Minimum(Extremum):
    """min(x, y)."""

    op = "minimum"


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
    """Whether they are float tensors of one engine, dtype and shape, and numbers: so they may stay as they are."""
    first = values[0]
    if type(first) is not Tensor or not dtypes.is_float(first.dtype):
        return False
    for value in values[1:]:
        if type(value) is Tensor:
            if (
                value.dtype != first.dtype
                or value.shape != first.shape
                or value.storage.engine is not first.storage.engine
            ):
                return False
        elif type(value) is not float and (type(value) is not int or not -(2**63) <= value < 2**63):
            return False
    return True


def add(x: TensorLike, y: TensorLike) -> Tensor:
    """x + y, broadcast; of bools the logical or."""
    return call(Add, *convert("add", x, y, logical=True))


def sub(x: TensorLike, y: TensorLike) -> Tensor:
    """x - y, broadcast; of numbers alone: a bool on either side is refused, as in PyTorch."""
    return call(Sub, *convert("sub", x, y, dtype_of=_dtype_of_numbers))


def _dtype_of_numbers(values: Sequence[Tensor | Number]) -> np.dtype[Any]:
    """The common dtype of values none of which is a bool; DtypeError where one is."""
    if any(map(is_bool, values)):
        raise DtypeError("[sub] expected numbers, got bool: cast it, or use the logical functions")
    return common_dtype(values)


def mul(x: TensorLike, y: TensorLike) -> Tensor:
    """x * y, broadcast; of bools the logical and."""
    return call(Mul, *convert("mul", x, y, logical=True))


def div(x: TensorLike, y: TensorLike) -> Tensor:
    """x / y, broadcast; of two integers float32."""
    return call(Div, *convert("div", x, y, floating=True))


def floor_divide(x: TensorLike, y: TensorLike) -> Tensor:
    """floor(x / y), broadcast, outside the graph; an integer divided by 0 is 0, as in NumPy."""
    return compute("floor_divide", *_detached(convert("floor_divide", x, y)))


def remainder(x: TensorLike, y: TensorLike) -> Tensor:
    """x - floor(x / y) * y, broadcast: it has the divisor's sign, as Python's ``%``, but a zero has that of x."""
    return call(Remainder, *convert("remainder", x, y))


def pow(x: TensorLike, exponent: TensorLike) -> Tensor:
    """x ** exponent, broadcast; ArgumentError for an integer to a negative integer power."""
    base, exponent = convert("pow", x, exponent)
    if symbols.is_symbolic(base, exponent):
        return compute("pow", base, exponent)
    dtype = common_dtype([base, exponent])
    if not dtypes.is_float(dtype):
        _check_not_negative(exponent, dtype)
    if not isinstance(exponent, Tensor) and exponent == 2:
        return square(base)
    return call(Pow, base, exponent)


_INT64_MAX = 2**63 - 1


def _check_not_negative(exponent: Tensor | Number, dtype: np.dtype[Any]) -> None:
    check = RangeCheck(ArgumentError, "[pow] expected integers to powers >= 0, got {value}: cast x with .float()")
    if isinstance(exponent, Tensor):
        exponent.engine.check_range(cast(exponent.detach(), dtypes.default_int), 0, _INT64_MAX, check)
    elif exponent < 0 or np.array(exponent).astype(dtype) < 0:  # a number takes the tensor's dtype, and wraps around
        raise check.error(exponent, 0)


def maximum(x: TensorLike, y: TensorLike) -> Tensor:
    """The larger of two, broadcast; NaN where either is."""
    return call(Maximum, *convert("maximum", x, y, logical=True))


def minimum(x: TensorLike, y: TensorLike) -> Tensor:
    """The smaller of two, broadcast; NaN where either is."""
    return call(Minimum, *convert("minimum", x, y, logical=True))


# -- functions of one operand ------------------------------------------------------------------------------------


class Neg(Function):
    """-x."""

    fresh = True

    def forward(self, x: Tensor) -> Tensor:
        return compute("neg", x)

    def backward(self, grad: Tensor) -> Tensor:
        return compute("neg", grad)


class Unary(Function):
    """``op`` of x; a subclass gives the gradient from what ``keeps`` names: the argument or the result."""

    op = ""
    keeps = "argument"
    fresh = True

    def forward(self, x: Tensor) -> Tensor:
        y = compute(self.op, x)
        if self.needs[0]:
            self.save(x if self.keeps == "argument" else y)
        return y

    def gradient(self, grad: Tensor, kept: Tensor) -> Tensor:
        """The argument's gradient."""
        raise NotImplementedError(f"[{type(self).__name__}] expected a subclass with gradient, got none: write one")

    def backward(self, grad: Tensor) -> Tensor:
        (kept,) = self.saved
        return self.gradient(grad, kept)


class Abs(Unary):
    """|x|; its gradient at 0 is 0."""

    op = "abs"

    def gradient(self, grad: Tensor, kept: Tensor) -> Tensor:
        return compute("mul", grad, compute("sign", kept))


class Exp(Unary):
    """e ** x."""

    op = "exp"
    keeps = "result"

    def gradient(self, grad: Tensor, kept: Tensor) -> Tensor:
        return compute("mul", grad, kept)


class Log(Unary):
    """The natural logarithm."""

    op = "log"

    def gradient(self, grad: Tensor, kept: Tensor) -> Tensor:
        return compute("div", grad, kept)


class Log1p(Unary):
    """log(1 + x)."""

    op = "log1p"

    def gradient(self, grad: Tensor, kept: Tensor) -> Tensor:
        return compute("div", grad, compute("add", kept, 1))


class Sqrt(Unary):
    """The square root."""

    op = "sqrt"
    keeps = "result"

    def gradient(self, grad: Tensor, kept: Tensor) -> Tensor:
        return compute("div", compute("mul", grad, 0.5), kept)


class Rsqrt(Unary):
    """1 / sqrt(x)."""

    def forward(self, x: Tensor) -> Tensor:
        y = compute("reciprocal", compute("sqrt", x))
        self.save(y)
        return y

    def gradient(self, grad: Tensor, kept: Tensor) -> Tensor:
        return compute("mul", compute("mul", grad, -0.5), compute("pow", kept, 3))


class Square(Unary):
    """x * x."""

    op = "square"

    def gradient(self, grad: Tensor, kept: Tensor) -> Tensor:
        return compute("mul", grad, compute("mul", kept, 2))


class Reciprocal(Unary):
    """1 / x."""

    op = "reciprocal"
    keeps = "result"

    def gradient(self, grad: Tensor, kept: Tensor) -> Tensor:
        return compute("neg", compute("mul", grad, compute("square", kept)))


class Sin(Unary):
    """The sine."""

    op = "sin"

    def gradient(self, grad: Tensor, kept: Tensor) -> Tensor:
        return compute("mul", grad, compute("cos", kept))


class Cos(Unary):
    """The cosine."""

    op = "cos"

    def gradient(self, grad: Tensor, kept: Tensor) -> Tensor:
        return compute("neg", compute("mul", grad, compute("sin", kept)))


class Tanh(Unary):
    """The hyperbolic tangent."""

    op = "tanh"
    keeps = "result"

    def gradient(self, grad: Tensor, kept: Tensor) -> Tensor:
        return compute("mul", grad, compute("sub", 1, compute("square", kept)))


class Sigmoid(Unary):
    """1 / (1 + exp(-x))."""

    op = "sigmoid"
    keeps = "result"

    def gradient(self, grad: Tensor, kept: Tensor) -> Tensor:
        return compute("mul", grad, compute("mul", kept, compute("sub", 1, kept)))


class Erf(Unary):
    """2 / sqrt(pi) * integral of exp(-t * t) from 0 to x."""

    op = "erf"

    def gradient(self, grad: Tensor, kept: Tensor) -> Tensor:
        bell = compute("exp", compute("neg", compute("square", kept)))
        return compute("mul", grad, compute("mul", bell, 2 / math.sqrt(math.pi)))


class Step(Function):
    """A function made of steps (sign, floor, ceil): its gradient is 0."""

    fresh = True

    def forward(self, x: Tensor, op: str) -> Tensor:
        return compute(op, x)

    def backward(self, grad: Tensor) -> Tensor:
        return filled(grad, 0)


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
    return call(Neg, _numeric("neg", x))


def abs(x: TensorLike) -> Tensor:
    """|x|; its gradient at 0 is 0."""
    return call(Abs, _numeric("abs", x))


def exp(x: TensorLike) -> Tensor:
    """e to the power of each element."""
    return call(Exp, _float("exp", x))


@pointwise
def _expm1(x: Any) -> Any:
    return symbols.apply("expm1", x)


def expm1(x: TensorLike) -> Tensor:
    """e to the power of each element, minus 1; accurate near 0."""
    return _expm1(_float("expm1", x))


def log(x: TensorLike) -> Tensor:
    """Natural logarithms: -inf at 0, NaN below."""
    return call(Log, _float("log", x))


def log1p(x: TensorLike) -> Tensor:
    """log(1 + x), accurate near 0."""
    return call(Log1p, _float("log1p", x))


def sqrt(x: TensorLike) -> Tensor:
    """Square roots."""
    return call(Sqrt, _float("sqrt", x))


def rsqrt(x: TensorLike) -> Tensor:
    """1 / sqrt(x)."""
    value = _float("rsqrt", x)
    return compute("rsqrt", value) if symbols.is_symbolic(value) else call(Rsqrt, value)


def square(x: TensorLike) -> Tensor:
    """x * x; of bools int64."""
    value: Tensor = convert("square", x, logical=True)[0]
    return call(Square, cast(value, dtypes.default_int) if dtypes.is_bool(value.dtype) else value)


def reciprocal(x: TensorLike) -> Tensor:
    """1 / x."""
    return call(Reciprocal, _float("reciprocal", x))


def sin(x: TensorLike) -> Tensor:
    """Sines of radians."""
    return call(Sin, _float("sin", x))


def cos(x: TensorLike) -> Tensor:
    """Cosines of radians."""
    return call(Cos, _float("cos", x))


def tanh(x: TensorLike) -> Tensor:
    """Hyperbolic tangents."""
    return call(Tanh, _float("tanh", x))


def sigmoid(x: TensorLike) -> Tensor:
    """1 / (1 + exp(-x))."""
    return call(Sigmoid, _float("sigmoid", x))


def erf(x: TensorLike) -> Tensor:
    """The error function: 2 / sqrt(pi) * integral of exp(-t * t) from 0 to x."""
    return call(Erf, _float("erf", x))


def sign(x: TensorLike) -> Tensor:
    """-1, 0 or 1; its gradient is 0. A bool is its own sign."""
    value: Tensor = convert("sign", x, logical=True)[0]
    return clone(value) if dtypes.is_bool(value.dtype) else call(Step, value, "sign")


def floor(x: TensorLike) -> Tensor:
    """The largest integers not above the elements; the gradient is 0."""
    return _rounded("floor", x)


def ceil(x: TensorLike) -> Tensor:
    """The smallest integers not below the elements; the gradient is 0."""
    return _rounded("ceil", x)


def _rounded(name: str, x: TensorLike) -> Tensor:
    value = _numeric(name, x)
    return call(Step, value, name) if dtypes.is_float(value.dtype) else clone(value)


# -- selection ---------------------------------------------------------------------------------------------------


class Where(Function):
    """x where the condition holds, else y."""

    def forward(self, condition: Tensor, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        self.shapes = tuple(value.shape if isinstance(value, Tensor) else () for value in (x, y))
        self.save(condition)
        return compute("where", condition, x, y)

    def backward(self, grad: Tensor) -> tuple[Tensor | None, ...]:
        (condition,) = self.saved
        dx = compute("where", condition, grad, 0.0) if self.needs[1] else None
        dy = compute("where", condition, 0.0, grad) if self.needs[2] else None
        grads = zip((dx, dy), self.shapes, strict=True)
        return (None, *(None if g is None else sum_to(g, shape) for g, shape in grads))

    fresh = True


class Clamp(Function):
    """x limited to low..high; the gradient passes where x lies inside, bounds included."""

    fresh = True

    def forward(self, x: Tensor, low: Number | None, high: Number | None) -> Tensor:
        self.bounds = low, high
        self.save(x)
        y = x if low is None else compute("maximum", x, low)
        return y if high is None else compute("minimum", y, high)

    def backward(self, grad: Tensor) -> Tensor:
        (x,) = self.saved
        for op, bound in zip(("ge", "le"), self.bounds, strict=True):
            if bound is not None:
                grad = compute("where", compute(op, x, bound), grad, 0.0)
        return grad


class ClampBetween(Function):
    """x limited by tensors; where x equals a bound the gradient is x's, as in PyTorch."""

    fresh = True

    def forward(self, x: Tensor, low: Tensor | None, high: Tensor | None) -> Tensor:
        self.save(x, low, high)
        y = x if low is None else compute("maximum", x, low)
        return y if high is None else compute("minimum", y, high)

    def backward(self, grad: Tensor) -> tuple[Tensor | None, ...]:
        values = self.saved
        masks = (self._inside, self._below, self._above)
        return tuple(
            sum_to(compute("where", mask(*values), grad, 0.0), value.shape) if needed else None
            for mask, value, needed in zip(masks, values, self.needs, strict=True)
        )

    @staticmethod
    def _inside(x: Tensor, low: Tensor | None, high: Tensor | None) -> Tensor:
        found = [compute(op, x, b) for op, b in (("ge", low), ("le", high)) if b is not None]
        return found[0] if len(found) == 1 else compute("logical_and", *found)

    @staticmethod
    def _below(x: Tensor, low: Tensor, high: Tensor | None) -> Tensor:
        found = compute("lt", x, low)
        return found if high is None else compute("logical_and", found, compute("lt", low, high))

    @staticmethod
    def _above(x: Tensor, low: Tensor | None, high: Tensor) -> Tensor:
        found = compute("gt", x, high)
        return found if low is None else compute("logical_or", found, compute("lt", high, low))


def where(condition: TensorLike, x: TensorLike, y: TensorLike) -> Tensor:
    """x where the condition (bool) holds, else y; the three broadcast."""
    if symbols.is_symbolic(condition, x, y):
        return compute("where", condition, x, y)
    mask, x, y = operands("where", np.asarray(condition) if is_number(condition) else condition, x, y)
    if not dtypes.is_bool(mask.dtype):
        raise DtypeError(f"[where] expected a condition of bool, got {mask.dtype}: compare it first")
    if not isinstance(x, Tensor) and not isinstance(y, Tensor):
        x = filled(mask.view(mask.offset, (), ()), x, common_dtype((x, y)))
    values = x, y
    dtype = common_dtype(values)
    broadcast_shape("where", mask, *values)
    return call(Where, mask, *(cast(v, dtype) if isinstance(v, Tensor) else v for v in values))


def clamp(x: TensorLike, min: TensorLike | None = None, max: TensorLike | None = None) -> Tensor:
    """Elements limited to min..max, numbers or tensors; beyond numbers the gradient is 0."""
    if min is None and max is None:
        raise ArgumentError("[clamp] expected min, max or both, got neither")
    if symbols.is_symbolic(x, min, max):
        traced: Any = symbols.clamped(x, min, max)
        return traced  # type: ignore[no-any-return]
    if isinstance(min, Tensor | np.ndarray) or isinstance(max, Tensor | np.ndarray):
        return _clamp_between(x, min, max)
    bounds = [bound for bound in (min, max) if bound is not None]
    value, *_ = convert("clamp", x, *bounds)
    low, high = (None if b is None else operands("clamp", value, b)[1] for b in (min, max))
    return call(Clamp, value, low, high)


def _clamp_between(x: TensorLike, *bounds: TensorLike | None) -> Tensor:
    """``clamp`` where a bound is a tensor: a number beside it becomes one."""
    given = [bound for bound in bounds if bound is not None]
    value, *limits = convert("clamp", x, *given, logical=True)
    places = iter([v if isinstance(v, Tensor) else filled(value.view(0, (), ()), v) for v in limits])
    return call(ClampBetween, value, *(None if bound is None else next(places) for bound in bounds))


# -- comparison and logic: no gradient ---------------------------------------------------------------------------


def _compare(name: str, x: TensorLike, y: TensorLike) -> Tensor:
    return compute(name, *_detached(convert(name, x, y, logical=True, dtype_of=widest_dtype)))


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
    return _compare("logical_and", x, y)


def logical_or(x: TensorLike, y: TensorLike) -> Tensor:
    """Where either differs from 0, as bool."""
    return _compare("logical_or", x, y)


def logical_xor(x: TensorLike, y: TensorLike) -> Tensor:
    """Where exactly one differs from 0, as bool."""
    return _compare("logical_xor", x, y)


def logical_not(x: TensorLike) -> Tensor:
    """Where x is 0, as bool."""
    return compute("logical_not", *_detached(convert("logical_not", x, logical=True)))


def isfinite(x: TensorLike) -> Tensor:
    """Where elements are neither infinite nor NaN, as bool."""
    return compute("isfinite", *_detached(convert("isfinite", x, logical=True)))


def isnan(x: TensorLike) -> Tensor:
    """Where elements are NaN, as bool."""
    (value,) = _detached(convert("isnan", x, logical=True))
    return compute("ne", value, value)


# -- dtype, engine, memory ---------------------------------------------------------------------------------------


class Cast(Function):
    """The values in another dtype."""

    fresh = True

    def forward(self, x: Tensor, dtype: np.dtype[Any]) -> Tensor:
        self.dtype = x.dtype
        out = x.engine.empty_like(x, dtype)
        x.engine.copy(x, out)
        return out

    def backward(self, grad: Tensor) -> Tensor:
        out = grad.engine.empty_like(grad, self.dtype)
        grad.engine.copy(grad, out)
        return out


class Clone(Function):
    """The values in memory of their own, in an order of axes."""

    def forward(self, x: Tensor, order: Sequence[int]) -> Tensor:
        out = x.engine.empty(x.shape, x.dtype, order)
        x.engine.copy(x, out)
        return out

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


def cast(x: Tensor, dtype: dtypes.DtypeLike) -> Tensor:
    """The values in another dtype, itself if it has it; between floats gradients pass."""
    check_tensor("cast", x)
    wanted = dtypes.as_dtype(dtype, "cast")
    return x if x.dtype == wanted else call(Cast, x, wanted)


def to(x: Tensor, target: Any) -> Tensor:
    """On another engine (an Engine or its name) or in another dtype; itself where nothing changes."""
    check_tensor("to", x)
    if isinstance(target, Engine):
        engine = target
    elif isinstance(target, str) and engines.is_name(target):
        engine = engines.resolve(target)
    else:
        return cast(x, dtypes.as_dtype(target, "to"))
    return x if x.engine is engine else call(Move, x, engine)


def clone(x: Tensor) -> Tensor:
    """A copy with memory of its own, in the same order of axes."""
    check_tensor("clone", x)
    return call(Clone, x, x.memory_order())


def contiguous(x: Tensor, order: Sequence[int] | None = None) -> Tensor:
    """Itself if dense in the given order of axes (row-major by default), else such a copy."""
    check_tensor("contiguous", x)
    wanted = axes_in_order("contiguous", order, x.ndim)
    return x if x.is_contiguous(wanted) else call(Clone, x, wanted)
