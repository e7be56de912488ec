"""Derivatives of functions: jacobian, hessian, and their products with vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from alpha.arguments import flag
from alpha.autograd.gradients import grad
from alpha.autograd.modes import enable_grad
from alpha.errors import ArgumentError, ShapeError
from alpha.functions.creation import zeros_like
from alpha.functions.joining import stack
from alpha.tensor import Tensor

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

Several = tuple[Tensor, ...]


def jacobian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The derivative of each element of a function's results with respect to each element of its inputs.

    Args:
        func: of tensors; returns a tensor or several.
        inputs: a tensor or a tuple of them.
        create_graph: enter the derivatives into the graph.
        strict: GraphError where a result does not depend on an input, instead of zeros.
        vectorize, strategy: accepted for PyTorch's sake; there is one walk per element of the results, in reverse.

    Returns:
        shape (*result, *input), in a tuple per input where inputs is one, in a tuple per result where results are one.
    """
    create_graph, strict = flag("jacobian", "create_graph", create_graph), flag("jacobian", "strict", strict)
    _check_strategy("jacobian", "strategy", strategy)
    _, given, results, several_in, several_out = _evaluated("jacobian", func, inputs, create_graph)
    rows = [_rows(result, given, create_graph, strict) for result in results]
    found = [row if several_in else row[0] for row in rows]
    return _packed(found, several_out)


def _check_strategy(function: str, name: str, value: Any) -> None:
    if value not in ("reverse-mode", "forward-mode"):
        raise ArgumentError(f"[{function}] expected {name} as 'reverse-mode' or 'forward-mode', got {value!r}")


def linearized(func: Callable[..., Any], inputs: Several) -> tuple[Any, Callable[..., Any]]:
    """The output of a function at inputs, and the function that multiplies its jacobian there with vectors.

    The function is called once, and so is the walk from its results; each product is a walk through that one.
    """
    output, given, results, _, several_out = _evaluated("linearize", func, inputs, False)
    with enable_grad():
        probes = tuple([zeros_like(result, requires_grad=True) for result in results])
        rows = _product("linearize", results, given, probes, True, False)

    def product(*vectors: Tensor) -> Any:
        tangents = _vectors("linearize", tuple(vectors), given)
        flowing = [(row, vector) for row, vector in zip(rows, tangents, strict=True) if row.requires_grad]
        if not flowing:
            return _packed([zeros_like(result.detach()) for result in results], several_out)
        starts, seeds = [row for row, _ in flowing], [vector for _, vector in flowing]
        options = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}
        return _packed(grad(starts, probes, seeds, **options), several_out)

    return _detached(output), product


def _rows(result: Tensor, given: Several, create_graph: bool, strict: bool) -> Several:
    """The derivatives of one result with respect to each input."""
    columns: list[list[Tensor]] = [[] for _ in given]
    if not result.requires_grad:
        if strict:
            raise ArgumentError("[jacobian] expected results that depend on the inputs, got one that does not")
        return tuple([x.new_zeros((*result.shape, *x.shape)) for x in given])
    for element in result.reshape(-1):
        options = {"retain_graph": True, "create_graph": create_graph, "allow_unused": not strict}
        parts = grad(element, given, **options, materialize_grads=not strict)  # type: ignore[arg-type]
        for column, part in zip(columns, parts, strict=True):
            assert part is not None
            column.append(part)
    return tuple(
        [
            stack(column).reshape((*result.shape, *x.shape)) if column else x.new_zeros((*result.shape, *x.shape))
            for column, x in zip(columns, given, strict=True)
        ]
    )


