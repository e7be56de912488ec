"""Runs a sample of PyTorch's OpInfo on both sides: results, gradients, gradients of gradients."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import alpha
import alpha.nn.functional as F
from alpha.autograd.gradients import grad
from alpha.errors import AlphaError
from tests.opinfo.exceptions import is_random

Array = np.ndarray[Any, Any]

TOLERANCES = {
    "float32": (2e-5, 2e-4, 2e-3),
    "float64": (1e-10, 1e-9, 1e-8),
    "complex64": (2e-5, 2e-4, 2e-3),
    "complex128": (1e-10, 1e-9, 1e-8),
}
"""Relative to the largest element: of results, gradients and gradients of gradients. About 300 roundings of float32 (a
float64 has that and more to spare): both sides add up in orders of their own, and a gradient is made of such sums."""

MOST = 24
"""Samples of an operation and dtype that are tried: some have hundreds that differ in one option."""


def operations() -> Iterator[Any]:
    """The operations of PyTorch's own tests."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    yield from op_db


def ours(name: str, special: dict[str, Callable[..., Any]], variant: str = "") -> Callable[..., Any] | None:
    """Our function of an operation's name: in nn.functional, in a namespace, of alpha, or a method; None for none."""
    for key in (f"{name}.{variant}", name):
        if key in special:
            return special[key]
    first, _, last = name.rpartition(".")
    if first == "nn.functional":
        return getattr(F, last, None)
    if first:
        return getattr(getattr(alpha, first, None), last, None)
    found = getattr(alpha, name, None)
    if not callable(found) or isinstance(found, type):
        found = getattr(alpha.Tensor, name, None)
    return found if callable(found) else None


def chosen(operation: Any, dtype: str, most: int = MOST) -> list[Any]:
    """Samples of an operation, spread evenly over all that there are."""
    import torch

    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = operation.sample_inputs("cpu", getattr(torch, dtype), requires_grad=operation.supports_autograd)
        found = list(given)
    found = [sample for sample in found if not is_random(operation, sample)]
    if len(found) <= most:
        return found
    return [found[place] for place in np.linspace(0, len(found) - 1, most).astype(int)]


class Verdict(Exception):
    """What is wrong with a sample."""


def tried(operation: Any, function: Callable[..., Any], sample: Any, dtype: str) -> str:
    """Tries a sample: "fine", "refused" (by an error of ours) or "skipped" (PyTorch takes it not); else Verdict."""
    given = (sample.input, *sample.args)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = flat(sample.output_process_fn_grad(operation.op(*given, **sample.kwargs)))
    except Exception:
        return "skipped"
    pairs: dict[int, tuple[Any, alpha.Tensor]] = {}
    alpha.manual_seed(0)  # the same vectors for svd_lowrank in each run
    try:
        result = function(*converted(list(given), pairs), **converted(dict(sample.kwargs), pairs))
        results = flat(sample.output_process_fn_grad(result))
    except AlphaError:
        return "refused"
    if len(results) != len(theirs):
        raise Verdict(f"{len(results)} results instead of {len(theirs)}")
    limits = TOLERANCES[dtype]
    for place, (a, b) in enumerate(zip(results, theirs, strict=True)):
        compare(f"result {place}", a, b, limits[0])
    leaves = [(t, x) for t, x in pairs.values() if t.requires_grad]
    flowing = [(a, b) for a, b in zip(results, theirs, strict=True) if is_differentiable(b)]
    if operation.supports_autograd and leaves and flowing:
        _compare_gradients(flowing, leaves, limits)
    return "fine"


