"""Functions of functions, with PyTorch's names in ``torch.func``: gradients, jacobians, maps over a batch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from alpha import random
from alpha.arguments import flag, one_axis, whole
from alpha.autograd import functional
from alpha.autograd.gradients import grad as gradients
from alpha.autograd.modes import enable_grad
from alpha.errors import ArgumentError, ShapeError, described
from alpha.functions.joining import stack
from alpha.module_calls import functional_call, replace_all_batch_norm_modules_, stack_module_state
from alpha.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


__all__ = [
    "functional_call",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "replace_all_batch_norm_modules_",
    "stack_module_state",
    "vjp",
    "vmap",
]

Call = Callable[..., Any]
Numbers = int | tuple[int, ...]


def grad(func: Call, argnums: Numbers = 0, has_aux: bool = False) -> Call:
    """The function that computes a function's gradient.

    Args:
        func: returns a tensor of one element; with ``has_aux`` a pair of it and something else.
        argnums: the place of the argument that is differentiated, or a tuple of places.
        has_aux: the result is a pair of the gradient and that something else.
    """
    computed = grad_and_value(func, argnums, has_aux)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        found, value = computed(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return gradient


def grad_and_value(func: Call, argnums: Numbers = 0, has_aux: bool = False) -> Call:
    """As ``grad``; the result is the pair of the gradient and what the function returned."""
    has_aux = flag("grad", "has_aux", has_aux)
    places = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def computed(*args: Any, **kwargs: Any) -> Any:
        given = list(args)
        with enable_grad():
            wanted = [_differentiated("grad", given, place) for place in places]
            output = func(*given, **kwargs)
            value = output[0] if has_aux else output
            if not isinstance(value, Tensor) or value.numel() != 1:
                raise ArgumentError("[grad] expected a function that returns a tensor of one element, got another")
            found = gradients(value, wanted, create_graph=True, materialize_grads=True)
        nested = any(isinstance(x, Tensor) and x.requires_grad for x in args)
        results = found if nested else tuple([None if x is None else x.detach() for x in found])
        output = output if nested else (value.detach(), *output[1:]) if has_aux else value.detach()
        return (results[0] if isinstance(argnums, int) else results), output

    return computed


def jacrev(func: Call, argnums: Numbers = 0, *, has_aux: bool = False, chunk_size: int | None = None) -> Call:
    """The function that computes a function's jacobian: see ``autograd.functional.jacobian``.

    Args:
        func: returns a tensor or several; with ``has_aux`` a pair of that and something else.
        argnums: the place of the argument that is differentiated, or a tuple of places.
        has_aux: the result is a pair of the jacobian and that something else.
        chunk_size: accepted for PyTorch's sake, where it bounds memory: here there is one walk after another.
    """
    if chunk_size is not None:
        whole("jacrev", "chunk_size", chunk_size, 1)
    return _differentiating(functional.jacobian, func, argnums, flag("jacrev", "has_aux", has_aux))


def jacfwd(func: Call, argnums: Numbers = 0, has_aux: bool = False, *, randomness: str = "error") -> Call:
    """``jacrev`` by another name: there is no forward mode.

    Args:
        func, argnums, has_aux: as of ``jacrev``.
        randomness: what a function may do that draws random numbers: ``"error"``, raise ArgumentError; ``"same"``, draw
            once for all directions. The function is called once, so ``"different"`` draws are refused.
    """
    if randomness not in ("error", "same"):
        raise ArgumentError(f"[jacfwd] expected randomness 'error' or 'same', got {described(randomness)}")

    def drawing(*args: Any) -> Any:
        before = random.get_state()
        found = func(*args)
        if randomness == "error" and random.get_state() != before:
            raise ArgumentError(
                "[jacfwd] expected a function that draws no random numbers, got one that does: pass randomness='same'"
            )
        return found

    return _differentiating(functional.jacobian, drawing, argnums, flag("jacfwd", "has_aux", has_aux))


def hessian(func: Call, argnums: Numbers = 0) -> Call:
    """The function that computes a function's hessian: see ``autograd.functional.hessian``."""
    return _differentiating(functional.hessian, func, argnums, False)


def _differentiating(derivative: Call, func: Call, argnums: Numbers, has_aux: bool) -> Call:
    places = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def computed(*args: Any) -> Any:
        others: list[Any] = []

        def of_wanted(*wanted: Any) -> Any:
            given = list(args)
            for place, x in zip(places, wanted, strict=True):
                given[place] = x
            found = func(*given)
            return _first("jacrev", found, others) if has_aux else found

        wanted = tuple([args[place] for place in places])
        nested = any(isinstance(x, Tensor) and x.requires_grad for x in args)
        found = derivative(of_wanted, wanted[0] if isinstance(argnums, int) else wanted, create_graph=nested)
        return (found, others[0] if nested else _outside(others[0])) if has_aux else found

    return computed


def _first(name: str, found: Any, others: list[Any]) -> Any:
    """What is differentiated of a function's pair; the other part is added to the list."""
    if not isinstance(found, tuple) or len(found) != 2:
        raise ArgumentError(f"[{name}] expected a function that returns a pair, got {described(found)}: has_aux=True")
    others.append(found[1])
    return found[0]


def _outside(value: Any) -> Any:
    """Tensors, also in tuples, lists and dicts, outside the graph."""
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, dict):
        return {key: _outside(one) for key, one in value.items()}
    return type(value)(map(_outside, value)) if type(value) in (tuple, list) else value


