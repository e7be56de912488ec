"""Checks for tests: assert_close compares values, gradcheck compares a function's gradients with differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from alpha import dtypes
from alpha.arguments import as_array, number, whole
from alpha.autograd import enable_grad, no_grad
from alpha.autograd.gradients import grad
from alpha.conversion import tensor
from alpha.errors import ArgumentError, CheckError, DtypeError
from alpha.functions.complex_numbers import view_as_complex, view_as_real
from alpha.functions.operands import check_room
from alpha.tensor import Tensor

__all__ = ["assert_close", "gradcheck", "gradgradcheck"]

Array = np.ndarray[Any, Any]

MOST_ELEMENTS = 400
"""Inputs of at most so many elements are checked element by element, larger ones along ``DIRECTIONS``."""

DIRECTIONS = 20
"""Random directions in which gradcheck differentiates a large input."""


def assert_close(actual: Any, expected: Any, rtol: float | None = None, atol: float | None = None) -> None:
    """CheckError (an AssertionError) unless ``|actual - expected| <= atol + rtol * |expected|`` everywhere.

    Args:
        actual: a Tensor, array, PyTorch tensor, number or nested lists; ``expected`` likewise, of the same shape.
        rtol: relative tolerance; by default 1e-5 where one of them is float32, else 1e-12 of float64, else 0.
        atol: absolute tolerance, likewise.

    NaN equals NaN, infinities equal themselves. The dtypes may differ.
    """
    found, wanted = _array(actual), _array(expected)
    rtol = None if rtol is None else number("assert_close", "rtol", rtol)
    atol = None if atol is None else number("assert_close", "atol", atol)
    if found.shape != wanted.shape:
        raise CheckError(f"[assert_close] expected shape {wanted.shape}, got {found.shape}")
    default = _default_tolerance(found, wanted)
    rtol, atol = (default[0] if rtol is None else rtol), (default[1] if atol is None else atol)
    a, b = [x.astype(np.result_type(x.dtype, np.float64)) for x in (found, wanted)]
    with np.errstate(all="ignore"):
        difference = np.abs(a - b)
        within = np.isfinite(b) & (difference <= atol + rtol * np.abs(b))
        close = within | (a == b) | (np.isnan(a) & np.isnan(b))
        if dtypes.is_whole(found.dtype) and dtypes.is_whole(wanted.dtype) and rtol == atol == 0:
            close = found == wanted  # float64 does not tell large integers apart
    if not close.all():
        raise CheckError(_report(a, b, difference, close, (rtol, atol)))


def _array(value: Any) -> Array:
    if hasattr(value, "detach"):  # ours and PyTorch's alike
        value = value.detach()
    if hasattr(value, "cpu"):
        value = value.cpu()
    array = as_array("assert_close", value)
    if not dtypes.holds_numbers(array.dtype):
        raise DtypeError(f"[assert_close] expected numbers, got an array of {array.dtype}")
    return array


def _default_tolerance(*arrays: Array) -> tuple[float, float]:
    # Python floats and float64 references say nothing of how the other side was computed: the coarser one decides.
    return max(dtypes.info(a.dtype).tolerance if a.dtype in dtypes.TABLE else (0.0, 0.0) for a in arrays)


def _report(a: Array, b: Array, difference: Array, close: Array, limits: tuple[float, float]) -> str:
    difference = np.where(close, 0, np.where(np.isnan(difference), np.inf, difference))
    with np.errstate(all="ignore"):
        relative = np.where(close, 0, difference / np.abs(b))
    at, worst = _largest(difference), _largest(relative)
    return (
        f"[assert_close] expected values within rtol {limits[0]:g} and atol {limits[1]:g}, got {int((~close).sum())} "
        f"of {close.size} beyond: largest absolute error {difference[at]:.3g} at {at} ({a[at]:.9g} instead of "
        f"{b[at]:.9g}), largest relative error {relative[worst]:.3g} at {worst} ({a[worst]:.9g} instead of "
        f"{b[worst]:.9g})"
    )


def _largest(values: Array) -> tuple[int, ...]:
    position = int(np.argmax(np.where(np.isnan(values), np.inf, values)))
    return tuple(int(i) for i in np.unravel_index(position, values.shape))


# -- gradients ---------------------------------------------------------------------------------------------------


def gradcheck(
    function: Callable[..., Any],
    *inputs: Any,
    eps: float = 1e-6,
    rtol: float = 1e-5,
    atol: float = 1e-7,
    seed: int = 0,
) -> bool:
    """Whether ``backward`` gives the derivative of a function, found by central differences in float64.

    Float tensors and arrays among the inputs are copied to float64, with their memory order, and differentiated, those
    of complex numbers as pairs of parts; all other inputs are passed on as they are. The function returns a tensor or
    several. Random weights make one number of the results; its gradient is compared with
    (f(x + eps) - f(x - eps)) / (2 eps) for every element of an input, or along random directions where it has many.
    Keep the inputs away from kinks.

    Args:
        eps: the step; with 1e-6 an error of about 1e-10 both from rounding and from the third derivative.
        rtol: relative tolerance, to which comes ``atol``.
        seed: of the weights and directions.

    Returns:
        True; CheckError (an AssertionError) names the first input and position that differ.
    """
    rng = np.random.default_rng(whole("gradcheck", "seed", seed, 0))
    eps, rtol, atol = (number("gradcheck", name, v) for name, v in (("eps", eps), ("rtol", rtol), ("atol", atol)))
    if not eps > 0:
        raise ArgumentError(f"[gradcheck] expected eps > 0, got {eps}")
    function, arguments = _of_parts(function, [_copied(value) for value in inputs])
    checked = [i for i, value in enumerate(arguments) if isinstance(value, Tensor) and value.requires_grad]
    if not checked:
        raise ArgumentError("[gradcheck] expected a float tensor or array among the inputs, got none")
    results = _results(function(*arguments))
    # Laid out in reverse order in memory: a backward must not rely on its gradient being row-major.
    weights = [tensor(np.asfortranarray(rng.uniform(0.5, 1.5, r.shape)), engine=r.engine) for r in results]
    _check_repeatable(function, arguments, results)
    _total(results, weights).backward()
    limits = eps, rtol, atol
    for i in checked:

        def evaluate(x: Tensor, i: int = i) -> float:
            with no_grad():
                moved = _floats(function(*arguments[:i], x, *arguments[i + 1 :]))
            # NumPy adds up the parts: the reference must not rest on the functions under test.
            return sum(float(np.sum(_array(r) * _array(w))) for r, w in zip(moved, weights, strict=True))

        _check_input(arguments[i], f"input {i}", evaluate, limits, rng)
    return True


def gradgradcheck(function: Callable[..., Any], *inputs: Any, seed: int = 0, **options: Any) -> bool:
    """Whether a function's gradients have the right gradients: ``gradcheck`` of them.

    The gradients at the results are drawn, and are inputs of what is checked as well. ``options``: as of gradcheck.
    """
    rng = np.random.default_rng(whole("gradgradcheck", "seed", seed, 0))
    function, arguments = _of_parts(function, [_copied(value) for value in inputs])
    checked = [i for i, value in enumerate(arguments) if isinstance(value, Tensor) and value.requires_grad]
    results = [r for r in _results(function(*arguments)) if r.requires_grad]
    seeds = [tensor(rng.uniform(0.5, 1.5, r.shape), engine=r.engine) for r in results]

    def gradients(*given: Any) -> Any:
        with enable_grad():
            values, starts = list(given[: len(arguments)]), given[len(arguments) :]
            for i in checked:
                values[i] = values[i] if values[i].requires_grad else values[i].detach().requires_grad_()
            found = [r for r in _floats(function(*values)) if r.requires_grad]
            wanted = [values[i] for i in checked]
            return grad(found, wanted, list(starts), create_graph=True, materialize_grads=True)

    return gradcheck(gradients, *arguments, *seeds, seed=seed, **options)


def _of_parts(function: Callable[..., Any], inputs: list[Any]) -> tuple[Callable[..., Any], list[Any]]:
    """The same function of pairs of parts where inputs are complex, with such pairs for complex results."""
    are_complex = [isinstance(value, Tensor) and dtypes.is_complex(value.dtype) for value in inputs]

    def of_pairs(*given: Any) -> Any:
        pairs = zip(given, are_complex, strict=True)
        found = function(*[view_as_complex(value) if is_pair else value for value, is_pair in pairs])
        several = found if isinstance(found, tuple | list) else (found,)
        return [view_as_real(r) if isinstance(r, Tensor) and dtypes.is_complex(r.dtype) else r for r in several]

    pairs = zip(inputs, are_complex, strict=True)
    return of_pairs, [view_as_real(x.detach()).clone().requires_grad_() if pair else x for x, pair in pairs]


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor | np.ndarray) and dtypes.is_complex(value.dtype):
        return tensor(value, dtype=dtypes.complex128)
    if isinstance(value, np.ndarray) and dtypes.is_float(value.dtype):
        value = tensor(value, dtype=np.float64)
    if isinstance(value, Tensor) and dtypes.is_float(value.dtype):
        check_room(value.engine, value.shape, dtypes.float64)
        array = value.engine.to_numpy(value.detach())
        return value.engine.from_numpy(array.astype(np.float64)).requires_grad_()
    return value


def _results(value: Any) -> list[Tensor]:
    """The float tensors among a function's results, some of them in the graph."""
    found = _floats(value)
    if not any(r.requires_grad for r in found):
        raise CheckError("[gradcheck] expected a result in the graph, got none: the function cut it off its inputs")
    return found


