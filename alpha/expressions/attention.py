"""What attention does with its scores, as programs: masks, the softmax by its largest score, and the gradient."""

from __future__ import annotations

import math

from alpha.expressions.graph import Graph, Node
from alpha.expressions.program import Program


def _top(graph: Graph, top: Node) -> Node:
    """The largest score, or 0 for a query that sees no key: -inf less -inf would be NaN."""
    return graph.apply("where", graph.apply("eq", top, -math.inf), 0.0, top)


def _added() -> Program:
    """A score and a mask's number; minus infinity, whatever the score is, where that is."""
    graph = Graph()
    score, mask = graph.input(0), graph.input(1)
    is_hidden = graph.apply("eq", mask, -math.inf)
    return Program(graph, [graph.apply("where", is_hidden, -math.inf, graph.apply("add", score, mask))], [score, mask])


def _power() -> Program:
    """exp(score - top)."""
    graph = Graph()
    score, top = graph.input(0), graph.input(1)
    return Program(graph, [graph.apply("exp", graph.apply("sub", score, _top(graph, top)))], [score, top])


def _logarithm() -> Program:
    """That of the softmax's sum, of the powers' sum and the top: infinity where no key is seen."""
    graph = Graph()
    total, top = graph.input(0), graph.input(1)
    found = graph.apply("add", _top(graph, top), graph.apply("log", total))
    return Program(graph, [graph.apply("where", graph.apply("eq", total, 0.0), math.inf, found)], [total, top])


def _mean() -> Program:
    """A sum over the powers' sum; 0 where no key is seen."""
    graph = Graph()
    value, total = graph.input(0), graph.input(1)
    divisor = graph.apply("where", graph.apply("eq", total, 0.0), 1.0, total)
    return Program(graph, [graph.apply("div", value, divisor)], [value, total])


def _probability() -> Program:
    """exp(score - logarithm)."""
    graph = Graph()
    score, logarithm = graph.input(0), graph.input(1)
    return Program(graph, [graph.apply("exp", graph.apply("sub", score, logarithm))], [score, logarithm])


def _gradient() -> Program:
    """A score's: p * (dp - mean)."""
    graph = Graph()
    p, dp, mean = (graph.input(place) for place in range(3))
    return Program(graph, [graph.apply("mul", p, graph.apply("sub", dp, mean))], [p, dp, mean])


ADDED, POWER, LOGARITHM, MEAN, PROBABILITY, GRADIENT = (
    _added(), _power(), _logarithm(), _mean(), _probability(), _gradient()
)  # fmt: skip

PROGRAMS = (ADDED, POWER, LOGARITHM, MEAN, PROBABILITY, GRADIENT)
"""All of them."""
