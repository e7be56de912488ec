"""Parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from alpha import Tensor
from alpha import functions as F
from alpha.autograd import no_grad
from alpha.changes import Rewriting
from alpha.errors import ArgumentError, ShapeError
from alpha.functions.operands import check_tensor, listed


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All elements one after another, in the graph: parameters of any shapes give one axis."""
    name = "parameters_to_vector"
    given = listed(name, "parameters", parameters)
    check_tensor(name, *given)
    if not given:
        raise ArgumentError(f"[{name}] expected at least one parameter, got none")
    return F.concat([F.reshape(one, (-1,)) if one.numel() else F.reshape(one, (0,)) for one in given])


@no_grad()
def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Copies the elements of a vector into parameters, one after another; if interrupted, into all or none."""
    name = "vector_to_parameters"
    given = listed(name, "parameters", parameters)
    check_tensor(name, vec, *given)
    count = sum(one.numel() for one in given)
    if vec.shape != (count,):
        raise ShapeError(f"[{name}] expected a vector of {count} elements, as many as the parameters', got {vec.shape}")
    parts = F.split(vec.detach(), [one.numel() for one in given]) if given else ()
    Rewriting([(one, partial(F.reshape, part, one.shape)) for one, part in zip(given, parts, strict=True)]).make()
