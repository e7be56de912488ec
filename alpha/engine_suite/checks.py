"""A check, how families list theirs, and the layouts of memory in which an operation meets its arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from alpha import engines
from alpha.dtypes import is_bool, is_float
from alpha.engine import Engine
from alpha.errors import CheckError
from alpha.tensor import Tensor
from alpha.testing import assert_close

Array = np.ndarray[Any, Any]

LAYOUTS = ("dense", "reversed", "gaps")
"""Row-major; the first axis innermost; every second element of memory that holds something else between."""


@dataclass(frozen=True)
class Check:
    """One check: called with an engine it raises an error unless the engine passes.

    Attributes:
        name: what is checked.
        run: a function of the engine and of ``arguments``.
    """

    name: str
    run: Callable[..., None]
    arguments: tuple[Any, ...]

    def __call__(self, engine: Engine) -> None:
        self.run(engine, *self.arguments)

    def __str__(self) -> str:
        return "-".join([self.name, *(str(value) for value in self.arguments)])


class Checks(list[Check]):
    """The checks of a family, to which a decorator adds."""

    def over(self, *cases: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """``@checks.over(a, b)`` adds the function as a check for each case, or for each tuple of arguments."""

        def add(run: Callable[..., None]) -> Callable[..., None]:
            for case in cases:
                arguments = case if isinstance(case, tuple) else (case,)
                self.append(Check(run.__name__, run, arguments))
            return run

        return add

    def once(self, run: Callable[..., None]) -> Callable[..., None]:
        """``@checks.once`` adds the function as one check."""
        self.append(Check(run.__name__, run, ()))
        return run


def placed(engine: Engine, array: Array, layout: str = "dense") -> Tensor:
    """The array as a tensor of an engine, with its elements lying in memory as ``LAYOUTS`` says."""
    if layout == "reversed":
        return engine.from_numpy(np.array(array, order="F"))
    dense = np.array(array, order="C")
    if layout == "dense":
        return engine.from_numpy(dense)
    apart = np.zeros((*dense.shape, 2), dense.dtype)
    apart[..., 1] = dense
    tensor = engine.from_numpy(apart)
    return tensor.strided(tensor.offset + (1 if dense.size else 0), dense.shape, tensor.strides[:-1])


def expect(engine: Engine, found: Tensor, expected: Any, rtol: float | None = None, atol: float | None = None) -> None:
    """CheckError unless a result is a dense tensor of the engine with the expected dtype, shape and values."""
    wanted = np.asarray(expected)
    expect_equal("engine", found.engine.name, engine.name)
    expect_equal("dtype", str(found.dtype), str(wanted.dtype))
    expect_equal("shape", found.shape, wanted.shape)
    if not found.is_contiguous(found.memory_order()):
        raise CheckError(f"[engine_suite] expected a dense result, got strides {found.strides} of shape {found.shape}")
    array = engine.to_numpy(found)
    expect_equal("type", type(array), np.ndarray)  # of a tensor without axes too
    assert_close(array, wanted, rtol, atol)


def expect_equal(what: str, found: object, wanted: object) -> None:
    """CheckError unless two values are equal."""
    if found != wanted:
        raise CheckError(f"[engine_suite] expected {what} {wanted}, got {found}")


def expect_same(
    engine: Engine,
    run: Callable[..., Sequence[Tensor | None]],
    *arrays: Array | None,
    rtol: float | None = None,
    atol: float | None = None,
) -> None:
    """CheckError unless an operation gives what the reference engine gives, with its arguments in every layout.

    Args:
        run: called with an engine and the arrays as its tensors; returns results.
        arrays: the arguments; None stays None.
    """
    reference = engines.engine("numpy")
    wanted = run(reference, *(None if array is None else placed(reference, array) for array in arrays))
    for layout in LAYOUTS:
        found = run(engine, *(None if array is None else placed(engine, array, layout) for array in arrays))
        for mine, theirs in zip(found, wanted, strict=True):
            if mine is None or theirs is None:
                expect_equal("a result", mine, theirs)
            else:
                expect(engine, mine, reference.to_numpy(theirs), rtol, atol)


def numbers(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Array:
    """Random numbers of a dtype: floats from -2 to 2, small integers, bools."""
    kind, rng = np.dtype(dtype), np.random.default_rng(seed)
    if is_float(kind):
        return np.asarray(rng.uniform(-2, 2, shape), kind)
    return np.asarray(rng.integers(0, 2 if is_bool(kind) else 7, shape), kind)
