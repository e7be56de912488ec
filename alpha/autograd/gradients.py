"""Gradients on demand: ``grad`` returns them, ``backward`` adds them to the leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alpha.arguments import flag
from alpha.autograd.function import follow_base
from alpha.autograd.walk import Walk, seed, walk_from
from alpha.errors import ArgumentError, GraphError
from alpha.tensor import Tensor

Tensors = Tensor | Sequence[Tensor]


def grad(
    outputs: Tensors,
    inputs: Tensors,
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """The gradients of outputs with respect to inputs; no ``.grad`` is changed.

    Args:
        outputs: results in the graph.
        inputs: leaves, or results on the way to the outputs.
        grad_outputs: the gradient at each output; None: 1 for an output of one element.
        retain_graph: keep the saved tensors for another walk; by default as ``create_graph``.
        create_graph: enter the gradients into the graph, so that they have gradients themselves.
        allow_unused: give None for an input that the outputs do not depend on; by default GraphError.
        materialize_grads: give zeros for such an input.
    """
    create_graph = flag("grad", "create_graph", create_graph)
    retain_graph = create_graph if retain_graph is None else flag("grad", "retain_graph", retain_graph)
    materialize_grads = flag("grad", "materialize_grads", materialize_grads)
    results, wanted = _several("outputs", outputs), _several("inputs", inputs)
    given = _given(grad_outputs, len(results))
    roots = [(result, seed("grad", result, start)) for result, start in zip(results, given, strict=True)]
    edges = [_edge(x) for x in wanted]
    walk = Walk(retain_graph, create_graph)
    walk.aim(edges, results)
    walk.settles = False
    walk_from(roots, walk)
    found: list[Tensor | None] = []
    for x, edge in zip(wanted, edges, strict=True):
        gradient = walk.found(edge)
        if gradient is None and materialize_grads:
            gradient = x.engine.full(x.shape, 0, x.dtype)
        elif gradient is None and not allow_unused:
            raise GraphError(
                "[grad] expected inputs that the outputs depend on, got one that they do not: pass allow_unused=True "
                "for None in its place"
            )
        found.append(gradient)
    return tuple(found)


def backward(
    tensors: Tensors,
    grad_tensors: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Tensors | None = None,
) -> None:
    """Adds the gradient of several results' sum to ``.grad`` of every leaf that requires one, in one walk.

    Args:
        tensors: the results.
        grad_tensors: the gradient at each; None: 1 for a result of one element.
        retain_graph, create_graph, inputs: as of ``Tensor.backward``.
    """
    create_graph = flag("backward", "create_graph", create_graph)
    retain_graph = create_graph if retain_graph is None else flag("backward", "retain_graph", retain_graph)
    results = _several("tensors", tensors)
    given = _given(grad_tensors, len(results))
    walk = Walk(retain_graph, create_graph)
    if inputs is not None:
        walk.aim([_edge(x) for x in _several("inputs", inputs)], results)
    walk_from([(result, seed("backward", result, start)) for result, start in zip(results, given, strict=True)], walk)


def _several(name: str, tensors: Any) -> list[Tensor]:
    """One tensor or several, as a list."""
    found = [tensors] if isinstance(tensors, Tensor) else list(tensors) if isinstance(tensors, list | tuple) else None
    if not found or not all(isinstance(x, Tensor) for x in found):
        raise ArgumentError(f"[grad] expected {name} as a tensor or several, got {type(tensors).__name__}")
    return found


def _given(gradients: Any, count: int) -> list[Tensor | None]:
    """A gradient, or None, for each of so many results."""
    found: list[Tensor | None] = [None] * count
    if gradients is not None:
        found = [gradients] if isinstance(gradients, Tensor) else list(gradients)
    if len(found) != count:
        raise ArgumentError(f"[grad] expected a gradient for each of {count} outputs, got {len(found)}")
    return found


def _edge(x: Tensor) -> tuple[Any, int]:
    """Where the gradient of a tensor arrives."""
    if x._base is not None:
        follow_base(x)
    if not x.requires_grad:
        raise GraphError("[grad] expected inputs that require grad, got one that does not: set requires_grad=True")
    return (x._node or x, x._output)
