"""Gradients of an expression, made in its own graph: what forward and gradients share is one node."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from alpha.expressions.graph import FLOAT, NUMBER, Graph, Node
from alpha.expressions.polygammas import polygamma
from alpha.expressions.symbols import Symbol

Rule = Callable[[Graph, Node, Node, tuple[Node, ...]], tuple[Node | None, ...]]
"""``rule(graph, gradient, result, operands)``: a gradient for each operand, or None where it is 0 everywhere."""


def gradients(graph: Graph, result: Node, gradient: Node, wanted: Sequence[Node]) -> list[Node | None]:
    """For each wanted node the gradient that reaches it when ``gradient`` is the result's; None where none does.

    The reverse walk of the chain rule: each node hands what has arrived for it to its operands, once.
    """
    reaching = _between(graph, result, set(wanted))
    arrived: dict[Node, Node] = {result: gradient}
    for node in sorted(reaching, key=lambda one: -one.serial):
        found = arrived.get(node)
        if found is None or node in wanted:
            continue
        operands, parts = _parts(graph, found, node)
        for operand, part in zip(operands, parts, strict=True):
            if part is not None and operand in reaching:
                before = arrived.get(operand)
                arrived[operand] = part if before is None else graph.apply("add", before, part)
    return [arrived.get(node) for node in wanted]


def _operands(graph: Graph, node: Node) -> tuple[Node, ...]:
    return graph.rules[node][1] if node in graph.rules else node.operands


def _between(graph: Graph, result: Node, wanted: set[Node]) -> set[Node]:
    """The nodes through which a gradient of the result can reach one that is wanted."""
    order: list[Node] = []
    seen: set[Node] = set()
    waiting = [result]
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            order.append(node)
            waiting += _operands(graph, node)
    reaching: set[Node] = set()
    for node in sorted(order, key=lambda one: one.serial):
        differentiable = node.kind == FLOAT
        if node in wanted or (differentiable and any(one in reaching for one in _operands(graph, node))):
            reaching.add(node)
    return reaching


def _parts(graph: Graph, gradient: Node, node: Node) -> tuple[tuple[Node, ...], tuple[Node | None, ...]]:
    """The operands of a node, and what each gets of the node's gradient."""
    if node in graph.rules:
        give, operands = graph.rules[node]
        return operands, give(gradient)
    return node.operands, _RULES[node.operation](graph, gradient, node, node.operands)


# -- the rules -------------------------------------------------------------------------------------------------------


def _sub(graph: Graph, g: Node, _: Node, operands: tuple[Node, ...]) -> tuple[Node | None, ...]:
    return g, graph.apply("neg", g)


def _mul(graph: Graph, g: Node, _: Node, operands: tuple[Node, ...]) -> tuple[Node | None, ...]:
    x, y = operands
    return graph.apply("mul", g, y), graph.apply("mul", g, x)


def _div(graph: Graph, g: Node, result: Node, operands: tuple[Node, ...]) -> tuple[Node | None, ...]:
    """In PyTorch's order of products and quotients, which decides what is infinite."""
    x, y = operands
    if x.is_the_number(1.0):
        return None, graph.apply("neg", graph.apply("mul", g, graph.apply("mul", result, result)))
    return graph.apply("div", g, y), graph.apply("neg", graph.apply("mul", g, graph.apply("div", result, y)))


def _pow(graph: Graph, g: Node, result: Node, operands: tuple[Node, ...]) -> tuple[Node | None, ...]:
    """For x g * y * x ** (y - 1), and 0 where y is 0; for y 0 where x is 0 and y >= 0, as in PyTorch."""
    x, y = operands
    slope = graph.apply("mul", graph.apply("pow", x, graph.apply("sub", y, 1.0)), y)
    for_x = graph.apply("mul", g, slope)
    if y.is_the_number(0.0):
        return None, None
    if not y.is_constant:
        for_x = graph.apply("where", graph.apply("eq", y, 0.0), 0.0, for_x)
    if y.kind == NUMBER:
        return for_x, None
    still = graph.apply("logical_and", graph.apply("eq", x, 0.0), graph.apply("ge", y, 0.0))
    rise = graph.apply("mul", result, graph.apply("log", x))
    return for_x, graph.apply("mul", g, graph.apply("where", still, 0.0, rise))


