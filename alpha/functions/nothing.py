"""Results of functions whose arguments have no elements: nothing is computed, and the gradients are 0."""

from __future__ import annotations

from alpha.arguments import Shape
from alpha.autograd import Function
from alpha.functions.operands import call
from alpha.tensor import Tensor


class Nothing(Function):
    """A number in every element, whatever the arguments are: their gradients are 0."""

    fresh = True

    def forward(self, shape: Shape, value: float, *arguments: Tensor | None) -> Tensor:
        self.shapes = [None if x is None else x.shape for x in arguments]
        engine, dtype = next((x.engine, x.dtype) for x in arguments if x is not None)
        out = engine.empty(shape, dtype)
        engine.fill(out, value)
        return out

    def backward(self, grad: Tensor) -> tuple[Tensor | None, ...]:
        found: list[Tensor | None] = [None, None]
        for shape, needed in zip(self.shapes, self.needs[2:], strict=True):
            if not needed or shape is None:
                found.append(None)
                continue
            zeros = grad.engine.empty(shape, grad.dtype)
            grad.engine.fill(zeros, 0)
            found.append(zeros)
        return tuple(found)


def nothing(shape: Shape, *arguments: Tensor | None, value: float = 0.0) -> Tensor:
    """What arguments without elements give: a shape filled with a number, in their place in the graph."""
    return call(Nothing, shape, value, *arguments)
