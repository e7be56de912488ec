"""What an engine does with dtypes that are stored but have no loops of their own: see ``dtypes.Info.computed``.

Operations of small integers and of half-precision floats are those of int32, int64 or float32, whose results are
converted back, each rounded once. Those of complex numbers are NumPy's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from alpha import dtypes
from alpha.composed.arrays import cast
from alpha.dtypes import DType, bool_, computed_in, float_names, info, is_complex, is_float, is_stored, promote
from alpha.engine import Engine
from alpha.errors import AlphaError, DtypeError
from alpha.expressions.program import Conversion, Program
from alpha.numpy_engine import NumPyEngine
from alpha.random import Draw
from alpha.records import Epilogue, RunningStatistics
from alpha.tensor import Tensor
from alpha.updates import Row

E = TypeVar("E", bound=type[Engine])
F = TypeVar("F", bound=Callable[..., Any])

_WRITES = ("scatter", "scatter_along", "put_along")
"""Operations that write into the first tensor, and return nothing."""
_TOTALS = ("sum", "prod", "cumsum", "cumprod")
"""Operations and reductions whose results are in the dtype of totals."""
_WITH_INDICES = ("gather_along_kept", "max_pool2d", "running_extremes", "sort", "topk")
"""Operations whose further results are indices."""
_COMPUTES = (
    *_WRITES, "arg_reduce", "attention", "attention_grad", "avg_pool2d", "avg_pool2d_grad", "batch_norm",
    "batch_norm_again", "batch_norm_grad", "batch_norm_inference", "batch_norm_inverse_grad", "batch_norm_remade_grad",
    "channel_sum", "combine", "concat", "conv2d",
    "conv2d_input_grad", "conv2d_weight_grad", "cross_entropy", "cross_entropy_grad", "cross_entropy_losses",
    "cumprod", "cumsum", "dropout", "dropped_scores", "elementwise", "euclidean_norm", "flip", "gather", "gather_along",
    "gather_along_grad", "gather_along_kept", "gemv", "ger", "group_norm", "group_norm_grad", "index_select",
    "leaky_relu", "leaky_relu_grad",
    "linear", "linear_input_grad", "linear_weight_grad", "matmul", "max_pool2d", "max_pool2d_grad", "mean", "nll_loss",
    "nll_loss_grad", "pad", "pad_grad", "pointwise_sum", "prod_grad", "rank", "reduce", "resample", "row_norm",
    "row_norm_grad", "running_extremes", "softmax", "softmax_grad", "sort", "stack", "topk", "variance",
)  # fmt: skip
"""Operations whose tensors are converted, and their results."""
_MARK = "takes_stored_dtypes"
_POINTWISE = ("elementwise", "leaky_relu", "leaky_relu_grad")
"""Those that are point-wise programs, for which ``Engine.pointwise`` knows what to do with floats of 16 bits."""
_BATCH_NORM_GRADIENTS = ("batch_norm_grad", "batch_norm_inverse_grad", "batch_norm_remade_grad")
"""Those whose results are the gradients of images, of two vectors, and of images."""
_JOINS = ("concat", "pointwise_sum", "stack")
"""Those of lists of tensors."""
_OF_ORDER = (
    "arg_reduce", "ge", "gt", "le", "lt", "max", "max_pool2d", "maximum", "min", "minimum", "rank", "running_extremes",
    "sign", "sort", "topk",
)  # fmt: skip
"""Operations that ask which of two numbers is the larger: NumPy would compare real parts first."""
_MAKES = ("eye", "full", "full_like", "one_hot", "progression")
"""Operations that are given the dtype of their result."""


def with_stored_dtypes(engine: E) -> E:
    """Decorator of an engine's class: its operations take what is stored in the dtypes that they have no loops of.

    They begin to look for it when such a dtype comes up for the first time: a program of float32 never pays for it.
    """

    def begin() -> None:
        for name in _COMPUTES:
            guard = _joining if name in _JOINS else _computing
            _replace(engine, name, functools.partial(guard, name))
        for name in _MAKES:
            _replace(engine, name, functools.partial(_making, name))
        _replace(engine, "optimizer_step", _updating)
        _replace(engine, "random", _drawing)

    dtypes.when_stored(begin)
    return engine


def takes_stored_dtypes(operation: F) -> F:
    """Decorator of an engine's operation that decides itself what to do with them: it gets no guard."""
    setattr(operation, _MARK, True)
    return operation


