"""What becomes of a module's tensors when it is moved, cast or loaded; all in place, none recorded in a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from alpha import Engine, Tensor, dtypes, engines
from alpha.errors import ArgumentError, CheckpointError, DtypeError

Array = np.ndarray[Any, Any]
_LISTED = 20
"""Keys of one kind that an error names before it only counts them."""


def destination(target: Any) -> tuple[Engine | None, np.dtype[Any] | None]:
    """The engine or the dtype that the argument of ``Module.to`` means."""
    if isinstance(target, Engine):
        return target, None
    if isinstance(target, str) and target not in [str(dtype) for dtype in dtypes.ALL]:
        return engines.resolve(target), None
    if target is None:
        raise ArgumentError("[to] expected an engine or a dtype, got None")
    dtype = dtypes.as_dtype(target, "to")
    if not dtypes.is_float(dtype):
        raise DtypeError(f"[to] expected float32 or float64 for a module, got {dtype}: parameters are floating-point")
    return None, dtype


def move(tensor: Tensor, engine: Engine | None, dtype: np.dtype[Any] | None) -> None:
    """Gives a tensor, and its gradient, memory on another engine or of another dtype; the object stays the same."""
    engine = engine or tensor.engine
    dtype = dtype if dtype is not None and dtypes.is_float(tensor.dtype) else tensor.dtype
    if engine is not tensor.engine:
        moved = engine.from_numpy(tensor.engine.to_numpy(tensor.detach()).astype(dtype, copy=False))
    elif dtype != tensor.dtype:
        moved = engine.empty_like(tensor, dtype)
        engine.copy(tensor, moved)
    else:
        return
    tensor.storage, tensor.offset, tensor.strides, tensor.dtype = moved.storage, moved.offset, moved.strides, dtype
    tensor._array = None  # the engine's view of the memory it had
    if tensor.grad is not None:
        move(tensor.grad, engine, dtype)


def assign(tensor: Tensor, values: Array) -> None:
    """Copies an array into a tensor, which may be a leaf that requires a gradient."""
    engine = tensor.engine
    engine.copy(engine.from_numpy(np.asarray(values, tensor.dtype)), tensor)
    tensor.storage.version += 1


def load(owner: str, own: Mapping[str, Tensor], given: Mapping[str, Any], strict: bool) -> tuple[list[str], list[str]]:
    """Copies the given values into a module's own tensors, once all fit; returns missing and unexpected keys."""
    if not isinstance(given, Mapping):
        raise ArgumentError(f"[load_state_dict] expected a dict of tensors, got {type(given).__name__}")
    arrays = {key: _array(value) if key in own else None for key, value in given.items()}
    missing, unexpected = check("load_state_dict", owner, own, arrays, strict)
    for key, array in arrays.items():
        if array is not None:
            assign(own[key], array)
    return missing, unexpected


def check(
    function: str, owner: str, own: Mapping[str, Tensor], arrays: Mapping[str, Array | None], strict: bool = True
) -> tuple[list[str], list[str]]:
    """Missing and unexpected keys; one CheckpointError for them (if strict) and for all arrays that do not fit."""
    missing = [key for key in own if key not in arrays]
    unexpected = [str(key) for key in arrays if key not in own]
    misfits = [f"{key} {why}" for key, array in arrays.items() if key in own and (why := _misfit(own[key], array))]
    found = {"missing": missing if strict else [], "unexpected": unexpected if strict else [], "misshaped": misfits}
    if any(found.values()):
        listed = "; ".join(f"{kind}: {_list(keys)}" for kind, keys in found.items() if keys)
        raise CheckpointError(
            f"[{function}] expected the state of this {owner}, got another's ({listed}): take the model it was saved "
            "from; nothing was loaded"
        )
    return missing, unexpected


def _array(value: Any) -> Array:
    if hasattr(value, "detach") and not isinstance(value, Tensor):
        value = value.detach()  # PyTorch's tensors, which refuse while they require a gradient
    return np.asarray(value)


def _misfit(tensor: Tensor, array: Array | None) -> str:
    """What is wrong with an array for a tensor, or nothing."""
    if array is None:
        return f"expected {tensor.shape}, got None"
    if array.shape != tensor.shape:
        return f"expected {tensor.shape}, got {array.shape}"
    if not np.can_cast(array.dtype, tensor.dtype, "same_kind"):
        return f"expected {tensor.dtype}, got {array.dtype}"
    return ""


def _list(keys: Iterable[str]) -> str:
    names = list(keys)
    more = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {more} more" if more > 0 else "")