def _compare_gradients(flowing: Any, leaves: Any, limits: tuple[float, ...]) -> None:
    import torch

    rng = np.random.default_rng(0)
    for a, _ in flowing:
        if not a.requires_grad:
            raise Verdict("the result does not require grad")
    starts = [_start(rng, b) for _, b in flowing]
    try:
        theirs = torch.autograd.grad(
            [b for _, b in flowing],
            [t for t, _ in leaves],
            [torch.tensor(start) for start in starts],
            create_graph=True,
            allow_unused=True,
        )
    except RuntimeError:
        return  # PyTorch has none
    options: dict[str, Any] = {"create_graph": True, "allow_unused": True}
    found = grad([a for a, _ in flowing], [x for _, x in leaves], [alpha.tensor(start) for start in starts], **options)
    # PyTorch finds no gradients of views that a sample made without recording.
    are_lost = [b is None and t._is_view() for b, (t, _) in zip(theirs, leaves, strict=True)]
    for place, (a, b) in enumerate(zip(found, theirs, strict=True)):
        if not are_lost[place]:
            compare_or_zero(f"gradient {place}", a, b, limits[1])
    again = [(a, b) for a, b in zip(found, theirs, strict=True) if a is not None and b is not None and b.requires_grad]
    if not again:
        return
    starts = [_start(rng, b) for _, b in again]
    try:
        second = torch.autograd.grad(
            [b for _, b in again],
            [t for t, _ in leaves],
            [torch.tensor(start) for start in starts],
            allow_unused=True,
        )
    except RuntimeError:
        return  # PyTorch has none
    ours_again = [(a, start) for (a, _), start in zip(again, starts, strict=True) if a.requires_grad]
    mine: tuple[Any, ...] = (None,) * len(leaves)
    if ours_again:
        roots, given = [a for a, _ in ours_again], [alpha.tensor(start) for _, start in ours_again]
        mine = grad(roots, [x for _, x in leaves], given, allow_unused=True)
    for place, (a, b) in enumerate(zip(mine, second, strict=True)):
        if not are_lost[place]:
            compare_or_zero(f"second gradient {place}", a, b, limits[2])


def _start(rng: np.random.Generator, result: Any) -> Array:
    """A gradient of a result, from which backward starts: of complex numbers one with two parts."""
    shape, dtype = tuple(result.shape), array(result).dtype
    start: Array = rng.uniform(0.5, 1.5, shape)
    if result.is_complex():
        start = start + 1j * rng.uniform(0.5, 1.5, shape)
    return np.asarray(start, dtype)


# -- both sides' values ----------------------------------------------------------------------------------------------


def converted(value: Any, pairs: dict[int, tuple[Any, alpha.Tensor]]) -> Any:
    """PyTorch's arguments as ours; ``pairs`` takes the tensors of both."""
    import torch

    if isinstance(value, torch.Tensor):
        if id(value) not in pairs:
            made = alpha.tensor(array(value).copy())
            pairs[id(value)] = value, made.requires_grad_() if value.requires_grad else made
        return pairs[id(value)][1]
    if isinstance(value, torch.Size):
        return tuple(value)
    if isinstance(value, list | tuple):
        return type(value)([converted(one, pairs) for one in value])
    if isinstance(value, dict):
        return {key: converted(one, pairs) for key, one in value.items()}
    if isinstance(value, torch.dtype | torch.memory_format):
        return getattr(alpha, str(value).partition(".")[2], value)
    if isinstance(value, torch.device):
        return alpha.device(str(value))
    return value


def flat(value: Any) -> list[Any]:
    """All that a function returned, one after the other."""
    return [one for part in value for one in flat(part)] if isinstance(value, tuple | list) else [value]


def is_differentiable(value: Any) -> bool:
    """Whether a result of PyTorch carries a gradient."""
    return bool(getattr(value, "requires_grad", False))


def array(value: Any) -> Array:
    """A result of either side as an array."""
    if isinstance(value, alpha.Tensor):
        return np.array(value.detach())
    if hasattr(value, "resolve_conj"):
        return np.asarray(value.detach().resolve_conj().resolve_neg().numpy(force=True))
    return np.asarray(value)


def compare(what: str, mine: Any, theirs: Any, limit: float) -> None:
    """Verdict unless both agree in shape, dtype and values."""
    a, b = array(mine), array(theirs)
    if a.shape != b.shape or str(a.dtype) != str(b.dtype):
        raise Verdict(f"{what}: {a.dtype} of shape {a.shape} instead of {b.dtype} of shape {b.shape}")
    if a.dtype.kind not in "fc":
        if not np.array_equal(a, b):
            raise Verdict(f"{what}: other values")
        return
    scale = np.max(np.abs(np.where(np.isfinite(b), b, 0)), initial=1.0)
    if not np.allclose(a, b, rtol=limit, atol=limit * scale, equal_nan=True):
        with np.errstate(invalid="ignore"):
            raise Verdict(f"{what}: off by {np.nanmax(np.abs(a - b))}, of {scale}")


def compare_or_zero(what: str, mine: Any, theirs: Any, limit: float) -> None:
    """The same of gradients: none is 0."""
    if mine is None or theirs is None:
        given = theirs if mine is None else mine
        if given is not None and not np.allclose(array(given), 0, atol=limit):
            raise Verdict(f"{what}: {'none' if mine is None else 'one'}, PyTorch's is {theirs}")
        return
    compare(what, mine, theirs, limit)
