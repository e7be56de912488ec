"""What an engine does with dtypes that are stored but have no loops of their own: see ``dtypes.Info.computed``.

Operations of small integers and of half-precision floats are those of int32, int64 or float32, whose results are
converted back, each rounded once. Those of complex numbers are NumPy's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from alpha.composed.arrays import cast
from alpha.dtypes import ALL, DType, bool_, float_names, info, is_complex, promote
from alpha.engine import Engine
from alpha.errors import DtypeError
from alpha.expressions.program import Conversion, Program
from alpha.numpy_engine import NumPyEngine
from alpha.records import RunningStatistics
from alpha.tensor import Tensor

E = TypeVar("E", bound=type[Engine])

_OUT_OF_GER = 4
"""The place of ``out`` among its arguments."""

_WRITES = ("scatter", "scatter_along", "put_along")
"""Operations that write into the first tensor."""
_COMPUTES = (
    *_WRITES, "arg_reduce", "attention", "attention_grad", "avg_pool2d", "avg_pool2d_grad", "batch_norm",
    "batch_norm_grad", "batch_norm_inference", "batch_norm_inverse_grad", "channel_sum", "combine", "concat", "conv2d",
    "conv2d_input_grad", "conv2d_weight_grad", "cross_entropy", "cross_entropy_grad", "cross_entropy_losses", "cumprod",
    "cumsum", "dropout", "elementwise", "euclidean_norm", "flip", "gather", "gather_along", "gather_along_grad",
    "gather_along_kept", "gemv", "ger", "group_norm", "group_norm_grad", "index_select", "leaky_relu", "leaky_relu_grad",
    "linear", "linear_input_grad", "linear_weight_grad", "matmul", "max_pool2d", "max_pool2d_grad", "mean", "nll_loss",
    "nll_loss_grad", "pad", "pad_grad", "pointwise_sum", "prod_grad", "rank", "reduce", "resample", "row_norm",
    "row_norm_grad", "running_extremes", "softmax", "softmax_grad", "sort", "stack", "topk", "variance",
)  # fmt: skip
"""Operations whose tensors are converted, and their results."""
_MAKES = ("eye", "full", "full_like", "one_hot", "progression")
"""Operations that are given the dtype of their result."""


def with_stored_dtypes(engine: E) -> E:
    """Decorator of an engine's class: its operations take what is stored in the dtypes that they have no loops of."""
    for name in _COMPUTES:
        setattr(engine, name, _computing(name, getattr(engine, name)))
    for name in _MAKES:
        setattr(engine, name, _making(name, getattr(engine, name)))
    return engine


def pointwise(
    engine: Engine,
    function: str,
    program: Program,
    tensors: Sequence[Tensor],
    numbers: Sequence[float],
    out: Tensor | None,
) -> tuple[Tensor, ...]:
    """``Engine.pointwise`` where a tensor, or the result, is of a stored dtype."""
    dtype = program.dtype([(x.shape, x.dtype) for x in tensors])
    if isinstance(program, Conversion):
        result = engine.empty_like(tensors[0], bool_ if program.bools[0] else dtype) if out is None else out
        engine.copy(tensors[0], result)
        return (result,)
    if is_complex(dtype):
        raise DtypeError(f"[{function}] expected {float_names()}, got {dtype}: of complex numbers there is none")
    results = engine.pointwise(function, program, [_loaded(x, []) for x in tensors], numbers)
    pairs = zip(results, program.bools, strict=True)
    results = tuple([x if is_condition else cast(engine, x, dtype) for x, is_condition in pairs])
    if out is None:
        return results
    engine.copy(results[0], out)
    return (out,)


def _computing(name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
    """An operation that converts stored tensors among its arguments, and its results."""

    @functools.wraps(operation)
    def guarded(self: Engine, *args: Any, **kwargs: Any) -> Any:
        for value in args:
            if isinstance(value, Tensor):
                if value.dtype not in ALL:
                    return _converted(self, name, operation, args, kwargs)
            elif type(value) is list and value and isinstance(value[0], Tensor) and value[0].dtype not in ALL:
                return _converted(self, name, operation, args, kwargs)
        return operation(self, *args, **kwargs)

    return guarded


def _making(name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
    """An operation that makes its result in the dtype that is computed in, and converts it."""

    @functools.wraps(operation)
    def guarded(self: Engine, *args: Any, **kwargs: Any) -> Any:
        for place, value in enumerate(args):
            if isinstance(value, np.dtype) and value not in ALL:
                if is_complex(value):
                    check_host(self, name)
                    return getattr(NumPyEngine, name)(self, *args, **kwargs)
                computed = info(value).computed
                given = [_loaded(one, []) for one in args]
                return cast(self, operation(self, *given[:place], computed, *given[place + 1 :], **kwargs), value)
        return operation(self, *args, **kwargs)

    return guarded


def _converted(engine: Engine, name: str, operation: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """The operation of what is stored: of complex numbers NumPy's, else that of the dtype that is computed in."""
    found: list[DType] = []
    written: list[tuple[Tensor, Tensor]] = []

    def load(value: Any) -> Any:
        loaded = _loaded(value, found)
        if isinstance(value, RunningStatistics):
            pairs = zip(value[:2], loaded[:2], strict=True)
            written.extend([(before, after) for before, after in pairs if before is not after])
        return loaded

    out = args[_OUT_OF_GER] if name == "ger" and len(args) > _OUT_OF_GER else kwargs.get("out")
    given = [load(value) for value in args]
    if any(map(is_complex, found)):
        check_host(engine, name)
        return getattr(NumPyEngine, name)(engine, *args, **kwargs)
    stored = functools.reduce(promote, found)
    if out is not None:
        kwargs, given = {**kwargs, "out": None}, given[:_OUT_OF_GER]
    result = operation(engine, *given, **kwargs)
    if name in _WRITES:
        written.append((args[0], given[0]))
    for before, after in written:
        engine.copy(after, before)
    result = _kept(result, info(stored).computed, stored)
    if out is None:
        return result
    engine.copy(result, out)
    return out


def check_host(engine: Engine, name: str) -> None:
    """DtypeError unless an engine's tensors lie in the host's memory, where NumPy computes with complex ones."""
    if not engine.memory.is_on_host:
        raise DtypeError(f"[{name}] expected floats on {engine.name}, got complex numbers: move them with .to('cpu')")


def _loaded(value: Any, found: list[DType]) -> Any:
    """A stored tensor, or those in a list or a record, in the dtype that is computed in; ``found``: what they had."""
    if isinstance(value, Tensor):
        if value.dtype in ALL:
            return value
        found.append(value.dtype)
        return value if is_complex(value.dtype) else cast(value.engine, value, info(value.dtype).computed)
    if isinstance(value, list | tuple):
        loaded = [_loaded(one, found) for one in value]
        return type(value)._make(loaded) if hasattr(value, "_make") else type(value)(loaded)
    return value


def _kept(result: Any, computed: DType | None, stored: DType) -> Any:
    """Results as they are stored; records of what backward needs stay as they were computed."""
    if isinstance(result, Tensor):
        return cast(result.engine, result, stored) if result.dtype == computed else result
    if type(result) is tuple:
        return tuple([_kept(one, computed, stored) for one in result])
    return result
