"""Symbols: what a point-wise function is called with once, in place of tensors and numbers, to see what it computes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn, cast

import numpy as np

from alpha.dtypes import bool_, get_default_dtype
from alpha.errors import ArgumentError
from alpha.expressions.graph import BOOL, FLOAT, OF_INTEGERS_ALONE, OPERATIONS, Graph, Node

FUNCTIONS = (
    "abs, ceil, clamp, erf, erfc, erfinv, exp, exp2, expm1, floor, floor_divide, fmod, frac, hypot, lerp, lgamma, log, "
    "log10, log1p, log2, maximum, minimum, pow, reciprocal, remainder, round, rsqrt, sigmoid, sign, sqrt, square, "
    "trunc, where, xlogy, trigonometric and hyperbolic functions, comparisons, the logical functions"
)
"""What a point-wise function may call, for messages."""

_ALIASES = {"multiply": "mul", "subtract": "sub", "true_divide": "div", "divide": "div", "power": "pow"}


class TraceError(ArgumentError):
    """What a function did with a symbol that it cannot do; ``alpha.pointwise`` adds the function and the line.

    Attributes:
        expected, got, advice: the parts of the message.
    """

    def __init__(self, expected: str, got: str, advice: str) -> None:
        super().__init__(f"[pointwise] expected {expected}, got {got}: {advice}")
        self.expected, self.got, self.advice = expected, got, advice


class Symbol:
    """An expression that a point-wise function computes with as with a tensor."""

    __slots__ = ("graph", "node")
    __hash__ = None  # type: ignore[assignment]  # what == gives is an expression

    def __init__(self, graph: Graph, node: Node) -> None:
        self.graph, self.node = graph, node

    @property
    def dtype(self) -> Any:
        """bool of what a comparison gives, else a float: which one the tensors of each call say."""
        return bool_ if self.node.kind == BOOL else get_default_dtype()

    # -- arithmetic ----------------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Symbol:
        return apply("add", self, other)

    def __radd__(self, other: Any) -> Symbol:
        return apply("add", other, self)

    def __sub__(self, other: Any) -> Symbol:
        return apply("sub", self, other)

    def __rsub__(self, other: Any) -> Symbol:
        return apply("sub", other, self)

    def __mul__(self, other: Any) -> Symbol:
        return apply("mul", self, other)

    def __rmul__(self, other: Any) -> Symbol:
        return apply("mul", other, self)

    def __truediv__(self, other: Any) -> Symbol:
        return apply("div", self, other)

    def __rtruediv__(self, other: Any) -> Symbol:
        return apply("div", other, self)

    def __pow__(self, other: Any) -> Symbol:
        return apply("pow", self, other)

    def __rpow__(self, other: Any) -> Symbol:
        return apply("pow", other, self)

    def __floordiv__(self, other: Any) -> Symbol:
        return apply("floor_divide", self, other)

    def __rfloordiv__(self, other: Any) -> Symbol:
        return apply("floor_divide", other, self)

    def __mod__(self, other: Any) -> Symbol:
        return apply("remainder", self, other)

    def __rmod__(self, other: Any) -> Symbol:
        return apply("remainder", other, self)

    def __divmod__(self, other: Any) -> tuple[Symbol, Symbol]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Symbol, Symbol]:
        return other // self, other % self

    def __matmul__(self, other: Any) -> Symbol:
        return apply("matmul", self, other)

    __rmatmul__ = __matmul__  # an error, both

    def __lshift__(self, other: Any) -> Symbol:
        return apply("shift", self, other)

    __rshift__ = __rlshift__ = __rrshift__ = __lshift__  # an error, all

    def __neg__(self) -> Symbol:
        return apply("neg", self)

    def __pos__(self) -> Symbol:
        return self

    def __abs__(self) -> Symbol:
        return apply("abs", self)

    # -- comparison and logic ------------------------------------------------------------------------------------

    # None and text are unequal, as to a tensor and everywhere in Python.
    def __eq__(self, other: object) -> Symbol:  # type: ignore[override]
        return NotImplemented if other is None or isinstance(other, str) else apply("eq", self, other)

    def __ne__(self, other: object) -> Symbol:  # type: ignore[override]
        return NotImplemented if other is None or isinstance(other, str) else apply("ne", self, other)

    def __lt__(self, other: Any) -> Symbol:
        return apply("lt", self, other)

    def __le__(self, other: Any) -> Symbol:
        return apply("le", self, other)

    def __gt__(self, other: Any) -> Symbol:
        return apply("gt", self, other)

    def __ge__(self, other: Any) -> Symbol:
        return apply("ge", self, other)

    def __and__(self, other: Any) -> Symbol:
        return _logic("logical_and", "&", self, other)

    def __rand__(self, other: Any) -> Symbol:
        return _logic("logical_and", "&", other, self)

    def __or__(self, other: Any) -> Symbol:
        return _logic("logical_or", "|", self, other)

    def __ror__(self, other: Any) -> Symbol:
        return _logic("logical_or", "|", other, self)

    def __xor__(self, other: Any) -> Symbol:
        return _logic("logical_xor", "^", self, other)

    def __rxor__(self, other: Any) -> Symbol:
        return _logic("logical_xor", "^", other, self)

    def __invert__(self) -> Symbol:
        return _logic("logical_not", "~", self)

    # -- what a tensor has as methods ------------------------------------------------------------------------------

    def clamp(self, min: Any = None, max: Any = None) -> Symbol:
        """Limited to min..max."""
        return clamped(self, min, max)

    def relu(self) -> Symbol:
        """The larger of this and 0."""
        from alpha.functions.activation import relu  # which is made of symbols itself

        result: Any = relu(self)  # type: ignore[arg-type]
        return cast(Symbol, result)

    def masked_fill(self, mask: Any, value: Any) -> Symbol:
        """A number where a condition holds, else this."""
        return apply("where", mask, value, self)

    def __getattr__(self, name: str) -> Callable[..., Symbol]:
        if name.startswith("__"):  # what Python and NumPy ask whether it is there
            raise AttributeError(name)
        if name == "where":
            raise TraceError("a condition first", ".where", "write alpha.where(condition, a, b)")
        if (name in OPERATIONS and name not in OF_INTEGERS_ALONE) or name in COMPOUND:
            return lambda *others: apply(name, self, *others)
        from alpha.functions.primitives import EXPRESSIONS  # which is made of symbols itself

        if name in EXPRESSIONS:
            expression: Any = EXPRESSIONS[name]
            return lambda *others: expression(self, *others)
        raise TraceError("point-wise operations alone", f".{name}", f"use {FUNCTIONS}; do the rest outside")

    # -- what cannot be known before there are elements ------------------------------------------------------------

    def __bool__(self) -> bool:
        raise TraceError(
            "a function without if, while, and, or, not, max(), min() and a < b < c on its arguments",
            "a decision on a number that differs between elements or calls",
            "write alpha.where(condition, a, b), alpha.maximum(a, b), alpha.minimum(a, b), and & | ~ of conditions, as "
            "in (a < b) & (b < c)",
        )

    def __float__(self) -> float:
        self._no_number("a function of Python's math module or float()", "the function of that name in alpha")

    def __int__(self) -> int:
        self._no_number("int()", "alpha.floor")

    def __trunc__(self) -> int:
        self._no_number("math.trunc()", "alpha.floor")

    def __index__(self) -> int:  # noqa: PLE0305 (it returns nothing at all)
        self._no_number("a count or an index", "a Python number that the function reads beside its arguments")

    def __round__(self, digits: Any = None) -> int:
        self._no_number("round()", "alpha.floor(x + 0.5)")

    def __format__(self, form: str) -> str:
        if form:
            self._no_number("a number's format", "print outside the function")
        return repr(self)

    def __repr__(self) -> str:
        return f"<expression {self.node}>"

    def _no_number(self, got: str, instead: str) -> NoReturn:
        raise TraceError("operations on expressions", got, f"an element is no number yet; use {instead}")

    def __iter__(self) -> Any:
        raise TraceError("operations on single elements", "an iteration", "a point-wise function sees one element")

    def __len__(self) -> int:
        raise TraceError("operations on single elements", "len()", "a point-wise function sees one element")

    def __getitem__(self, key: Any) -> Any:
        raise TraceError("operations on single elements", "an index", "index the tensor before the call")

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TraceError("operations on single elements", "an assignment", "write alpha.where(condition, a, b)")

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TraceError("operations on expressions", "a conversion to a NumPy array", "use alpha's functions")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        name = _ALIASES.get(ufunc.__name__, ufunc.__name__)
        if method == "__call__" and isinstance(inputs[0], np.generic) and not options and name in OPERATIONS:
            return apply(name, *inputs)  # a NumPy number on the left of an operator
        raise TraceError("alpha's functions", f"numpy.{ufunc.__name__}", f"use {FUNCTIONS}")


def is_symbolic(*values: Any) -> bool:
    """Whether a symbol is among the values."""
    return any(type(value) is Symbol for value in values)


def apply(name: str, *values: Any) -> Symbol:
    """An operation of symbols and numbers, at least one a symbol."""
    graph = next(value.graph for value in values if type(value) is Symbol)
    nodes = tuple([_node(graph, value) for value in values])
    if name in COMPOUND:
        return Symbol(graph, COMPOUND[name](graph, *nodes))
    if name not in OPERATIONS:
        raise TraceError("point-wise operations that have a gradient", f"alpha.{name}", f"use {FUNCTIONS}")
    count = len(OPERATIONS[name].operands)
    if len(nodes) != count:
        raise TraceError(f"{count} operand{'s' * (count > 1)} of {name}", f"{len(nodes)}", "give it so many")
    return Symbol(graph, graph.apply(name, *nodes))


def _logic(name: str, sign: str, *values: Any) -> Symbol:
    """A logical operator, of bools and numbers, as between tensors."""
    if any(type(value) is Symbol and value.node.kind == FLOAT for value in values):
        raise TraceError(f"conditions beside {sign}", "floats", "compare them first, as in (x > 0) & (y > 0)")
    return apply(name, *values)


def clamped(x: Any, low: Any, high: Any) -> Symbol:
    """x limited to low..high, each of which may be None."""
    return apply("clamp", x, -math.inf if low is None else low, math.inf if high is None else high)


def _node(graph: Graph, value: Any) -> Node:
    if type(value) is Symbol:
        if value.graph is not graph:
            raise TraceError("symbols of one call", "one that an earlier call left behind", "keep none of them")
        return value.node
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool | int | float):
        try:
            return graph.constant(float(value))
        except OverflowError:
            raise TraceError("numbers in float's range", f"one of {len(str(value))} digits", "use math.inf") from None
    if hasattr(value, "shape"):
        raise TraceError(
            "tensors that are arguments of the function",
            f"a {type(value).__name__} from outside",
            "give the function one more argument, and pass it there; of numbers alone use Python's math",
        )
    raise TraceError("expressions and numbers", f"a value of type {type(value).__name__}", "convert it before the call")


def _square(graph: Graph, x: Node) -> Node:
    return graph.apply("mul", x, x)


def _reciprocal(graph: Graph, x: Node) -> Node:
    return graph.apply("div", 1.0, x)


def _isnan(graph: Graph, x: Node) -> Node:
    return graph.apply("ne", x, x)


COMPOUND: dict[str, Callable[..., Node]] = {"square": _square, "reciprocal": _reciprocal, "isnan": _isnan}
"""Operations that are written by others."""
