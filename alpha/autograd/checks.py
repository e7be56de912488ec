"""gradcheck and gradgradcheck with PyTorch's arguments: gradients beside differences, element by element."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from alpha import dtypes
from alpha.arguments import flag, number
from alpha.autograd.gradients import grad
from alpha.autograd.modes import enable_grad, no_grad
from alpha.conversion import tensor
from alpha.errors import ArgumentError, CheckError, DtypeError, described
from alpha.functions.joining import stack
from alpha.tensor import Tensor

__all__ = ["gradcheck", "gradgradcheck"]

Array = np.ndarray[Any, Any]
Inputs = Tensor | Sequence[Any]


class _Limits(NamedTuple):
    """How far apart derivatives may be, and what is checked beside them.

    Attributes:
        eps: the step of the differences.
        atol, rtol: absolute and relative tolerance.
        nondet_tol: how far apart two walks' gradients may be.
        undefined: whether results without a gradient must count as ones with a gradient of zeros.
        dtypes: whether gradients must have their inputs' dtypes.
        fast: whether derivatives are compared along a random direction alone.
    """

    eps: float
    atol: float
    rtol: float
    nondet_tol: float
    undefined: bool
    dtypes: bool
    fast: bool


def gradcheck(
    func: Callable[..., Any],
    inputs: Inputs,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Whether ``backward`` gives the derivative of a function: of each result's element by each input's.

    ``alpha.testing.gradcheck`` takes the inputs one by one, converts them to float64 and is quicker.

    Args:
        func: of the inputs; returns a tensor or several.
        inputs: a tensor or several; those that require grad are checked, and should be float64.
        eps: the step of the central differences.
        atol, rtol: absolute and relative tolerance.
        raise_exception: raise CheckError where something differs, instead of returning False.
        nondet_tol: how far apart the gradients of two walks may be.
        check_undefined_grad: whether results that get no gradient must count as ones that get zeros.
        check_grad_dtypes: whether gradients must have their inputs' dtypes.
        fast_mode: compare along a random direction alone.
        check_batched_grad, check_batched_forward_grad, check_forward_ad, masked: ArgumentError where they are asked
            for: batched gradients are single ones here, there is no forward mode, and no tensor is sparse.
        check_backward_ad: must be True, since it is all that there is.
    """
    _refuse("gradcheck", check_batched_grad=check_batched_grad, check_batched_forward_grad=check_batched_forward_grad)
    _refuse("gradcheck", check_forward_ad=check_forward_ad, masked=masked)
    if not flag("gradcheck", "check_backward_ad", check_backward_ad):
        raise ArgumentError("[gradcheck] expected check_backward_ad=True, got False: nothing else can be checked here")
    eps, atol, rtol = (number("gradcheck", name, v) for name, v in (("eps", eps), ("atol", atol), ("rtol", rtol)))
    if not eps > 0:
        raise ArgumentError(f"[gradcheck] expected eps > 0, got {eps}")
    undefined = flag("gradcheck", "check_undefined_grad", check_undefined_grad)
    kinds = flag("gradcheck", "check_grad_dtypes", check_grad_dtypes)
    apart, fast = number("gradcheck", "nondet_tol", nondet_tol), flag("gradcheck", "fast_mode", fast_mode)
    limits = _Limits(eps, atol, rtol, apart, undefined, kinds, fast)
    given = _tuple(inputs)
    try:
        _check(func, given, limits)
    except CheckError:
        if flag("gradcheck", "raise_exception", raise_exception):
            raise
        return False
    return True


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Inputs,
    grad_outputs: Inputs | None = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Whether a function's gradients have the right gradients: ``gradcheck`` of them.

    Args:
        func, inputs: as of ``gradcheck``, as are the options of the same names.
        grad_outputs: the gradients at the results; drawn unless given.
        gen_non_contig_grad_outputs: draw gradients whose elements do not lie side by side.
        check_fwd_over_rev: must be False, since there is no forward mode.
        check_rev_over_rev: must be True.
    """
    _refuse("gradgradcheck", check_fwd_over_rev=check_fwd_over_rev)
    if not flag("gradgradcheck", "check_rev_over_rev", check_rev_over_rev):
        raise ArgumentError("[gradgradcheck] expected check_rev_over_rev=True, got False: there is no other way")
    given = _tuple(inputs)
    results = _differentiable(func(*given))
    if grad_outputs is None:
        scattered = flag("gradgradcheck", "gen_non_contig_grad_outputs", gen_non_contig_grad_outputs)
        starts = tuple([_start(result, place, scattered) for place, result in enumerate(results)])
    else:
        starts = _tuple(grad_outputs)
    places = _places(given)

    def gradients(*values: Any) -> Any:
        with enable_grad():
            # A leaf that is moved is a constant for the function, and yet the one that it is differentiated by.
            moved = [_in_graph(x) if place in places else x for place, x in enumerate(values[: len(given)])]
            found = _differentiable(func(*moved))
            wanted = [moved[place] for place in places]
            return grad(found, wanted, list(values[len(given) :]), create_graph=True, materialize_grads=True)

    return gradcheck(
        gradients,
        (*given, *starts),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        fast_mode=fast_mode,
        masked=masked,
    )


# -- inputs and results --------------------------------------------------------------------------------------------


def _refuse(name: str, **options: Any) -> None:
    """ArgumentError for options that ask for what there is not."""
    for option, value in options.items():
        if value:
            raise ArgumentError(f"[{name}] expected {option}=False, got {value!r}: there is nothing of the kind here")


def _tuple(inputs: Any) -> tuple[Any, ...]:
    return tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)


def _places(given: tuple[Any, ...]) -> list[int]:
    """The places of the inputs that are checked."""
    found = [place for place, x in enumerate(given) if isinstance(x, Tensor) and x.requires_grad]
    if not found:
        raise ArgumentError("[gradcheck] expected an input that requires grad, got none: set requires_grad=True")
    for place in found:
        if not dtypes.is_float(given[place].dtype):
            raise DtypeError(f"[gradcheck] expected inputs of floats, got {given[place].dtype}: give it real parts")
        if given[place].dtype != dtypes.widest_float:
            warnings.warn(
                f"[gradcheck] input {place} is {given[place].dtype}: differences need float64",
                UserWarning,
                stacklevel=4,
            )
    return found


def _in_graph(x: Tensor) -> Tensor:
    return x if x.requires_grad else x.detach().requires_grad_()


def _differentiable(value: Any) -> list[Tensor]:
    """A function's results that require grad."""
    found = [x for x in _tuple(value) if isinstance(x, Tensor)]
    if not found:
        raise ArgumentError(f"[gradcheck] expected a function that returns tensors, got {described(value)}")
    return [x for x in found if x.requires_grad]


