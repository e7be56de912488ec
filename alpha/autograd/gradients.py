"""Gradients on demand: ``grad`` returns them, ``backward`` adds them to the leaves."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from alpha.arguments import flag
from alpha.autograd.function import follow_base
from alpha.autograd.walk import Walk, seed, walk_from
from alpha.errors import ArgumentError, GraphError
from alpha.tensor import Tensor

Tensors = Tensor | Sequence[Tensor]


def grad(
    outputs: Tensors,
    inputs: Any,
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> Any:
    """The gradients of outputs with respect to inputs; no ``.grad`` is changed.

    Args:
        outputs: results in the graph.
        inputs: leaves, or results on the way to the outputs: a tensor, several, or a mapping of them.
        grad_outputs: the gradient at each output; None: 1 for an output of one element.
        retain_graph: keep the saved tensors for another walk; by default as ``create_graph``.
        create_graph: enter the gradients into the graph, so that they have gradients themselves.
        only_inputs: has no effect, as in PyTorch, which keeps it for older code; False warns.
        allow_unused: give None for an input that the outputs do not depend on; by default GraphError.
        is_grads_batched: the gradients at the outputs have an axis more in front; for each entry of it there is a walk,
            and the results are stacked along such an axis.
        materialize_grads: give zeros for such an input.

    Returns:
        a tuple of a gradient for each input, or for a mapping a dict of them.
    """
    if not flag("grad", "only_inputs", only_inputs):
        warnings.warn("[grad] only_inputs has no effect: use backward for other leaves", FutureWarning, stacklevel=2)
    if isinstance(inputs, Mapping):
        options: dict[str, Any] = {
            "retain_graph": retain_graph,
            "create_graph": create_graph,
            "allow_unused": allow_unused,
        }
        options |= {"is_grads_batched": is_grads_batched, "materialize_grads": materialize_grads}
        values = grad(outputs, list(inputs.values()), grad_outputs, **options)
        return dict(zip(inputs, values, strict=True))
    create_graph = flag("grad", "create_graph", create_graph)
    retain_graph = create_graph if retain_graph is None else flag("grad", "retain_graph", retain_graph)
    materialize_grads = flag("grad", "materialize_grads", materialize_grads)
    results, wanted = _several("outputs", outputs), _several("inputs", inputs)
    given = _given(grad_outputs, len(results))
    unused = bool(allow_unused)
    if flag("grad", "is_grads_batched", is_grads_batched):
        return _batched(results, wanted, given, (retain_graph, create_graph, unused, materialize_grads))
    return _gradients(results, wanted, given, (retain_graph, create_graph, unused, materialize_grads))


Options = tuple[bool, bool, bool, bool]
"""What is asked of a walk: retain_graph, create_graph, allow_unused, materialize_grads."""


def _gradients(
    results: list[Tensor], wanted: list[Tensor], given: list[Tensor | None], options: Options
) -> tuple[Tensor | None, ...]:
    """The gradients of results with respect to tensors, by one walk."""
    retain_graph, create_graph, allow_unused, materialize_grads = options
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


def _batched(
    results: list[Tensor], wanted: list[Tensor], given: list[Tensor | None], options: Options
) -> tuple[Tensor | None, ...]:
    """The gradients for each entry of the gradients at the results, stacked."""
    starts = [start for start in given if isinstance(start, Tensor)]
    counts = {start.shape[0] if start.ndim else 0 for start in starts}
    if len(starts) != len(given) or len(counts) != 1 or 0 in counts:
        raise ArgumentError(
            "[grad] expected gradients at all outputs, each with as many entries along an axis in front, got "
            f"{[getattr(start, 'shape', None) for start in given]}: pass them, or is_grads_batched=False"
        )
    (count,) = counts
    rows = []
    for place in range(count):
        retained = options[0] or place + 1 < count
        rows.append(_gradients(results, wanted, [start[place] for start in starts], (retained, *options[1:])))
    stack = importlib.import_module("alpha.functions.joining").stack  # which needs this module first
    return tuple([None if None in column else stack(list(column)) for column in zip(*rows, strict=True)])


def backward(
    tensors: Tensors,
    grad_tensors: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Tensor | Sequence[Tensor | None] | None = None,
    inputs: Any = None,
) -> None:
    """Adds the gradient of several results' sum to ``.grad`` of every leaf that requires one, in one walk.

    Args:
        tensors: the results.
        grad_tensors: the gradient at each; None: 1 for a result of one element.
        retain_graph, create_graph, inputs: as of ``Tensor.backward``; inputs may be a mapping too.
        grad_variables: the older name of ``grad_tensors``; giving it warns.
    """
    if grad_variables is not None:
        warnings.warn("[backward] grad_variables is an older name: use grad_tensors", FutureWarning, stacklevel=2)
        if grad_tensors is not None:
            raise ArgumentError("[backward] expected grad_tensors alone, got its older name grad_variables as well")
        grad_tensors = grad_variables
    create_graph = flag("backward", "create_graph", create_graph)
    retain_graph = create_graph if retain_graph is None else flag("backward", "retain_graph", retain_graph)
    results = _several("tensors", tensors)
    given = _given(grad_tensors, len(results))
    walk = Walk(retain_graph, create_graph)
    if inputs is not None:
        wanted = list(inputs.values()) if isinstance(inputs, Mapping) else inputs
        walk.aim([_edge(x) for x in _several("inputs", wanted)], results)
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