def hessian(
    func: Callable[..., Tensor],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The second derivatives of a function whose result has one element.

    Args:
        func, inputs, create_graph, strict: as of ``jacobian``.
        vectorize, outer_jacobian_strategy: accepted for PyTorch's sake, as ``jacobian``'s.

    Returns:
        shape (*input, *input); for a tuple of inputs a tuple of tuples.
    """
    several = isinstance(inputs, tuple)
    _check_strategy("hessian", "outer_jacobian_strategy", outer_jacobian_strategy)

    def gradients(*given: Tensor) -> Any:
        found = jacobian(func, given if several else given[0], create_graph=True, strict=strict)
        parts = found if several else (found,)
        return tuple([part.reshape(x.shape) for part, x in zip(parts, given, strict=True)]) if several else parts[0]

    return jacobian(gradients, inputs, create_graph=create_graph)


def vjp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """The results of a function, and a vector's product with its jacobian; v: shaped as the results."""
    output, given, results, several_in, _ = _evaluated("vjp", func, inputs, create_graph)
    found = _product("vjp", results, given, _vectors("vjp", v, results), create_graph, strict)
    return output if create_graph else _detached(output), _packed(found, several_in)


def jvp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """The results of a function, and its jacobian's product with a vector; v: shaped as the inputs.

    The product is the derivative of ``u -> u @ jacobian``, which is linear, with respect to u.
    """
    output, given, results, _, several_out = _evaluated("jvp", func, inputs, create_graph)
    vectors = _vectors("jvp", v, given)
    with enable_grad():
        probes = tuple([zeros_like(result, requires_grad=True) for result in results])
        rows = _product("jvp", results, given, probes, True, strict)
        flowing = [(row, vector) for row, vector in zip(rows, vectors, strict=True) if row.requires_grad]
        if flowing:
            starts = [row for row, _ in flowing]
            options = {"create_graph": create_graph, "allow_unused": True, "materialize_grads": True}
            found = grad(starts, probes, [vector for _, vector in flowing], **options)
        else:
            found = tuple([zeros_like(result) for result in results])
    return output if create_graph else _detached(output), _packed(found, several_out)


def vhp(
    func: Callable[..., Tensor], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """The result of a function, and a vector's product with its hessian; v: shaped as the inputs."""
    output, given, results, several_in, _ = _evaluated("vhp", func, inputs, True)
    vectors = _vectors("vhp", v, given)
    with enable_grad():
        slopes = _product("vhp", results, given, [zeros_like(results[0]) + 1], True, strict)
        found = _product("vhp", [s for s in slopes if s.requires_grad], given, vectors, create_graph, strict)
    return output if create_graph else _detached(output), _packed(found, several_in)


def hvp(
    func: Callable[..., Tensor], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """The result of a function, and its hessian's product with a vector, which is ``vhp``: hessians are symmetric."""
    return vhp(func, inputs, v, create_graph, strict)


# -- inputs and results ------------------------------------------------------------------------------------------------


def _evaluated(name: str, func: Any, inputs: Any, create_graph: bool) -> tuple[Any, Several, Several, bool, bool]:
    """The function's output, its inputs in the graph, the results as a tuple, and whether either are tuples."""
    several_in = isinstance(inputs, tuple | list)
    given = tuple(inputs) if several_in else (inputs,)
    for x in given:
        if not isinstance(x, Tensor):
            raise ArgumentError(f"[{name}] expected a tensor or a tuple of tensors as inputs, got {type(x).__name__}")
    with enable_grad():
        if create_graph:
            given = tuple([x * 1 if x.requires_grad else x.detach().requires_grad_() for x in given])
        else:
            given = tuple([x.detach().requires_grad_() for x in given])
        output = func(*given)
    several_out = isinstance(output, tuple | list)
    results = tuple(output) if several_out else (output,)
    for result in results:
        if not isinstance(result, Tensor):
            raise ArgumentError(f"[{name}] expected a function that returns tensors, got {type(result).__name__}")
    return output, given, results, several_in, several_out


def _vectors(name: str, v: Any, like: Several) -> Several:
    """The vectors, shaped as tensors; 1 for one tensor of one element."""
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise ArgumentError(f"[{name}] expected v, got none: leave it out for one element alone")
        return (zeros_like(like[0].detach()) + 1,)
    vectors = tuple(v) if isinstance(v, tuple | list) else (v,)
    shapes = [getattr(x, "shape", None) for x in vectors]
    if shapes != [x.shape for x in like]:
        raise ShapeError(f"[{name}] expected v of shapes {[x.shape for x in like]}, got {shapes}")
    return vectors


def _product(name: str, results: Any, given: Several, vectors: Any, create_graph: bool, strict: bool) -> Several:
    """The vectors' product with the jacobian of the results."""
    flowing = [(result, vector) for result, vector in zip(results, vectors, strict=False) if result.requires_grad]
    if not flowing:
        if strict:
            raise ArgumentError(f"[{name}] expected results that depend on the inputs, got none that does")
        return tuple([zeros_like(x.detach()) for x in given])
    found = grad(
        [result for result, _ in flowing],
        given,
        [vector for _, vector in flowing],
        create_graph=create_graph,
        allow_unused=not strict,
        materialize_grads=not strict,
    )
    return tuple([x for x in found if x is not None])


def _packed(found: Any, several: bool) -> Any:
    return tuple(found) if several else found[0]


def _detached(output: Any) -> Any:
    return tuple([x.detach() for x in output]) if isinstance(output, tuple | list) else output.detach()
