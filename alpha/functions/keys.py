"""Keys: what stands in the brackets of ``x[key]``, checked, and the view that slices, ints and None select."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from alpha import dtypes
from alpha.arguments import Shape, as_array
from alpha.conversion import tensor
from alpha.engine import RangeCheck
from alpha.errors import DtypeError, IndexingError, described
from alpha.functions.operands import copied
from alpha.functions.shape import unsqueeze
from alpha.tensor import Tensor

Row = (list, tuple, range)
"""What stands for a tensor of integers or bools in a key, within which a tuple is one too."""


def resolved_key(name: str, x: Tensor, key: Any) -> tuple[Any, ...]:
    """The key as one entry per axis (slice, int, integer or bool Tensor) with None for new axes between them.

    Its integers have memory of their own: what was checked is what is followed, whoever writes to the key's. Masks
    are the key's own, which ``kept_index`` copies for backward.
    """
    entries = [_entry(name, x, entry) for entry in (key if isinstance(key, tuple) else (key,))]
    used, dots = 0, []
    for i, entry in enumerate(entries):
        if entry is Ellipsis:
            dots.append(i)
        elif entry is not None:
            used += entry.ndim if is_mask(entry) else 1
    if len(dots) > 1 or used > x.ndim:
        raise IndexingError(
            f"[{name}] expected at most {x.ndim} indices and one ... for shape {x.shape}, got {described(key)}"
        )
    rest = [slice(None)] * (x.ndim - used)
    at = dots[0] if dots else len(entries)
    found = tuple(_in_range(name, x, [*entries[:at], *rest, *entries[at + 1 :]]))
    tensors = [entry for entry in found if isinstance(entry, Tensor)]
    if len(tensors) > 1:
        _check_together(name, tensors)
    return found


def without_flags(name: str, x: Tensor, key: Any) -> tuple[Tensor, Any]:
    """A view and its key that select what a key with bools without axes selects.

    Each such bool stands for a new axis of length 1, of which True selects the only entry and False none, as in
    PyTorch.
    """
    entries = key if isinstance(key, tuple) else (key,)
    if not any(map(_is_flag, entries)):
        return x, key
    between = x.ndim - sum(map(_axes_taken, entries))
    if between < 0:
        raise IndexingError(f"[{name}] expected at most {x.ndim} indices for shape {x.shape}, got {described(key)}")
    found, axis = [], 0
    for entry in entries:
        if _is_flag(entry):
            x = unsqueeze(x, axis)
            found.append(tensor([0] if entry else [], dtypes.default_int, engine=x.engine))
            axis += 1
        else:
            found.append(entry)
            axis += between if entry is Ellipsis else _axes_taken(entry)
    return x, tuple(found)


def _is_flag(entry: Any) -> bool:
    """Whether a part of a key is a bool, or a tensor or an array of one bool and no axes."""
    if isinstance(entry, Tensor | np.ndarray):
        return not entry.shape and dtypes.is_bool(entry.dtype)
    return isinstance(entry, bool)


def _axes_taken(entry: Any) -> int:
    """How many of a tensor's axes a part of a key stands for, where it is no ellipsis."""
    if entry is None or entry is Ellipsis or _is_flag(entry):
        return 0
    array = np.asarray(entry) if isinstance(entry, Row) else entry
    is_of_bools = isinstance(array, Tensor | np.ndarray) and dtypes.is_bool(array.dtype)
    return array.ndim if is_of_bools else 1


def _check_together(name: str, tensors: list[Tensor]) -> None:
    """IndexingError unless index tensors broadcast, of masks the positions where they hold."""
    shapes = [(int(t.sum().item()),) if is_mask(t) else t.shape for t in tensors]
    try:
        np.broadcast_shapes(*shapes)
    except ValueError as error:
        raise IndexingError(
            f"[{name}] expected index tensors whose shapes broadcast, got {', '.join(map(str, shapes))}"
        ) from error


def is_mask(entry: Any) -> bool:
    """Whether a part of a key is a tensor of bools."""
    return isinstance(entry, Tensor) and dtypes.is_bool(entry.dtype)


def _entry(name: str, x: Tensor, entry: Any) -> Any:
    """One part of a key: rows and arrays as tensors, integers of any kind as ints."""
    if type(entry) is int or entry is None or entry is Ellipsis:
        return entry
    if isinstance(entry, slice):
        return _slice_of_ints(name, entry)
    if isinstance(entry, (*Row, np.ndarray)):
        array = as_array(name, list(entry) if isinstance(entry, range) else entry)
        empty = isinstance(entry, Row) and array.size == 0  # of which NumPy makes floats
        entry = tensor(array.astype(dtypes.default_int) if empty else array, engine=x.engine)
    if isinstance(entry, Tensor):
        x.engine.check_owner(name, entry)
        if dtypes.is_bool(entry.dtype) and entry.ndim:
            return entry
        if entry.ndim and dtypes.is_integer(entry.dtype):
            return entry.long()
    whole = dtypes.is_integer(entry.dtype) if isinstance(entry, Tensor) else hasattr(type(entry), "__index__")
    if not whole or isinstance(entry, bool | np.bool_):
        raise IndexingError(
            f"[{name}] expected ints, slices, None, ..., integer or bool tensors as indices, got {_said(entry)}"
        )
    return entry.__index__()