def _extremum(loses: str) -> Rule:
    """The larger or smaller of two: where they are equal each gets half, where one is NaN both get it whole."""

    def rule(graph: Graph, g: Node, _: Node, operands: tuple[Node, ...]) -> tuple[Node | None, ...]:
        x, y = operands
        half = graph.apply("where", graph.apply("eq", x, y), graph.apply("mul", g, 0.5), g)
        return (
            graph.apply("where", graph.apply(loses, x, y), 0.0, half),
            graph.apply("where", graph.apply(loses, y, x), 0.0, half),
        )

    return rule


def _clamp(graph: Graph, g: Node, _: Node, operands: tuple[Node, ...]) -> tuple[Node | None, ...]:
    """x's inside, bounds included; beyond a bound the bound's, of two in the wrong order the upper; at NaN nobody's."""
    x, low, high = operands
    do = graph.apply
    has_low, has_high = not low.is_the_number(-math.inf), not high.is_the_number(math.inf)
    above, below = do("ge", x, low), do("le", x, high)
    inside = do("logical_and", above, below) if has_low and has_high else above if has_low else below
    at_low = do("logical_and", do("lt", x, low), do("lt", low, high)) if has_high else do("lt", x, low)
    at_high = do("logical_or", do("gt", x, high), do("lt", high, low)) if has_low else do("gt", x, high)
    return (
        do("where", inside, g, 0.0),
        do("where", at_low, g, 0.0) if low.kind != NUMBER else None,
        do("where", at_high, g, 0.0) if high.kind != NUMBER else None,
    )


def _where(graph: Graph, g: Node, _: Node, operands: tuple[Node, ...]) -> tuple[Node | None, ...]:
    condition = operands[0]
    return None, graph.apply("where", condition, g, 0.0), graph.apply("where", condition, 0.0, g)


def _remainder(graph: Graph, g: Node, _: Node, operands: tuple[Node, ...]) -> tuple[Node | None, ...]:
    return g, graph.apply("neg", graph.apply("mul", g, graph.apply("floor_divide", *operands)))


def _no_slope(graph: Graph, g: Node, _: Node, operands: tuple[Node, ...]) -> tuple[Node | None, ...]:
    return None, None


def _steps(graph: Graph, g: Node, _: Node, operands: tuple[Node, ...]) -> tuple[Node | None, ...]:
    return (None,)


def _by(slope: Callable[[Graph, Node, Node], Node]) -> Rule:
    """The rule of one operand whose gradient is multiplied by a slope, made from the operand and the result."""

    def rule(graph: Graph, g: Node, result: Node, operands: tuple[Node, ...]) -> tuple[Node | None, ...]:
        return (graph.apply("mul", g, slope(graph, operands[0], result)),)

    return rule


def _over(divisor: Callable[[Graph, Node, Node], Node]) -> Rule:
    """The rule of one operand whose gradient is divided by a divisor."""

    def rule(graph: Graph, g: Node, result: Node, operands: tuple[Node, ...]) -> tuple[Node | None, ...]:
        return (graph.apply("div", g, divisor(graph, operands[0], result)),)

    return rule


def _bell(graph: Graph, x: Node, _: Node) -> Node:
    square = graph.apply("mul", x, x)
    return graph.apply("mul", graph.apply("exp", graph.apply("neg", square)), 2 / math.sqrt(math.pi))


def _normal_density(graph: Graph, x: Node, _: Node) -> Node:
    exponent = graph.apply("mul", graph.apply("mul", x, x), -0.5)
    return graph.apply("mul", graph.apply("exp", exponent), 1 / math.sqrt(2 * math.pi))


def _erfcx_slope(graph: Graph, x: Node, y: Node) -> Node:
    return graph.apply("sub", graph.apply("mul", graph.apply("mul", x, y), 2.0), 2 / math.sqrt(math.pi))


def _inverse_bell(graph: Graph, _: Node, y: Node) -> Node:
    return graph.apply("mul", graph.apply("exp", graph.apply("mul", y, y)), math.sqrt(math.pi) / 2)


def _inverse_density(graph: Graph, _: Node, y: Node) -> Node:
    half = graph.apply("mul", graph.apply("mul", y, y), 0.5)
    return graph.apply("mul", graph.apply("exp", half), math.sqrt(2 * math.pi))


def _i0e_slope(graph: Graph, x: Node, y: Node) -> Node:
    return graph.apply("sub", graph.apply("i1e", x), graph.apply("mul", graph.apply("sign", x), y))


