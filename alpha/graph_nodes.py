"""The graph as PyTorch shows it: ``x.grad_fn`` and the functions that led to it."""

from __future__ import annotations

from typing import Any

from alpha.autograd import Function, follow_base
from alpha.tensor import Tensor


class Node:
    """The function whose result a tensor is.

    Attributes:
        function: the graph's own object; its attributes, such as ``saved_tensors``, are the node's too.
    """

    __slots__ = ("function",)

    def __init__(self, function: Function) -> None:
        self.function = function

    def name(self) -> str:
        """The function's name, as errors of backward have it."""
        return self.function.title

    @property
    def next_functions(self) -> tuple[tuple[Node | Leaf | None, int], ...]:
        """For each argument of the function where its gradient goes, and which result of that it is.

        A ``Leaf`` is for a tensor that gathers gradients, None for what needs none. Empty once backward freed the
        graph.
        """
        found: list[tuple[Node | Leaf | None, int]] = []
        for edge in self.function._edges:
            if edge is None:
                found.append((None, 0))
            else:
                target, output = edge
                found.append((Node(target) if isinstance(target, Function) else Leaf(target), output))
        return tuple(found)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.function, name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and self.function is other.function

    def __hash__(self) -> int:
        return id(self.function)

    def __repr__(self) -> str:
        return f"<{self.name()} in the graph at {id(self.function):#x}>"


class Leaf:
    """Where a gradient ends: it is added to a tensor's ``.grad``.

    Attributes:
        variable: the tensor.
    """

    __slots__ = ("variable",)

    next_functions: tuple[Any, ...] = ()

    def __init__(self, variable: Tensor) -> None:
        self.variable = variable

    def name(self) -> str:
        """PyTorch's name for it."""
        return "AccumulateGrad"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Leaf) and self.variable is other.variable

    def __hash__(self) -> int:
        return id(self.variable)

    def __repr__(self) -> str:
        return f"<{self.name()} of a tensor of shape {self.variable.shape}>"


def node_of(x: Tensor) -> Node | None:
    """What ``x.grad_fn`` is: None for a leaf."""
    if x._base is not None:
        follow_base(x)  # a view takes its place from what it views
    return None if x._node is None else Node(x._node)