def _slice_of_ints(name: str, entry: slice) -> slice:
    """The slice with its parts, which may be anything that counts as an int, read once."""
    start, stop, step = entry.start, entry.stop, entry.step
    if step is None and (start is None or type(start) is int) and (stop is None or type(stop) is int):
        return entry
    parts = [
        part if part is None or type(part) is int else part.__index__() if _counts(part) else part
        for part in (start, stop, step)
    ]
    if any(part is not None and type(part) is not int for part in parts):
        raise IndexingError(f"[{name}] expected a slice of ints, got {described(entry)}")
    if parts[2] == 0:
        raise IndexingError(f"[{name}] expected a slice whose step is not 0, got {entry!r}")
    return slice(*parts)


def _counts(part: Any) -> bool:
    """Whether a part of a slice counts as an int."""
    if isinstance(part, Tensor):
        return part.numel() == 1 and dtypes.is_integer(part.dtype)
    if isinstance(part, np.ndarray):
        return part.ndim == 0 and dtypes.is_integer(part.dtype)
    return hasattr(type(part), "__index__")


def _said(entry: Any) -> str:
    return f"a tensor of {entry.dtype} {entry.shape}" if isinstance(entry, Tensor) else described(entry)


def _in_range(name: str, x: Tensor, entries: list[Any]) -> list[Any]:
    """The entries with non-negative indices; IndexingError where one lies outside its axis."""
    axis = 0
    for i, entry in enumerate(entries):
        if entry is None:
            continue
        if is_mask(entry):
            covered = x.shape[axis : axis + entry.ndim]
            if covered != entry.shape:
                raise IndexingError(f"[{name}] expected a mask of shape {covered} at axis {axis}, got {entry.shape}")
            axis += entry.ndim
            continue
        if isinstance(entry, Tensor):
            entries[i] = positions(name, entry, x.shape, axis)
        elif isinstance(entry, int):
            if not -x.shape[axis] <= entry < x.shape[axis]:
                raise IndexingError(
                    f"[{name}] expected an index within axis {axis} of shape {x.shape}, got {described(entry)}"
                )
            entries[i] = entry % x.shape[axis]
        axis += 1
    return entries


def positions(name: str, index: Tensor, shape: Shape, axis: int) -> Tensor:
    """An int64 tensor of indices counted from the axis's start; IndexingError where one lies outside."""
    if index.numel() == 0:
        return index
    return index.engine.check_range(index, -shape[axis], shape[axis], within(name, shape, axis))


@lru_cache(maxsize=1024)
def within(name: str, shape: Shape, axis: int) -> RangeCheck:
    """The error of an index outside an axis."""
    return RangeCheck(IndexingError, f"[{name}] expected indices within axis {axis} of shape {shape}, got {{value}}")


def kept_index(index: tuple[Any, ...]) -> tuple[Any, ...]:
    """The index for backward too: masks as they are now, whoever writes to them later."""
    return tuple([copied(entry) if is_mask(entry) else entry for entry in index])


def is_basic(index: tuple[Any, ...]) -> bool:
    """Whether a key selects a view: it has no tensors."""
    return not any(isinstance(entry, Tensor) for entry in index)


def region_of(x: Tensor, index: tuple[Any, ...]) -> Tensor:
    """The view that slices, ints and None select; its strides may be negative."""
    offset, shape, strides, axis = x.offset, [], [], 0
    for entry in index:
        if entry is None:
            shape.append(1)
            strides.append(1)
            continue
        if isinstance(entry, slice):
            start, stop, step = entry.indices(x.shape[axis])
            shape.append(len(range(start, stop, step)))
            strides.append(x.strides[axis] * step)
        else:
            start = entry
        offset += start * x.strides[axis] if x.shape[axis] else 0
        axis += 1
    out = tuple(shape)
    return Tensor(x.storage, offset if math.prod(out) else x.offset, out, tuple(strides), x.dtype)


def check_index(name: str, x: Tensor, index: Tensor) -> None:
    """EngineError or DtypeError unless an index is of integers on x's engine."""
    x.engine.check_owner(name, index)
    if not dtypes.is_integer(index.dtype):
        raise DtypeError(f"[{name}] expected an index of integers, got {index.dtype}: cast it with .long()")
