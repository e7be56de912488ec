"""Graph: expressions as nodes that are shared where they are equal, simplified as they are made."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from alpha.expressions import arrays

NUMBER, FLOAT, BOOL = "number", "float", "bool"
"""What a node's value is: one number a call, known before the loop begins; a float or a bool an element."""


class Operation(NamedTuple):
    """What the graph knows of an operation.

    Attributes:
        operands: the kinds of its operands, FLOAT or BOOL.
        result: FLOAT or BOOL.
        evaluate: its value in NumPy: of numbers, and in float64 the tests' oracle.
    """

    operands: tuple[str, ...]
    result: str
    evaluate: Callable[..., Any]


def _unary(evaluate: Callable[..., Any]) -> Operation:
    return Operation((FLOAT,), FLOAT, evaluate)


def _binary(evaluate: Callable[..., Any]) -> Operation:
    return Operation((FLOAT, FLOAT), FLOAT, evaluate)


def _comparison(evaluate: Callable[..., Any]) -> Operation:
    return Operation((FLOAT, FLOAT), BOOL, evaluate)


def _logical(evaluate: Callable[..., Any]) -> Operation:
    return Operation((BOOL, BOOL), BOOL, evaluate)


def _sigmoid(x: Any) -> Any:
    small = np.exp(-np.abs(x))  # never more than 1, so that nothing overflows
    return np.where(np.signbit(x), small, 1.0) / (1.0 + small)


_erf = np.vectorize(math.erf, otypes=[float])


def _floor_divide(x: Any, y: Any) -> Any:
    return np.floor_divide(np.asarray(x, np.float64), y)


def _remainder(x: Any, y: Any) -> Any:
    """The remainder with the divisor's sign; one of zero has the sign of x."""
    rest = np.remainder(np.asarray(x, np.float64), y)
    return np.where(rest == 0, np.copysign(rest, x), rest)


def _elementwise(function: Callable[[float], float], least: float) -> Callable[..., Any]:
    """A function of Python's math module; where it has no value the limit ``least``, of NaN NaN."""

    def of_one(x: float) -> float:
        try:
            return function(x)
        except (ValueError, OverflowError):
            return least

    return np.vectorize(of_one, otypes=[float])


OPERATIONS: dict[str, Operation] = {
    "neg": _unary(np.negative),
    "abs": _unary(np.abs),
    "exp": _unary(np.exp),
    "expm1": _unary(np.expm1),
    "log": _unary(np.log),
    "log1p": _unary(np.log1p),
    "sqrt": _unary(np.sqrt),
    "rsqrt": _unary(lambda x: 1.0 / np.sqrt(x)),
    "sin": _unary(np.sin),
    "cos": _unary(np.cos),
    "tanh": _unary(np.tanh),
    "sigmoid": _unary(_sigmoid),
    "erf": _unary(_erf),
    "normal_cdf": _unary(lambda x: 0.5 * (1.0 + _erf(x * math.sqrt(0.5)))),
    "exp2": _unary(np.exp2),
    "log2": _unary(np.log2),
    "log10": _unary(np.log10),
    "tan": _unary(np.tan),
    "atan": _unary(np.arctan),
    "erfc": _unary(np.vectorize(math.erfc, otypes=[float])),
    "erfcx": _unary(arrays.computed("erfcx")),
    "erfinv": _unary(arrays.computed("erfinv")),
    "ndtri": _unary(arrays.computed("ndtri")),
    "lgamma": _unary(_elementwise(math.lgamma, math.inf)),
    "digamma": _unary(arrays.computed("digamma")),
    "i0e": _unary(arrays.computed("i0e")),
    "i1e": _unary(arrays.computed("i1e")),
    "exponent": _unary(lambda x: np.frexp(np.asarray(x, np.float64))[1].astype(np.float64)),
    "trunc": _unary(np.trunc),
    "round": _unary(np.rint),
    "sign": _unary(lambda x: np.where(np.isnan(x), 0.0, np.sign(x))),
    "floor": _unary(np.floor),
    "ceil": _unary(np.ceil),
    "add": _binary(np.add),
    "sub": _binary(np.subtract),
    "mul": _binary(np.multiply),
    "div": _binary(np.divide),
    "floor_divide": _binary(_floor_divide),
    "remainder": _binary(_remainder),
    "fmod": _binary(np.fmod),
    "pow": _binary(np.power),
    "atan2": _binary(np.arctan2),
    "copysign": _binary(np.copysign),
    "nextafter": _binary(np.nextafter),
    "maximum": _binary(np.maximum),
    "minimum": _binary(np.minimum),
    "clamp": Operation((FLOAT, FLOAT, FLOAT), FLOAT, lambda x, low, high: np.minimum(np.maximum(x, low), high)),
    "bitwise_and": _binary(np.bitwise_and),
    "bitwise_or": _binary(np.bitwise_or),
    "bitwise_xor": _binary(np.bitwise_xor),
    "bitwise_not": _unary(np.bitwise_not),
    "left_shift": _binary(np.left_shift),
    "right_shift": _binary(np.right_shift),
    "eq": _comparison(np.equal),
    "ne": _comparison(np.not_equal),
    "lt": _comparison(np.less),
    "le": _comparison(np.less_equal),
    "gt": _comparison(np.greater),
    "ge": _comparison(np.greater_equal),
    "isfinite": Operation((FLOAT,), BOOL, np.isfinite),
    "logical_and": _logical(np.logical_and),
    "logical_or": _logical(np.logical_or),
    "logical_xor": _logical(np.logical_xor),
    "logical_not": Operation((BOOL,), BOOL, np.logical_not),
    "where": Operation((BOOL, FLOAT, FLOAT), FLOAT, np.where),
}