def _check_repeatable(function: Callable[..., Any], arguments: Sequence[Any], results: Sequence[Tensor]) -> None:
    with no_grad():
        again = function(*arguments)
    for first, second in zip(results, _floats(again), strict=True):
        if not np.array_equal(_array(first), _array(second), equal_nan=True):
            raise CheckError(
                "[gradcheck] expected one result for the same inputs, got two: fix the seed of its randomness"
            )


def _floats(value: Any) -> list[Tensor]:
    several = value if isinstance(value, tuple | list) else [value]
    return [r for r in several if isinstance(r, Tensor) and dtypes.is_float(r.dtype)]


def _total(results: Sequence[Tensor], weights: Sequence[Tensor]) -> Tensor:
    parts = [(r * w).sum() for r, w in zip(results, weights, strict=True)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _check_input(
    x: Tensor,
    name: str,
    evaluate: Callable[[Tensor], float],
    limits: tuple[float, float, float],
    rng: np.random.Generator,
) -> None:
    """Compares one input's gradient with differences along every axis of its space, or some directions."""
    eps, rtol, atol = limits
    gradient = np.zeros(x.shape) if x.grad is None else np.array(x.grad.numpy())
    values = np.array(x.detach().numpy())
    for direction, place in _directions(values, rng):
        above, below = (evaluate(x.engine.from_numpy(_like(values + s * direction, values))) for s in (eps, -eps))
        numeric = (above - below) / (2 * eps)
        along = direction != 0
        analytic = float(np.sum(gradient[along] * direction[along]))
        if not abs(analytic - numeric) <= atol + rtol * abs(numeric):
            raise CheckError(
                f"[gradcheck] expected the gradient {numeric:.9g} {place} of {name} (shape {x.shape}), got "
                f"{analytic:.9g}: the backward is wrong there, or the function has a kink"
            )


def _directions(values: Array, rng: np.random.Generator) -> Any:
    """Pairs of a direction and where it points, in words."""
    if values.size <= MOST_ELEMENTS:
        for place in np.ndindex(values.shape):
            direction = np.zeros(values.shape)
            direction[place] = 1
            yield direction, f"at {place}"
    else:
        for number in range(DIRECTIONS):
            yield rng.standard_normal(values.shape), f"along random direction {number}"


def _like(array: Array, model: Array) -> Array:
    """The array in the memory order of another."""
    out = np.empty_like(model)
    out[...] = array
    return out