def converted(engine: Engine, name: str, *args: Any) -> Any:
    """What a guard does: the operation of arguments in the dtype that is computed in, its results converted back."""
    return _converted(engine, name, getattr(type(engine), name), args, {})


def _replace(engine: type[Engine], name: str, guard: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Puts a guard before an operation, unless there is one."""
    operation = getattr(engine, name)
    if not hasattr(operation, _MARK):
        guarded = guard(operation)
        setattr(guarded, _MARK, True)
        setattr(engine, name, guarded)


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
    results = engine.pointwise(function, program, [_Loaded().of(x) for x in tensors], numbers)
    pairs = zip(results, program.bools, strict=True)
    results = tuple([x if is_condition else cast(engine, x, dtype) for x, is_condition in pairs])
    if out is None:
        return results
    engine.copy(results[0], out)
    return (out,)


def _computing(name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
    """An operation that converts stored tensors among its arguments, and its results."""
    converts = _converts_no_halves if name in _POINTWISE else is_stored

    @functools.wraps(operation)
    def guarded(self: Engine, *args: Any, **kwargs: Any) -> Any:
        for value in args:
            if isinstance(value, Tensor) and converts(value.dtype):
                return _converted(self, name, operation, args, kwargs)
        return operation(self, *args, **kwargs)

    return guarded


def _converts_no_halves(dtype: DType) -> bool:
    """Whether a dtype is converted before an operation that is a point-wise program: floats are within that."""
    return is_stored(dtype) and not is_float(dtype)


def _joining(name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
    """The same of an operation that takes a list of tensors."""

    @functools.wraps(operation)
    def guarded(self: Engine, *args: Any, **kwargs: Any) -> Any:
        for value in args:
            if isinstance(value, list | tuple):
                for x in value:
                    if isinstance(x, Tensor) and is_stored(x.dtype):
                        return _converted(self, name, operation, args, kwargs)
        return operation(self, *args, **kwargs)

    return guarded


def _making(name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
    """An operation that makes its result in the dtype that is computed in, and converts it."""

    @functools.wraps(operation)
    def guarded(self: Engine, *args: Any, **kwargs: Any) -> Any:
        for place, value in enumerate(args):
            if isinstance(value, np.dtype) and is_stored(value):
                if is_complex(value):
                    check_host(self, name)
                    return getattr(NumPyEngine, name)(self, *args, **kwargs)
                computed = computed_in(value)
                given = [_Loaded().of(one) for one in args]
                return cast(self, operation(self, *given[:place], computed, *given[place + 1 :], **kwargs), value)
        return operation(self, *args, **kwargs)

    return guarded


def _updating(operation: Callable[..., None]) -> Callable[..., None]:
    """An optimizer's step, which is composed where a parameter is of a stored dtype."""

    @functools.wraps(operation)
    def guarded(self: Engine, rows: Sequence[Row], *args: Any, **kwargs: Any) -> None:
        for row in rows:
            if is_stored(row[0].dtype):
                return Engine.optimizer_step(self, rows, *args, **kwargs)
        return operation(self, rows, *args, **kwargs)

    return guarded


def _drawing(operation: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Random numbers, which the host makes of a stored dtype: rounded ones of another would reach 1."""

    @functools.wraps(operation)
    def guarded(self: Engine, draw: Draw) -> Tensor:
        return Engine.random(self, draw) if is_stored(draw.dtype) else operation(self, draw)

    return guarded


def _converted(engine: Engine, name: str, operation: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """The operation of what is stored: of complex numbers NumPy's, else that of the dtype that is computed in."""
    loaded = _Loaded()
    given = [loaded.of(value) for value in args]
    options = {key: loaded.of(value) for key, value in kwargs.items()}
    if any(map(is_complex, loaded.dtypes)):
        check_host(engine, name)
        return _by_numpy(engine, name, args, kwargs)
    result = operation(engine, *given, **options)
    if name in _WRITES:
        loaded.written.append(given[0])
    for copy in loaded.written:
        if id(copy) in loaded.originals:
            engine.copy(copy, loaded.originals[id(copy)])
    stored = functools.reduce(promote, loaded.dtypes)
    if name == "arg_reduce":
        return result
    if name in _TOTALS or (name == "reduce" and args[0] in _TOTALS):
        return cast(engine, result, info(stored).total)
    if name in _WITH_INDICES:
        return (loaded.stored(result[0], computed_in(stored), stored), *result[1:])
    if name in _BATCH_NORM_GRADIENTS:  # the weights may be float32 beside images of halves, and so their gradients
        vectors = next((x.dtype for x in _epilogue(args)[:2] if x is not None), stored)
        dtypes_of = stored, vectors, vectors, stored
        return tuple([loaded.stored(one, computed_in(stored), to) for one, to in zip(result, dtypes_of, strict=True)])
    return loaded.stored(result, computed_in(stored), stored)


def _epilogue(args: Sequence[Any]) -> Epilogue:
    """The weight, bias and slope among the arguments of a BatchNorm's gradient."""
    return next(one for one in args if isinstance(one, Epilogue))


def _by_numpy(engine: Engine, name: str, args: Any, kwargs: Any) -> Any:
    """NumPy's operation of complex numbers; DtypeError for one that they have not, as what asks for the larger."""
    operation = args[0] if name in ("elementwise", "reduce") else name
    try:
        if operation not in _OF_ORDER:
            return getattr(NumPyEngine, name)(engine, *args, **kwargs)
        reason = None
    except TypeError as error:
        if isinstance(error, AlphaError):
            raise
        reason = error
    raise DtypeError(
        f"[{operation}] expected floats, got complex numbers, which have no such function: take .abs(), .real or .imag"
    ) from reason


class _Loaded:
    """The arguments of an operation in the dtype that is computed in.

    Attributes:
        dtypes: of those that were stored.
        originals: the tensors that were stored, by the ids of their copies.
        written: copies that the operation writes into beside its results.
    """

    def __init__(self) -> None:
        self.dtypes: list[DType] = []
        self.originals: dict[int, Tensor] = {}
        self.written: list[Any] = []

    def of(self, value: Any) -> Any:
        """A stored tensor, or those in a list or a record, as a copy."""
        if isinstance(value, Tensor):
            if not is_stored(value.dtype):
                return value
            self.dtypes.append(value.dtype)
            if is_complex(value.dtype):
                return value
            copy = cast(value.engine, value, computed_in(value.dtype))
            self.originals[id(copy)] = value
            return copy
        if isinstance(value, list | tuple):
            loaded = [self.of(one) for one in value]
            if isinstance(value, RunningStatistics):
                self.written += loaded[:2]
            return type(value)._make(loaded) if hasattr(value, "_make") else type(value)(loaded)
        return value

    def stored(self, result: Any, computed: DType, dtype: DType) -> Any:
        """Results as they are stored; an argument that was written into is itself.

        Records of what backward needs stay as they were computed.
        """
        if isinstance(result, Tensor):
            original = self.originals.get(id(result))
            if original is not None:
                result.engine.copy(result, original)
                return original
            return cast(result.engine, result, dtype) if result.dtype == computed else result
        if type(result) is tuple:
            return tuple([self.stored(one, computed, dtype) for one in result])
        return result


def check_host(engine: Engine, name: str) -> None:
    """DtypeError unless an engine's tensors lie in the host's memory, where NumPy computes with complex ones."""
    if not engine.memory.is_on_host:
        raise DtypeError(f"[{name}] expected floats on {engine.name}, got complex numbers: move them with .to('cpu')")
