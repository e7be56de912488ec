"""How weights are filled in place, and how a layer is made without filling them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, cast

import numpy as np

from alpha import Tensor, dtypes, random
from alpha.errors import DtypeError, ShapeError
from alpha.functions.operands import check_tensor
from alpha.nn.state import assign

Array = np.ndarray[Any, Any]
P = ParamSpec("P")

_IS_SKIPPED: ContextVar[bool] = ContextVar("is_skipped", default=False)


@contextmanager
def skipping() -> Iterator[None]:
    """In this block the functions of ``nn.init`` leave tensors as they are, and draw nothing."""
    token = _IS_SKIPPED.set(True)
    try:
        yield
    finally:
        _IS_SKIPPED.reset(token)


def skippable(function: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """A function that fills its first argument, unless ``skipping`` is in force."""

    fill: Any = function

    @wraps(function)
    def filled(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        return tensor if _IS_SKIPPED.get() else fill(tensor, *args, **kwargs)

    return cast(Callable[P, Tensor], filled)


def check_memory(tensor: Tensor, function: str) -> None:
    """Raises ShapeError for a tensor whose elements share memory, such as an expanded one."""
    if any(n > 1 and stride == 0 for n, stride in zip(tensor.shape, tensor.strides, strict=True)):
        raise ShapeError(
            f"[{function}] expected memory of its own for every element, got an expanded tensor: .clone() it"
        )


def checked_float(tensor: Tensor, function: str) -> np.dtype[Any]:
    """The dtype of a tensor of floats with memory of its own; an error for any other."""
    check_tensor(function, tensor)
    check_memory(tensor, function)
    if not dtypes.is_float(tensor.dtype):
        raise DtypeError(f"[{function}] expected a {dtypes.float_names()} tensor, got {tensor.dtype}")
    return tensor.dtype


def drawn(tensor: Tensor, draw: random.Draw) -> Tensor:
    """The tensor, overwritten by what is drawn."""
    tensor.engine.copy(tensor.engine.random(draw), tensor)
    tensor.storage.touch()
    return tensor


def overwritten(tensor: Tensor, values: Array) -> Tensor:
    """The tensor, overwritten by an array."""
    assign(tensor, values)
    return tensor
