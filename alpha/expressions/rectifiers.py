"""ReLU and LeakyReLU as programs, for the engines' epilogues: of one operand, and their gradients from y and dy."""

from __future__ import annotations

from alpha.expressions.graph import Graph
from alpha.expressions.program import Program


def forward(slope: float) -> tuple[Program, tuple[float, ...]]:
    """The program that computes y of x, and its numbers."""
    return (_RELU, ()) if slope == 0 else (_LEAKY_RELU, (slope,))


def gradient(slope: float) -> tuple[Program, tuple[float, ...]]:
    """The program that computes dx of y and dy, and its numbers."""
    return (_RELU_GRADIENT, ()) if slope == 0 else (_LEAKY_RELU_GRADIENT, (slope,))


def _rectifier(loses: str, leaks: bool, of_gradient: bool) -> Program:
    """The last operand where the first is positive, else times a slope.

    Without a slope nothing is multiplied: -inf * 0 would be NaN.
    """
    graph = Graph()
    inputs = [graph.input(place) for place in range(2 if of_gradient else 1)]
    decides, passes = inputs[0], inputs[-1]
    if leaks:
        kept = graph.apply("gt", decides, 0.0)
        result = graph.apply("where", kept, passes, graph.apply("mul", passes, graph.argument(0)))
    else:
        result = graph.apply("where", graph.apply(loses, decides, 0.0), 0.0, passes)
    return Program(graph, [result], inputs)


_RELU = _rectifier("lt", leaks=False, of_gradient=False)  # of -0 it is -0
_RELU_GRADIENT = _rectifier("le", leaks=False, of_gradient=True)
_LEAKY_RELU = _rectifier("", leaks=True, of_gradient=False)
_LEAKY_RELU_GRADIENT = _rectifier("", leaks=True, of_gradient=True)

PROGRAMS = (_RELU, _RELU_GRADIENT, _LEAKY_RELU, _LEAKY_RELU_GRADIENT)
"""All of them."""
