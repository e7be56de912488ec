"""What functions do with their floats inside an ``alpha.autocast`` block: each one's rule is a decorator above it.

A rule casts tensors among the arguments, in lists too, by functions that have gradients; float64, integers and bools
stay. Inside the function no rule holds, so what it is composed of computes in the dtype that it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from alpha import dtypes, steps
from alpha.autograd import is_grad_enabled
from alpha.casts import BLOCKS, NONE, THREAD, Casts
from alpha.dtypes import DType
from alpha.functions.casting import cast
from alpha.tensor import Tensor

WIDE = dtypes.float32
"""What is computed in more digits is computed in."""

P = ParamSpec("P")
R = TypeVar("R")
Rule = Callable[[Casts, Any, Any], Callable[[Tensor, DType], DType]]
"""The dtype of each tensor, given the one of products: found by what is in force and the arguments."""


def _ruled(rule: Rule, restores: bool = False) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator of a function whose tensors are cast by a rule; ``restores``: whether its results are cast back."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if not BLOCKS or (casts := THREAD.casts) == NONE:
                return function(*args, **kwargs)
            wanted = rule(casts, args, kwargs)
            given: Any = [_cast(casts, one, wanted) for one in args]
            options: Any = {name: _cast(casts, value, wanted) for name, value in kwargs.items()}
            THREAD.casts = NONE
            try:
                result: Any = function(*given, **options)
            finally:
                THREAD.casts = casts
            first = next((x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)), None)
            restored: R = _restored(result, first) if restores and first is not None else result
            return restored

        return call

    return decorate


def _is_cast(x: Any, casts: Casts) -> bool:
    """Whether rules are for a value: a tensor of floats but float64, where casts are in force."""
    return isinstance(x, Tensor) and casts.of(x) is not None and dtypes.is_float(x.dtype) and _is_narrow(x.dtype)


def _is_narrow(dtype: DType) -> bool:
    """Whether a dtype of floats is no wider than float32."""
    return dtype.itemsize <= WIDE.itemsize


def _cast(casts: Casts, value: Any, wanted: Callable[[Tensor, DType], DType]) -> Any:
    """A value with its tensors cast."""
    if isinstance(value, Tensor):
        return _of_one(casts, value, wanted) if _is_cast(value, casts) else value
    if type(value) in (list, tuple):
        return type(value)([_cast(casts, one, wanted) for one in value])
    return value


def _of_one(casts: Casts, x: Tensor, wanted: Callable[[Tensor, DType], DType]) -> Tensor:
    """A tensor in the dtype that is wanted. A parameter's cast is kept: several layers or steps may ask for it."""
    lower = casts.of(x)
    dtype = x.dtype if lower is None else wanted(x, lower)
    if x.dtype == dtype:
        return x
    if not (casts.keeps and x.requires_grad and x._node is None and x._base is None):
        return cast(x, dtype)
    if not is_grad_enabled():
        return _kept(x, dtype)
    x.storage.cache.pop(_key(x, dtype), None)  # in training the memory is freed
    key = (id(x), dtype)
    found = THREAD.kept.get(key)
    if found is None or found[1] != x.version:
        found = THREAD.kept[key] = (x, x.version, cast(x, dtype))
    return found[2]


def _kept(x: Tensor, dtype: DType) -> Tensor:
    """The cast of what inference reads again and again: kept with its memory, until that is written to."""
    storage = x.storage
    if storage.exported or not steps.keeps((x,)):
        return cast(x, dtype)
    found: tuple[int, Tensor] | None = storage.cache.get(_key(x, dtype))
    if found is None or found[0] != x.version:
        found = (x.version, cast(x, dtype))
        if not steps.is_capturing():
            storage.cache[_key(x, dtype)] = found
    steps.hold(found[1])
    return found[1]


def _key(x: Tensor, dtype: DType) -> Hashable:
    """The key of a cast in the cache of the tensor's memory."""
    return "cast", dtype, x.offset, x.shape, x.strides


def kept_lower(x: Tensor) -> Tensor:
    """What inference keeps for products, in the dtype that they are cast to; as it is where no casts are to be kept."""
    casts = THREAD.casts
    lower = casts.of(x) if BLOCKS and casts.keeps and _is_cast(x, casts) else None
    return x if lower is None or lower == x.dtype else _kept(x, lower)


def _restored(result: Any, first: Tensor) -> Any:
    """Results, float32, as the first argument was."""
    if isinstance(result, tuple):
        return tuple([_restored(one, first) for one in result])
    is_wider = isinstance(result, Tensor) and result.dtype == WIDE and dtypes.is_float(first.dtype)
    return cast(result, first.dtype) if is_wider and _is_narrow(first.dtype) else result


def _widest(casts: Casts, args: Any, kwargs: Any) -> Callable[[Tensor, DType], DType]:
    """float32 where a tensor is of it, else the lower dtype."""
    given = _tensors((*args, *kwargs.values()))
    is_wide = any(_is_cast(x, casts) and x.dtype == WIDE for x in given)
    return lambda x, lower: WIDE if is_wide else lower


def _images(casts: Casts, args: Any, kwargs: Any) -> Callable[[Tensor, DType], DType]:
    """float32 for tensors of several axes beside vectors that are; vectors may be written into, and stay."""
    vectors = [x for x in _tensors((*args, *kwargs.values())) if x.ndim == 1]
    are_wide = bool(vectors) and all(x.dtype == WIDE for x in vectors)
    return lambda x, lower: WIDE if are_wide and x.ndim > 1 else x.dtype


def like_input(input: Tensor, other: Tensor | None) -> Tensor | None:
    """Another tensor of a function that computes in the dtype of its input: cast to that, inside a block."""
    if not BLOCKS or (casts := THREAD.casts) == NONE or other is None:
        return other
    return cast(other, input.dtype) if _is_cast(other, casts) and _is_cast(input, casts) else other


def _tensors(values: Any) -> list[Tensor]:
    """The tensors among values, and in lists and tuples of them."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif type(value) in (list, tuple):
            found += _tensors(value)
    return found


lowered = _ruled(lambda casts, args, kwargs: lambda x, lower: lower)
"""Decorator of products: their tensors are cast to the lower dtype."""

in_float32 = _ruled(lambda casts, args, kwargs: lambda x, lower: WIDE)
"""Decorator of sums, norms, losses and what loses digits: halves become float32."""

in_widest = _ruled(_widest)
"""Decorator of functions that ask for one dtype: the widest of those given."""

through_float32 = _ruled(_images, restores=True)
"""Decorator of functions of images beside parameters of float32: computed so, and results as the first argument."""
