"""Where the parameters of a layer are made, and of which floats: the arguments ``device`` and ``dtype`` of layers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, cast

import numpy as np

from alpha import Engine, Tensor, default_engine, device, dtypes, engines, get_default_dtype
from alpha.arguments import shape_of
from alpha.errors import DtypeError
from alpha.nn.parameter import Parameter

Arguments = ParamSpec("Arguments")
Device = Engine | device | str | int | None


class _Place(NamedTuple):
    """What a layer's arguments say; None for the default."""

    engine: Engine | None = None
    dtype: np.dtype[Any] | None = None


class _Thread(threading.local):
    """The place of the layer that a thread is making: layers that it makes in turn are made there too."""

    place = _Place()


_THREAD = _Thread()


def placed(init: Callable[Arguments, None]) -> Callable[Arguments, None]:
    """An ``__init__`` with the arguments ``device`` and ``dtype``: what it makes by ``empty`` is so."""
    code = cast(Any, init).__code__
    at = code.co_varnames[: code.co_argcount].index("device")
    if code.co_varnames[at + 1] != "dtype":
        raise TypeError(f"[placed] expected dtype behind device, got {code.co_varnames[at + 1]}")

    @wraps(init)
    def within(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        device = args[at] if len(args) > at else kwargs.get("device")
        dtype = args[at + 1] if len(args) > at + 1 else kwargs.get("dtype")
        if device is None and dtype is None:
            init(*args, **kwargs)
            return
        around = _THREAD.place
        place = _place_in(type(args[0]).__name__, device, dtype, around)
        try:
            _THREAD.place = place
            init(*args, **kwargs)
        finally:
            _THREAD.place = around

    return within


def _place_in(layer: str, device: Any, dtype: Any, around: _Place) -> _Place:
    """The place that arguments say, completed by that of the layer around; DtypeError for what has no gradients."""
    engine = around.engine if device is None else engines.resolve(device)
    kind = around.dtype if dtype is None else dtypes.as_dtype(dtype, layer)
    if kind is not None and not dtypes.has_gradients(kind):
        raise DtypeError(f"[{layer}] expected dtype as {dtypes.float_names()}, got {kind}: parameters carry gradients")
    return _Place(engine, kind)


def empty(*shape: int, dtype: np.dtype[Any] | None = None) -> Tensor:
    """An uninitialised tensor where the layer is made, of the layer's dtype or of another."""
    place = _THREAD.place
    engine = place.engine or default_engine()
    return engine.empty(shape_of("Parameter", (shape,)), dtype or place.dtype or get_default_dtype())


def empty_parameter(*shape: int) -> Parameter:
    """An uninitialised parameter where the layer is made."""
    return Parameter(empty(*shape))