def _start(result: Tensor, place: int, scattered: bool) -> Tensor:
    """A gradient at a result, drawn."""
    values = np.random.default_rng(place).uniform(0.5, 1.5, result.shape)
    made = tensor(values, dtype=result.dtype, engine=result.engine)
    if scattered:
        made = stack([made, made], -1)[..., 0]
    return made.detach().requires_grad_()


# -- the checks ----------------------------------------------------------------------------------------------------


def _check(func: Callable[..., Any], given: tuple[Any, ...], limits: _Limits) -> None:
    places = _places(given)
    with enable_grad():
        results = _differentiable(func(*given))
    wanted = [given[place] for place in places]
    if not results:
        _check_constant(func, given, places, limits)
        return
    compare = _check_along if limits.fast else _check_elements
    for number_of, result in enumerate(results):
        compare(func, given, places, (number_of, result), limits)
    if limits.undefined and len(results) > 1:
        _check_undefined(results, wanted)


def _walk(results: list[Tensor], wanted: list[Tensor], starts: list[Tensor]) -> tuple[Any, ...]:
    found: tuple[Any, ...] = grad(results, wanted, starts, retain_graph=True, materialize_grads=True)
    return found


def _evaluated(func: Callable[..., Any], given: tuple[Any, ...], place: int, values: Array, which: int) -> Array:
    """A result where one input has other values."""
    x = given[place]
    moved = x.detach().clone()
    moved.copy_(tensor(values, dtype=x.dtype, engine=x.engine))
    arguments = (*given[:place], moved.requires_grad_(), *given[place + 1 :])
    with enable_grad():  # by which the results that require grad are told
        results = _differentiable(func(*arguments))
    with no_grad():
        return np.array(results[which].detach().numpy(), np.float64)


def _numeric(
    func: Callable[..., Any], given: tuple[Any, ...], place: int, which: int, direction: Array, eps: float
) -> Array:
    """The derivative of a result along a direction of an input, by central differences."""
    values = np.array(given[place].detach().numpy(), np.float64)
    above, below = (_evaluated(func, given, place, values + sign * eps * direction, which) for sign in (1, -1))
    found: Array = (above - below) / (2 * eps)
    return found


