"""Functions of functions, with PyTorch's names in ``torch.func``: gradients, jacobians, maps over a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from alpha import random
from alpha.arguments import flag, one_axis, whole
from alpha.autograd import functional
from alpha.autograd.gradients import grad as gradients
from alpha.autograd.modes import enable_grad
from alpha.errors import ArgumentError, ShapeError, described
from alpha.functions.joining import stack
from alpha.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from alpha.nn import Module

__all__ = ["functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "vjp", "vmap"]

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


def jacrev(func: Call, argnums: Numbers = 0) -> Call:
    """The function that computes a function's jacobian: see ``autograd.functional.jacobian``."""
    return _differentiating(functional.jacobian, func, argnums)


jacfwd = jacrev


def hessian(func: Call, argnums: Numbers = 0) -> Call:
    """The function that computes a function's hessian: see ``autograd.functional.hessian``."""
    return _differentiating(functional.hessian, func, argnums)


def _differentiating(derivative: Call, func: Call, argnums: Numbers) -> Call:
    places = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def computed(*args: Any) -> Any:
        def of_wanted(*wanted: Any) -> Any:
            given = list(args)
            for place, x in zip(places, wanted, strict=True):
                given[place] = x
            return func(*given)

        wanted = tuple([args[place] for place in places])
        nested = any(isinstance(x, Tensor) and x.requires_grad for x in args)
        return derivative(of_wanted, wanted[0] if isinstance(argnums, int) else wanted, create_graph=nested)

    return computed


def vjp(func: Call, *primals: Tensor) -> tuple[Any, Call]:
    """A function's output, and the function that multiplies a vector, shaped as the output, with its jacobian."""
    inputs = tuple([x * 1 if x.requires_grad else x.detach().requires_grad_() for x in primals])
    with enable_grad():
        output = func(*inputs)
    results = output if isinstance(output, tuple) else (output,)

    def product(*vectors: Any) -> Any:
        given = vectors[0] if len(vectors) == 1 and isinstance(vectors[0], tuple) else vectors
        return gradients(results, inputs, given, retain_graph=True, create_graph=True, materialize_grads=True)

    return output, product


def jvp(func: Call, primals: tuple[Tensor, ...], tangents: tuple[Tensor, ...]) -> tuple[Any, Any]:
    """A function's output, and its jacobian's product with tangents, shaped as the primals."""
    output, product = functional.jvp(func, tuple(primals), tuple(tangents))
    return output, product


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
    for sample in samples:
        if randomness == "same":
            random.set_state(before)
        yield func(*sample, **kwargs)
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


def functional_call(
    module: Module,
    parameters: Mapping[str, Tensor] | tuple[Mapping[str, Tensor], ...],
    args: Any = (),
    kwargs: Any = None,
) -> Any:
    """Calls a module with other parameters and buffers, by name; the module keeps its own.

    Args:
        parameters: tensors by the names of ``named_parameters`` and ``named_buffers``, or several such mappings.
        args, kwargs: of the module; one tensor may stand for itself.
    """
    several = parameters if isinstance(parameters, tuple | list) else (parameters,)
    replaced = {name: value for mapping in several for name, value in mapping.items()}
    given = args if isinstance(args, tuple) else (args,)
    with _replacing(module, replaced):
        return module(*given, **(kwargs or {}))


@contextmanager
def _replacing(module: Module, tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """The module with other tensors under their names."""
    modules = dict(module.named_modules())
    before: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for name, value in tensors.items():
            owner, _, last = name.rpartition(".")
            table = vars(modules[owner]) if owner in modules else {}
            if not isinstance(table.get(last), Tensor):
                raise ArgumentError(
                    f"[functional_call] expected names of parameters and buffers of {type(module).__name__}, got "
                    f"{name!r}"
                )
            before.append((table, last, table[last]))
            table[last] = value
        yield
    finally:
        for table, last, value in reversed(before):
            table[last] = value