def _i1e_slope(graph: Graph, x: Node, y: Node) -> Node:
    """I1's slope is I0(x) - I1(x) / x, near 0 one half."""
    near = graph.apply("lt", graph.apply("abs", x), 1e-17)
    inverse = graph.apply("div", 1.0, graph.apply("where", near, 1.0, x))
    rest = graph.apply("mul", y, graph.apply("add", graph.apply("sign", x), inverse))
    slope = graph.apply("sub", graph.apply("i0e", x), rest)
    return graph.apply("where", near, 0.5, slope)


def _atan2(graph: Graph, g: Node, _: Node, operands: tuple[Node, ...]) -> tuple[Node | None, ...]:
    """0 at the origin, as in PyTorch."""
    y, x = operands
    square = graph.apply("add", graph.apply("mul", x, x), graph.apply("mul", y, y))
    part = graph.apply("where", graph.apply("eq", square, 0.0), 0.0, graph.apply("div", g, square))
    return graph.apply("mul", part, x), graph.apply("neg", graph.apply("mul", part, y))


def _fmod(graph: Graph, g: Node, _: Node, operands: tuple[Node, ...]) -> tuple[Node | None, ...]:
    whole = graph.apply("trunc", graph.apply("div", *operands))
    return g, graph.apply("neg", graph.apply("mul", g, whole))


def _copysign(graph: Graph, g: Node, y: Node, operands: tuple[Node, ...]) -> tuple[Node | None, ...]:
    """By the quotient of result and argument; 0 where the argument is 0, as in PyTorch."""
    x = operands[0]
    slope = graph.apply("mul", graph.apply("sign", x), graph.apply("sign", y))
    return graph.apply("mul", g, slope), None


def _cube(graph: Graph, _: Node, y: Node) -> Node:
    return graph.apply("mul", graph.apply("mul", graph.apply("mul", y, y), y), -0.5)


_RULES: dict[str, Rule] = {
    "neg": lambda graph, g, y, operands: (graph.apply("neg", g),),
    "abs": _by(lambda graph, x, y: graph.apply("sign", x)),
    "exp": _by(lambda graph, x, y: y),
    "expm1": _by(lambda graph, x, y: graph.apply("add", y, 1.0)),
    "log": _over(lambda graph, x, y: x),
    "log1p": _over(lambda graph, x, y: graph.apply("add", x, 1.0)),
    "sqrt": lambda graph, g, y, operands: (graph.apply("div", graph.apply("mul", g, 0.5), y),),
    "rsqrt": _by(_cube),
    "sin": _by(lambda graph, x, y: graph.apply("cos", x)),
    "cos": _by(lambda graph, x, y: graph.apply("neg", graph.apply("sin", x))),
    "tanh": _by(lambda graph, x, y: graph.apply("sub", 1.0, graph.apply("mul", y, y))),
    "sigmoid": _by(lambda graph, x, y: graph.apply("mul", y, graph.apply("sub", 1.0, y))),
    "erf": _by(_bell),
    "normal_cdf": _by(_normal_density),
    "exp2": _by(lambda graph, x, y: graph.apply("mul", y, math.log(2))),
    "log2": _over(lambda graph, x, y: graph.apply("mul", x, math.log(2))),
    "log10": _over(lambda graph, x, y: graph.apply("mul", x, math.log(10))),
    "tan": _by(lambda graph, x, y: graph.apply("add", graph.apply("mul", y, y), 1.0)),
    "atan": _over(lambda graph, x, y: graph.apply("add", graph.apply("mul", x, x), 1.0)),
    "atan2": _atan2,
    "erfc": _by(lambda graph, x, y: graph.apply("neg", _bell(graph, x, y))),
    "erfcx": _by(_erfcx_slope),
    "erfinv": _by(_inverse_bell),
    "ndtri": _by(_inverse_density),
    "lgamma": _by(lambda graph, x, y: graph.apply("digamma", x)),
    "digamma": _by(lambda graph, x, y: polygamma(1, Symbol(graph, x)).node),
    "i0e": _by(_i0e_slope),
    "i1e": _by(_i1e_slope),
    "exponent": _steps,
    "trunc": _steps,
    "round": _steps,
    "copysign": _copysign,
    "nextafter": lambda graph, g, y, operands: (g, None),
    "fmod": _fmod,
    "sign": _steps,
    "floor": _steps,
    "ceil": _steps,
    "add": lambda graph, g, y, operands: (g, g),
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "floor_divide": _no_slope,
    "remainder": _remainder,
    "pow": _pow,
    "maximum": _extremum("lt"),
    "minimum": _extremum("gt"),
    "clamp": _clamp,
    "where": _where,
}
"""The gradient of each operation whose result is a float."""