def _check_elements(
    func: Callable[..., Any], given: tuple[Any, ...], places: list[int], one: tuple[int, Tensor], limits: _Limits
) -> None:
    """Compares the whole jacobians of one result."""
    which, result = one
    wanted = [given[place] for place in places]
    rows: list[list[Array]] = [[] for _ in places]
    for element in np.ndindex(result.shape):
        start = np.zeros(result.shape)
        start[element] = 1
        first = _gradients_twice(result, wanted, start, limits)
        for row, x, gradient in zip(rows, wanted, first, strict=True):
            if limits.dtypes and gradient.dtype != x.dtype:
                raise CheckError(f"[gradcheck] expected a gradient of {x.dtype}, got {gradient.dtype}")
            row.append(np.array(gradient.detach().numpy(), np.float64).reshape(-1))
    for place, x, row in zip(places, wanted, rows, strict=True):
        analytic = np.array(row).reshape(result.numel(), x.numel())
        numeric = np.zeros_like(analytic)
        for column, element in enumerate(np.ndindex(x.shape)):
            direction = np.zeros(x.shape)
            direction[element] = 1
            numeric[:, column] = _numeric(func, given, place, which, direction, limits.eps).reshape(-1)
        _compare(analytic, numeric, f"of result {which} by input {place}", limits)


def _gradients_twice(result: Tensor, wanted: list[Tensor], start: Array, limits: _Limits) -> tuple[Any, ...]:
    """The gradients of two walks, which are to be equal."""
    seed = tensor(start, dtype=result.dtype, engine=result.engine)
    first, second = (_walk([result], wanted, [seed]) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        apart = np.abs(np.asarray(a.detach()) - np.asarray(b.detach())).max(initial=0)
        if not apart <= limits.nondet_tol:
            raise CheckError(
                f"[gradcheck] expected two walks with gradients at most {limits.nondet_tol} apart, got {apart:.3g}: "
                "backward draws random numbers, or overwrites what it saved"
            )
    return first


def _check_along(
    func: Callable[..., Any], given: tuple[Any, ...], places: list[int], one: tuple[int, Tensor], limits: _Limits
) -> None:
    """Compares one number for each input: a result weighted at random, along a random direction of the input."""
    which, result = one
    rng = np.random.default_rng(which)
    weights = rng.uniform(0.5, 1.5, result.shape)
    wanted = [given[place] for place in places]
    gradients = _gradients_twice(result, wanted, weights, limits)
    for place, x, gradient in zip(places, wanted, gradients, strict=True):
        direction = rng.standard_normal(x.shape)
        size = np.sqrt((direction**2).sum())
        direction = direction / size if size else direction
        analytic = np.array((np.asarray(gradient.detach()) * direction).sum(), np.float64)
        numeric = np.array((_numeric(func, given, place, which, direction, limits.eps) * weights).sum())
        _compare(analytic, numeric, f"of result {which} along a direction of input {place}", limits)


def _compare(analytic: Array, numeric: Array, what: str, limits: _Limits) -> None:
    if not np.allclose(analytic, numeric, limits.rtol, limits.atol):
        raise CheckError(
            f"[gradcheck] expected the derivatives {what} to be those by differences,\n{numeric}\ngot\n{analytic}\n: "
            "the backward is wrong there, or the function has a kink"
        )


def _check_constant(func: Callable[..., Any], given: tuple[Any, ...], places: list[int], limits: _Limits) -> None:
    """CheckError where a function's results are outside the graph and yet depend on the inputs."""
    for place in places:
        values = np.array(given[place].detach().numpy(), np.float64)
        direction = np.random.default_rng(place).standard_normal(values.shape)
        moved = [
            [
                np.asarray(r.detach())
                for r in _tuple(func(*given[:place], _moved(given[place], one), *given[place + 1 :]))
            ]
            for one in (values + limits.eps * direction, values - limits.eps * direction)
        ]
        for above, below in zip(*moved, strict=True):
            _compare(np.zeros(above.shape), (above - below) / (2 * limits.eps), "of a result outside the graph", limits)


def _moved(x: Tensor, values: Array) -> Tensor:
    return tensor(values, dtype=x.dtype, engine=x.engine)


def _check_undefined(results: list[Tensor], wanted: list[Tensor]) -> None:
    """CheckError unless a result that gets no gradient counts as one that gets zeros."""
    ones = [tensor(np.ones(r.shape), dtype=r.dtype, engine=r.engine) for r in results]
    for place, (result, start) in enumerate(zip(results, ones, strict=True)):
        alone = _walk([result], wanted, [start])
        starts = [one if place == other else one * 0 for other, one in enumerate(ones)]
        together = _walk(results, wanted, starts)
        for a, b in zip(alone, together, strict=True):
            if not np.allclose(np.asarray(a.detach()), np.asarray(b.detach())):
                raise CheckError(
                    f"[gradcheck] expected equal gradients whether the results beside number {place} get zeros or no "
                    "gradient, got others: backward must take None for a gradient of zeros"
                )
