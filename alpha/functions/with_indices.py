"""Maximum pooling that returns places beside the maxima: PyTorch's names for ``return_indices=True``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps

from alpha.functions import fractional, max_pooling
from alpha.tensor import Tensor

__all__ = [
    "adaptive_max_pool1d_with_indices",
    "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d_with_indices",
    "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d_with_indices",
    "max_pool1d_with_indices",
    "max_pool2d_with_indices",
    "max_pool3d_with_indices",
]

Pooling = Callable[..., tuple[Tensor, Tensor]]


def _with_indices(pool: Callable[..., object]) -> Pooling:
    """A pooling function that returns the pair of maxima and places, whatever ``return_indices`` says."""
    signature, name = inspect.signature(pool), getattr(pool, "__name__", "")

    @wraps(pool)
    def both(*args: object, **kwargs: object) -> object:
        given = signature.bind(*args, **kwargs)
        given.arguments["return_indices"] = True
        return pool(*given.args, **given.kwargs)

    both.__name__ = both.__qualname__ = f"{name}_with_indices"
    both.__module__ = __name__
    both.__doc__ = f"``{name}`` with ``return_indices=True``: the pair of the maxima and their places."
    found: Pooling = both  # type: ignore[assignment]
    return found


adaptive_max_pool1d_with_indices = _with_indices(max_pooling.adaptive_max_pool1d)
adaptive_max_pool2d_with_indices = _with_indices(max_pooling.adaptive_max_pool2d)
adaptive_max_pool3d_with_indices = _with_indices(max_pooling.adaptive_max_pool3d)
fractional_max_pool2d_with_indices = _with_indices(fractional.fractional_max_pool2d)
fractional_max_pool3d_with_indices = _with_indices(fractional.fractional_max_pool3d)
max_pool1d_with_indices = _with_indices(max_pooling.max_pool1d)
max_pool2d_with_indices = _with_indices(max_pooling.max_pool2d)
max_pool3d_with_indices = _with_indices(max_pooling.max_pool3d)