def vjp(func: Call, *primals: Tensor, has_aux: bool = False) -> tuple[Any, ...]:
    """A function's output, and the function that multiplies a vector, shaped as the output, with its jacobian.

    With ``has_aux`` the function returns a pair, of which the second part is the third result.
    """
    inputs = tuple([x * 1 if x.requires_grad else x.detach().requires_grad_() for x in primals])
    others: list[Any] = []
    with enable_grad():
        found = func(*inputs)
        output = _first("vjp", found, others) if flag("vjp", "has_aux", has_aux) else found
    results = output if isinstance(output, tuple) else (output,)

    def product(*vectors: Any) -> Any:
        given = vectors[0] if len(vectors) == 1 and isinstance(vectors[0], tuple) else vectors
        return gradients(results, inputs, given, retain_graph=True, create_graph=True, materialize_grads=True)

    return (output, product, _outside(others[0])) if others else (output, product)


def jvp(
    func: Call,
    primals: tuple[Tensor, ...],
    tangents: tuple[Tensor, ...],
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> tuple[Any, ...]:
    """A function's output, and its jacobian's product with tangents, shaped as the primals.

    Args:
        strict: ArgumentError where the results do not depend on the primals, instead of zeros.
        has_aux: the function returns a pair, of which the second part is the third result.
    """
    others: list[Any] = []
    strict, has_aux = flag("jvp", "strict", strict), flag("jvp", "has_aux", has_aux)

    def of_primals(*given: Any) -> Any:
        found = func(*given)
        return _first("jvp", found, others) if has_aux else found

    output, product = functional.jvp(of_primals, tuple(primals), tuple(tangents), strict=strict)
    return (output, product, _outside(others[0])) if has_aux else (output, product)


def linearize(func: Call, *primals: Tensor) -> tuple[Any, Call]:
    """A function's output, and the function that multiplies its jacobian there with tangents, shaped as the primals.

    What ``jvp`` does, for many tangents at the same primals: the function itself is called once.
    """
    return functional.linearized(func, tuple(primals))


def vmap(func: Call, in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", chunk_size: Any = None) -> Call:
    """The function of a batch: a function of one sample is called for each, and the results are stacked.

    It is a loop: a function written for batches is faster.

    Args:
        in_dims: the axis of samples in each argument, or None for one that all samples share; one for all, or a tuple.
        out_dims: the axis of samples in each result.
        randomness: what a function may do that draws random numbers: ``"different"``, draw others for each sample;
            ``"same"``, draw the same for all; ``"error"``, raise ArgumentError.
        chunk_size: accepted for PyTorch's sake, where it bounds memory: a loop needs that of one sample at a time.
    """
    if randomness not in ("error", "different", "same"):
        raise ArgumentError(f"[vmap] expected randomness 'error', 'different' or 'same', got {described(randomness)}")
    if chunk_size is not None:
        whole("vmap", "chunk_size", chunk_size, 1)

    def mapped(*args: Any, **kwargs: Any) -> Any:
        axes = tuple(in_dims) if isinstance(in_dims, tuple | list) else (in_dims,) * len(args)
        if len(axes) != len(args):
            raise ArgumentError(f"[vmap] expected in_dims for {len(args)} arguments, got {in_dims!r}")
        pairs = list(zip(args, axes, strict=True))
        lengths = {x.shape[one_axis("vmap", axis, x.ndim)] for x, axis in pairs if axis is not None}
        if len(lengths) != 1:
            raise ShapeError(f"[vmap] expected arguments of one number of samples, got {sorted(lengths)}: set in_dims")
        (count,) = lengths
        columns = [[x] * count if axis is None else _unstacked(x, axis) for x, axis in pairs]
        outputs = list(_called(func, zip(*columns, strict=True), kwargs, randomness))
        if not outputs:
            raise ShapeError("[vmap] expected samples, got none")
        if isinstance(outputs[0], tuple):
            places = out_dims if isinstance(out_dims, tuple | list) else (out_dims,) * len(outputs[0])
            return tuple([stack(parts, axis) for parts, axis in zip(zip(*outputs, strict=True), places, strict=True)])
        return stack(outputs, out_dims)

    return mapped


def _called(func: Call, samples: Iterable[tuple[Any, ...]], kwargs: Any, randomness: str) -> Iterator[Any]:
    """The function's results of samples, which draw random numbers as ``vmap`` was told."""
    before = random.get_state()
    for place, sample in enumerate(samples):
        with random.drawing_again(before) if place and randomness == "same" else nullcontext():
            found = func(*sample, **kwargs)
        yield found
        if randomness == "error" and random.get_state() != before:
            raise ArgumentError(
                "[vmap] expected a function that draws no random numbers, got one that does: say by randomness= "
                "whether samples draw 'different' ones or the 'same'"
            )


def _unstacked(x: Tensor, axis: int) -> list[Tensor]:
    """The entries along an axis."""
    axis = one_axis("vmap", axis, x.ndim)
    return [x[(slice(None),) * axis + (place,)] for place in range(x.shape[axis])]


def _differentiated(name: str, args: list[Any], place: int) -> Tensor:
    """Replaces an argument by one that is differentiated; returns it."""
    if not -len(args) <= place < len(args) or not isinstance(args[place], Tensor):
        raise ArgumentError(f"[{name}] expected argnums that name tensors among {len(args)} arguments, got {place}")
    x = args[place]
    args[place] = x * 1 if x.requires_grad else x.detach().requires_grad_()
    found: Tensor = args[place]
    return found
