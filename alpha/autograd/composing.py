"""What backwards are made of where the gradients enter a graph: linear functions' own, and formulas'."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from alpha.autograd.function import Function
from alpha.autograd.gradients import grad
from alpha.tensor import Tensor


class Returned(Function):
    """What a linear function's ``backward`` makes of a gradient; the gradient of that is the function itself."""

    fresh = True

    def forward(
        self, gradient: Tensor, function: Function, again: Callable[[Tensor], Tensor], others: tuple[None, ...]
    ) -> Tensor:
        self.again = again
        result: Tensor = function.backward(gradient, *others)
        return result

    def backward(self, gradient: Tensor) -> Tensor:
        return self.again(gradient)


def returned(function: Function, gradient: Tensor, again: Callable[[Tensor], Tensor], *others: None) -> Tensor:
    """A linear function's backward as a differentiable function.

    Args:
        gradient: that of its only result that has one.
        again: the linear function, made of differentiable functions.
        others: what backward takes in place of the other results' gradients.
    """
    result: Tensor = Returned.apply(gradient, function=function, again=again, others=others)
    return result


class Alias(Function):
    """The argument, at a place of its own in the graph."""

    passes_on = True

    def forward(self, x: Tensor) -> Tensor:
        return x

    def backward(self, gradient: Tensor) -> Tensor:
        return gradient


def by_formula(
    formula: Callable[..., Any], arguments: Sequence[Any], gradient: Tensor | Sequence[Tensor | None]
) -> tuple[Tensor | None, ...]:
    """The gradients of a formula made of functions that have second gradients.

    Args:
        formula: computes what a function does, of the arguments.
        arguments: tensors, at their places in the graph, and whatever else the formula takes; None for tensors outside.
        gradient: that of the formula's result; one for each of several, or None where none flowed.
    """
    aliases = [Alias.apply(x) if isinstance(x, Tensor) and x.requires_grad else x for x in arguments]
    wanted = [x for x in aliases if isinstance(x, Tensor) and x.requires_grad]
    results, given = formula(*aliases), gradient
    if isinstance(results, tuple) and not isinstance(gradient, Tensor):
        flowing = [pair for pair in zip(results, gradient, strict=True) if pair[1] is not None]
        results, given = [result for result, _ in flowing], [start for _, start in flowing]
    found = iter(grad(results, wanted, given, create_graph=True, allow_unused=True))
    return tuple([next(found) if isinstance(x, Tensor) and x.requires_grad else None for x in aliases])