OF_INTEGERS_ALONE = frozenset(["bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "left_shift", "right_shift"])
"""Operations that floats do not have."""

_COMMUTATIVE = frozenset(["add", "mul", "eq", "ne", "logical_and", "logical_or", "logical_xor"])


class Node:
    """An operation on nodes, or what expressions begin with: an "input", an "argument" (both numbered), a "constant".

    Made by a Graph alone, which makes equal ones once: so nodes are equal where they are the same object.

    Attributes:
        value: the number of a constant; the place of an input among the tensors, of an argument among the numbers.
        serial: counts the nodes of a graph; those that a node is made of have smaller ones.
    """

    __slots__ = ("kind", "operands", "operation", "serial", "value")

    def __init__(self, operation: str, operands: tuple[Node, ...], value: float, kind: str, serial: int) -> None:
        self.operation, self.operands, self.value, self.kind, self.serial = operation, operands, value, kind, serial

    @property
    def is_constant(self) -> bool:
        """Whether its value stands in the user's function."""
        return self.operation == "constant"

    def is_the_number(self, value: float) -> bool:
        """Whether it is that constant."""
        return self.operation == "constant" and self.value == value

    def __repr__(self) -> str:
        if self.operation == "constant":
            return repr(self.value)
        inner = ", ".join(map(repr, self.operands)) or str(int(self.value))
        return f"{self.operation}({inner})"


class Graph:
    """The nodes of one function: what it computes, and what its gradients do.

    Attributes:
        rules: of nodes whose gradient a user gave: what gives it, and the nodes that it is the gradient for.
    """

    def __init__(self) -> None:
        self._nodes: dict[tuple[Any, ...], Node] = {}
        self.rules: dict[Node, tuple[Callable[..., Any], tuple[Node, ...]]] = {}

    def input(self, place: int, kind: str = FLOAT) -> Node:
        """An element of a tensor: a FLOAT or a BOOL."""
        return self._node("input", (), place, kind)

    def argument(self, place: int) -> Node:
        """A number that each call gives."""
        return self._node("argument", (), place, NUMBER)

    def constant(self, value: float) -> Node:
        """A number that stands in the function."""
        return self._node("constant", (), float(value), NUMBER)

    def apply(self, operation: str, *operands: Node | float) -> Node:
        """The operation's node, or a simpler one of the same value; floats beside nodes are constants."""
        known = OPERATIONS[operation]
        nodes = tuple(
            [
                self._as_kind(x if isinstance(x, Node) else self.constant(x), kind)
                for x, kind in zip(operands, known.operands, strict=True)
            ]
        )
        if all(node.is_constant for node in nodes) and known.result == FLOAT and BOOL not in known.operands:
            return self.constant(evaluated(operation, *[node.value for node in nodes]))
        simpler = self._simplified(operation, nodes)
        if simpler is not None:
            return simpler
        if operation in _COMMUTATIVE and nodes[0].serial > nodes[1].serial:
            nodes = nodes[1], nodes[0]
        numbers = known.result == FLOAT and all(node.kind == NUMBER for node in nodes)
        return self._node(operation, nodes, 0, NUMBER if numbers else known.result)

    def _node(self, operation: str, operands: tuple[Node, ...], value: float, kind: str) -> Node:
        key = (operation, *operands, str(value))  # as text: 0.0 and -0.0 are equal, and NaN is not
        found = self._nodes.get(key)
        if found is None:
            found = self._nodes[key] = Node(operation, operands, value, kind, len(self._nodes))
        return found

    def _as_kind(self, node: Node, kind: str) -> Node:
        """A bool as 1 or 0 where a float is wanted, a float as whether it differs from 0 where a bool is."""
        if kind == FLOAT and node.kind == BOOL:
            return self.apply("where", node, 1.0, 0.0)
        if kind == BOOL and node.kind != BOOL:
            return self.apply("ne", node, 0.0)
        return node

    def _simplified(self, operation: str, nodes: tuple[Node, ...]) -> Node | None:
        """A node of the same value that costs less, for every value of the operands, NaN and infinities too."""
        x, y = nodes[0], nodes[-1]
        if operation in ("mul", "add") and x.is_constant:
            x, y = y, x
        if operation == "neg" and x.operation == "neg":
            return x.operands[0]
        if operation == "logical_not" and x.operation == "logical_not":
            return x.operands[0]
        if operation == "abs" and x.operation in ("abs", "neg"):
            return x if x.operation == "abs" else self.apply("abs", x.operands[0])
        if operation in ("add", "sub") and y.is_the_number(0.0):
            return x
        if operation in ("mul", "div") and y.is_the_number(1.0):
            return x
        if operation in ("mul", "div") and y.is_the_number(-1.0):
            return self.apply("neg", x)
        if operation == "mul" and x.operation == "neg" and y.is_constant:
            return self.apply("mul", x.operands[0], -y.value)
        if operation == "add" and y.operation == "neg":
            return self.apply("sub", x, y.operands[0])
        if operation == "sub" and y.operation == "neg":
            return self.apply("add", x, y.operands[0])
        if operation == "div" and y.is_constant and _has_exact_reciprocal(y.value):
            return self.apply("mul", x, 1.0 / y.value)
        if operation == "pow" and y.is_constant:
            return self._power(x, y.value)
        if operation == "where" and nodes[1] is nodes[2]:
            return nodes[1]
        return None

    def _power(self, x: Node, exponent: float) -> Node | None:
        """x to a small power as a product or a root, which are exact to half a unit or nearly so; else None."""
        if exponent == 1:
            return x
        if exponent == 2:
            return self.apply("mul", x, x)
        if exponent == 3:
            return self.apply("mul", self.apply("mul", x, x), x)
        if exponent in (-1, -2):
            return self.apply("div", 1.0, x if exponent == -1 else self.apply("mul", x, x))
        if exponent == 0.5:
            return self.apply("sqrt", x)
        return self.apply("rsqrt", x) if exponent == -0.5 else None


def _has_exact_reciprocal(value: float) -> bool:
    """Whether to divide by a number is to multiply by another, to the bit: it is a power of two, not an extreme one."""
    return (
        value != 0 and math.isfinite(value) and abs(math.frexp(value)[0]) == 0.5 and 2.0**-100 < abs(value) < 2.0**100
    )


def evaluated(operation: str, *values: float) -> float:
    """An operation's value of numbers, in float64."""
    with np.errstate(all="ignore"):
        return float(OPERATIONS[operation].evaluate(*map(np.float64, values)))
