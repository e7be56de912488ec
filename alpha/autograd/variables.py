"""Variable: what PyTorch's older code wraps tensors in."""

from __future__ import annotations

from typing import Any

from alpha.arguments import flag
from alpha.errors import ArgumentError, described
from alpha.tensor import Tensor


class _OfTensors(type):
    """Tensors are instances of ``Variable``."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor)


class Variable(metaclass=_OfTensors):
    """``Variable(data, requires_grad=False)`` is a leaf with a tensor's memory; every tensor is an instance.

    It is from the time before tensors were in the graph themselves: ``requires_grad_`` does the same.
    """

    def __new__(cls, data: Tensor, requires_grad: bool = False) -> Any:
        """A tensor over the memory of another."""
        if not isinstance(data, Tensor):
            raise ArgumentError(f"[Variable] expected a tensor, got {described(data)}: make it with alpha.tensor")
        return data.detach().requires_grad_(flag("Variable", "requires_grad", requires_grad))
