"""Indexing: reading and writing parts of a tensor by NumPy's rules, gathering, one-hot, masking."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from alpha import dtypes
from alpha.arguments import Shape, as_array, one_axis, whole
from alpha.autograd import Function, enters_graph, view_of
from alpha.conversion import tensor
from alpha.engine import RangeCheck
from alpha.errors import ArgumentError, DtypeError, IndexingError, ShapeError, described
from alpha.expressions.functions import pointwise
from alpha.expressions.symbols import is_symbolic
from alpha.functions.elementwise import where
from alpha.functions.inplace import check_fits, write, written, written_value
from alpha.functions.operands import (
    Number,
    broadcast_view,
    call,
    check_room,
    check_tensor,
    copied,
    sum_to,
)
from alpha.functions.shape import broadcast_to, reshape
from alpha.launches import GATHER_ALONG, INDEX_SELECT, ONE_HOT, PUT, PUT_SELECTED, TAKE_ALONG_DIM
from alpha.tensor import Tensor

__all__ = [
    "gather",
    "getitem",
    "index_select",
    "masked_fill",
    "one_hot",
    "setitem",
    "take_along_dim",
]

# -- reading an index --------------------------------------------------------------------------------------------


def _resolved(name: str, x: Tensor, key: Any) -> tuple[Any, ...]:
    """The key as one entry per axis (slice, int, integer or bool Tensor) with None for new axes between them.

    Its integers have memory of their own: what was checked is what is followed, whoever writes to the key's. Masks
    are the key's own, which ``_kept`` copies for backward.
    """
    entries = [_entry(name, x, entry) for entry in (key if isinstance(key, tuple) else (key,))]
    used, dots = 0, []
    for i, entry in enumerate(entries):
        if entry is Ellipsis:
            dots.append(i)
        elif entry is not None:
            used += entry.ndim if _is_mask(entry) else 1
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


def _check_together(name: str, tensors: list[Tensor]) -> None:
    """IndexingError unless index tensors broadcast, of masks the positions where they hold."""
    shapes = [(int(t.sum().item()),) if _is_mask(t) else t.shape for t in tensors]
    try:
        np.broadcast_shapes(*shapes)
    except ValueError as error:
        raise IndexingError(
            f"[{name}] expected index tensors whose shapes broadcast, got {', '.join(map(str, shapes))}"
        ) from error


def _is_mask(entry: Any) -> bool:
    return isinstance(entry, Tensor) and dtypes.is_bool(entry.dtype)


def _entry(name: str, x: Tensor, entry: Any) -> Any:
    """One part of a key: lists and arrays as tensors, integers of any kind as ints."""
    if type(entry) is int or entry is None or entry is Ellipsis:
        return entry
    if isinstance(entry, slice):
        return _slice_of_ints(name, entry)
    if isinstance(entry, list | np.ndarray):
        array = as_array(name, entry)
        empty = isinstance(entry, list) and array.size == 0  # of which NumPy makes floats
        entry = tensor(array.astype(dtypes.default_int) if empty else array, engine=x.engine)
    if isinstance(entry, Tensor):
        x.engine.check_owner(name, entry)
        if dtypes.is_bool(entry.dtype) and entry.ndim:
            return entry
        if entry.ndim and not dtypes.is_float(entry.dtype):
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
        if _is_mask(entry):
            covered = x.shape[axis : axis + entry.ndim]
            if covered != entry.shape:
                raise IndexingError(f"[{name}] expected a mask of shape {covered} at axis {axis}, got {entry.shape}")
            axis += entry.ndim
            continue
        if isinstance(entry, Tensor):
            entries[i] = _positions(name, entry, x.shape, axis)
        elif isinstance(entry, int):
            if not -x.shape[axis] <= entry < x.shape[axis]:
                raise IndexingError(
                    f"[{name}] expected an index within axis {axis} of shape {x.shape}, got {described(entry)}"
                )
            entries[i] = entry % x.shape[axis]
        axis += 1
    return entries


def _positions(name: str, index: Tensor, shape: Shape, axis: int) -> Tensor:
    """An int64 tensor of indices counted from the axis's start; IndexingError where one lies outside."""
    if index.numel() == 0:
        return index
    return index.engine.check_range(index, -shape[axis], shape[axis], _within(name, shape, axis))


@lru_cache(maxsize=1024)
def _within(name: str, shape: Shape, axis: int) -> RangeCheck:
    """The error of an index outside an axis."""
    return RangeCheck(IndexingError, f"[{name}] expected indices within axis {axis} of shape {shape}, got {{value}}")


def _kept(index: tuple[Any, ...]) -> tuple[Any, ...]:
    """The index for backward too: masks as they are now, whoever writes to them later."""
    return tuple([copied(entry) if _is_mask(entry) else entry for entry in index])


def _is_basic(index: tuple[Any, ...]) -> bool:
    return not any(isinstance(entry, Tensor) for entry in index)


def _region(x: Tensor, index: tuple[Any, ...]) -> Tensor:
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


# -- x[key] ------------------------------------------------------------------------------------------------------


class Slice(Function):
    """The part that slices, ints and None select: a view, a copy where a step is negative."""

    fresh = True
    views = True

    def forward(self, x: Tensor, index: tuple[Any, ...]) -> Tensor:
        self.index, self.shape, self.order = index, x.shape, x.memory_order()
        region = _region(x, index)
        return region.clone() if any(stride < 0 for stride in region.strides) else region

    def backward(self, grad: Tensor) -> Tensor:
        whole = self.accumulator(0)
        if whole is not None:
            region = _region(whole, self.index)
            grad.engine.elementwise("add", region, grad, out=region)
            return whole
        whole = grad.engine.full(self.shape, 0, grad.dtype, self.order)
        grad.engine.copy(grad, _region(whole, self.index))
        return whole


class Selection(Function):
    """The elements that integer and bool tensors select, as a copy; repeated ones add up their gradients."""

    fresh = True
    index: tuple[Any, ...]
    shape: Shape
    order: Shape

    def backward(self, grad: Tensor) -> Tensor:
        whole = self.accumulator(0)
        if whole is None:
            whole = grad.engine.full(self.shape, 0, grad.dtype, self.order)
        grad.engine.scatter(whole, self.index, grad, True)
        return whole


class Gather(Selection):
    """By an index of all axes."""

    def forward(self, x: Tensor, index: tuple[Any, ...]) -> Tensor:
        if self.needs[0]:
            index = _kept(index)
        self.index, self.shape, self.order = index, x.shape, x.memory_order()
        return x.engine.gather(x, index)


class IndexSelect(Selection):
    """The entries along one axis that integers name."""

    def forward(self, x: Tensor, index: Tensor, axis: int) -> Tensor:
        check = None if self.needs[0] else _within("index_select", x.shape, axis)
        if check is None:  # backward follows what was checked, whoever writes to it meanwhile
            index = _positions("index_select", index, x.shape, axis)
        self.index = tuple([index if a == axis else slice(None) for a in range(len(x.shape))])
        self.shape, self.order = x.shape, x.memory_order()
        return x.storage.engine.index_select(x, index, axis, check)


class GatherAlong(Function):
    """The elements that indices name along an axis, as a copy; repeated ones add up their gradients."""

    fresh = True

    def forward(self, x: Tensor, index: Tensor, axis: int, name: str) -> Tensor:
        """``name``: of the function, for the error of an index out of range."""
        check = _within(name, x.shape, axis)
        if not self.needs[0]:
            return x.engine.gather_along(x, index, axis, check)
        self.axis, self.shape, self.order = axis, x.shape, x.memory_order()
        # Backward follows what was checked, whoever writes to the index meanwhile.
        out, self.index = x.engine.gather_along_kept(x, index, axis, check)
        return out

    def backward(self, grad: Tensor) -> Tensor:
        whole = self.accumulator(0)
        if whole is None:
            return grad.engine.gather_along_grad(grad, self.index, self.axis, self.shape, self.order)
        grad.engine.scatter_along(whole, self.index, grad, self.axis)
        return whole


class Assign(Function):
    """x with a part overwritten."""

    def forward(self, x: Tensor, value: Tensor | Number, index: tuple[Any, ...]) -> Tensor:
        if True in self.needs:
            index = _kept(index)
        self.index, self.shape = index, value.shape if isinstance(value, Tensor) else ()
        if not _is_basic(index):
            x.engine.scatter(x, index, value, False)
        elif isinstance(value, Tensor):
            x.engine.copy(value, _region(x, index))
        else:
            x.engine.fill(_region(x, index), value)
        return x

    def backward(self, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        rest = part = None
        if self.needs[1]:
            part = sum_to(_selected(grad, self.index), self.shape)
        if self.needs[0]:
            rest = grad.clone()
            if _is_basic(self.index):
                grad.engine.fill(_region(rest, self.index), 0)
            else:
                grad.engine.scatter(rest, self.index, 0, False)
        return rest, part


def _selected(x: Tensor, index: tuple[Any, ...]) -> Tensor:
    return _region(x, index).clone() if _is_basic(index) else x.engine.gather(x, index)


def getitem(x: Tensor, key: Any) -> Tensor:
    """``x[key]`` by NumPy's rules: a view for ints, slices, None and ..., a copy for tensors, lists and masks.

    A ``...`` that stands for no axis separates no index tensors, as in PyTorch.

    A negative step makes a copy too. IndexingError (an IndexError) for an index outside its axis.
    """
    if type(key) is Tensor:
        taken: Tensor | None = INDEX_SELECT.launch_outside(x, 0, key, True)
        if taken is not None:
            return taken
        if _selects(x, key):
            rest = (slice(None),) * (len(x.shape) - len(key.shape))
            selected: Tensor = x.storage.engine.gather(x, (key, *rest))
            return selected
    check_tensor("getitem", x)
    plain = _plain(key)
    if plain is not None and not ((x.requires_grad or x._base is not None) and enters_graph(x)):
        part = _part(x.shape, x.strides, plain)
        if part is not None:
            return view_of(x, x.offset + part[0], part[1], part[2])
    index = _resolved("getitem", x, key)
    return call(Slice if _is_basic(index) else Gather, x, index)


def _selects(x: Tensor, mask: Tensor) -> bool:
    """Whether a key is a mask of x's first axes, and x not in the graph."""
    count = len(mask.shape)
    return bool(
        isinstance(x, Tensor)
        and dtypes.is_bool(mask.dtype)
        and 0 < count <= len(x.shape)
        and mask.shape == x.shape[:count]
        and mask.storage.engine is x.storage.engine
        and not enters_graph(x)
    )


PlainEntry = int | tuple[int | None, int | None, int | None]
"""An int, or a slice's start, stop and step: slices cannot be hashed."""


def _plain(key: Any) -> tuple[PlainEntry, ...] | None:
    """A key of Python's ints and slices of them alone; None for any other."""
    found: list[PlainEntry] = []
    for entry in key if type(key) is tuple else (key,):
        if type(entry) is int:
            found.append(entry)
        elif type(entry) is slice:
            for part in (entry.start, entry.stop, entry.step):
                if part is not None and type(part) is not int:
                    return None
            found.append((entry.start, entry.stop, entry.step))
        else:
            return None
    return tuple(found)


@lru_cache(maxsize=8192)
def _part(shape: Shape, strides: Shape, key: tuple[PlainEntry, ...]) -> tuple[int, Shape, Shape] | None:
    """The offset, shape and strides of the view that a plain key selects; None where it selects none."""
    if len(key) > len(shape):
        return None
    offset, lengths, steps = 0, [], []
    for entry, length, stride in zip(key, shape, strides, strict=False):
        if isinstance(entry, int):
            if not -length <= entry < length:
                return None
            start = entry % length
        else:
            if entry[2] is not None and entry[2] < 1:
                return None
            start, stop, step = slice(*entry).indices(length)
            lengths.append(len(range(start, stop, step)))
            steps.append(stride * step)
        offset += start * stride
    wanted = (*lengths, *shape[len(key) :])
    return offset if math.prod(wanted) else 0, wanted, (*steps, *strides[len(key) :])


def setitem(x: Tensor, key: Any, value: Any) -> None:
    """``x[key] = value``: a number, array or tensor that broadcasts to the part selected."""
    if type(key) is Tensor and type(value) is Tensor and _is_written(x, key, value):
        return
    check_tensor("setitem", x)
    index = _resolved("setitem", x, key)
    value = written_value("setitem", x, value, check_shape=False)
    if isinstance(value, Tensor):
        value = _fitting(x, index, value)
        if value.storage is x.storage:
            value = value.clone()
    write("setitem", x, Assign, value, index)


def _is_written(x: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether a launch overwrote the entries of x that a key of integers, or the elements that a mask selects."""
    return written(PUT, x, 0, key, value) or (not value.shape and written(PUT_SELECTED, x, key, value))


def _fitting(x: Tensor, index: tuple[Any, ...], value: Tensor) -> Tensor:
    """The value without leading axes of length 1 that the part has not; ShapeError where it does not broadcast."""
    if not value.shape:
        return value
    part = _region(x, index) if _is_basic(index) else _shape_only(x, index)
    while value.ndim > part.ndim and value.shape[0] == 1:
        value = value.reshape(value.shape[1:])
    check_fits("setitem", part, value)
    return value


def _shape_only(x: Tensor, index: tuple[Any, ...]) -> Tensor:
    """A tensor of the shape that an index with tensors selects; its elements mean nothing."""
    one = x.engine.empty((), dtypes.bool_)
    tensors = [entry for entry in index if isinstance(entry, Tensor)]
    if len(tensors) > 1 or any(isinstance(entry, int) for entry in index):
        return x.engine.gather(broadcast_view(one, x.shape), index)  # whose order of axes is NumPy's to say
    shape, axis = [], 0
    for entry in index:
        if entry is None:
            shape.append(1)
            continue
        if isinstance(entry, slice):
            shape.append(len(range(*entry.indices(x.shape[axis]))))
        else:
            shape += [int(entry.sum().item())] if _is_mask(entry) else entry.shape
        axis += entry.ndim if _is_mask(entry) else 1
    return broadcast_view(one, tuple(shape))


# -- by position along an axis -----------------------------------------------------------------------------------


def gather(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """out[i][j][k] = x[i][index[i][j][k]][k] for dim 1, and likewise for others; index has x's number of axes.

    Along the other axes index may be shorter than x.
    """
    found: Tensor | None = GATHER_ALONG.launch_outside(x, dim, index)
    if found is not None:
        return found
    check_tensor("gather", x, index)
    axis = one_axis("gather", dim, x.ndim)
    _check_index("gather", x, index)
    if index.ndim != x.ndim or any(
        n > m for a, (n, m) in enumerate(zip(index.shape, x.shape, strict=True)) if a != axis
    ):
        raise ShapeError(
            f"[gather] expected an index of {x.ndim} axes, no longer than x except along axis {axis}, got x: {x.shape} "
            f"and index: {index.shape}"
        )
    followed = index.detach().long()
    out = call(GatherAlong, x, followed, axis, "gather")
    if dim != axis and not out.requires_grad:
        x.engine.alias(GATHER_ALONG, (x, axis, followed), GATHER_ALONG, (x, dim, index))
    return out


def take_along_dim(x: Tensor, index: Tensor, dim: int) -> Tensor:
    """``gather`` with x and index broadcast to each other along the other axes."""
    found: Tensor | None = TAKE_ALONG_DIM.launch_outside(x, index, dim)
    if found is not None:
        return found
    check_tensor("take_along_dim", x, index)
    axis = one_axis("take_along_dim", dim, x.ndim)
    _check_index("take_along_dim", x, index)
    pairs = list(zip(x.shape, index.shape, strict=False))
    if index.ndim != x.ndim or any(a != axis and n != m and 1 not in (n, m) for a, (n, m) in enumerate(pairs)):
        raise ShapeError(
            f"[take_along_dim] expected shapes that broadcast except along axis {axis}, got x: {x.shape} and index: "
            f"{index.shape}"
        )
    common = [max(pair) if 0 not in pair else 0 for pair in pairs]
    wide = broadcast_to(x, [x.shape[axis] if a == axis else n for a, n in enumerate(common)])
    chosen = broadcast_to(index, [index.shape[axis] if a == axis else n for a, n in enumerate(common)])
    followed = chosen.detach().long()
    out = call(GatherAlong, wide, followed, axis, "take_along_dim")
    if not out.requires_grad:
        x.engine.alias(GATHER_ALONG, (wide, axis, followed), TAKE_ALONG_DIM, (x, index, dim))
    return out


def _check_index(name: str, x: Tensor, index: Tensor) -> None:
    x.engine.check_owner(name, index)
    if not dtypes.is_integer(index.dtype):
        raise DtypeError(f"[{name}] expected an index of integers, got {index.dtype}: cast it with .long()")


def index_select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """The entries along an axis that a 1-D integer tensor names, in its order."""
    if type(index) is Tensor and len(index.shape) == 1:
        found: Tensor | None = INDEX_SELECT.launch_outside(x, dim, index, True)
        if found is not None:
            return found
    check_tensor("index_select", x, index)
    axis = one_axis("index_select", dim, x.ndim)
    _check_index("index_select", x, index)
    if index.ndim != 1:
        raise ShapeError(f"[index_select] expected an index of one axis, got shape {index.shape}")
    followed = index.detach().long()
    out = call(IndexSelect, x, followed, axis)
    if dim != axis and not out.requires_grad:
        x.engine.alias(INDEX_SELECT, (x, axis, followed, True), INDEX_SELECT, (x, dim, index, True))
    return out


def one_hot(labels: Tensor, num_classes: int = -1, dtype: dtypes.DtypeLike = dtypes.default_int) -> Tensor:
    """A new last axis of ``num_classes`` elements, 1 at the label and 0 elsewhere. Labels are integers in range.

    ``num_classes``: -1 for one more than the largest label.
    """
    if dtype is dtypes.default_int:
        found: Tensor | None = ONE_HOT.launch_outside(labels, num_classes)
        if found is not None:
            return found
    check_tensor("one_hot", labels)
    _check_index("one_hot", labels, labels)
    kind = dtypes.as_dtype(dtype, "one_hot")
    num_classes = whole("one_hot", "num_classes", num_classes, -1)
    if num_classes == -1:
        if not labels.numel():
            raise ArgumentError("[one_hot] expected num_classes where there are no labels, got -1: give their number")
        num_classes = int(labels.engine.to_numpy(labels.detach()).max()) + 1
    check_room(labels.engine, (*labels.shape, num_classes), kind)
    message = f"[one_hot] expected labels in 0..{num_classes - 1}, got {{value}}: raise num_classes"
    index = reshape(labels.detach().long(), (labels.numel(),))
    out = labels.engine.one_hot(index, num_classes, kind, RangeCheck(IndexingError, message))
    return out if labels.ndim == 1 else reshape(out, (*labels.shape, num_classes))


@pointwise
def _masked_fill(x: Any, mask: Any, value: Any) -> Any:
    return where(mask, value, x)


def masked_fill(x: Tensor, mask: Tensor, value: Any) -> Tensor:
    """x with a number where the mask (bool, broadcast to x's shape) holds; the gradient is 0 there."""
    found: Tensor | None = _masked_fill.latest.launch_outside(x, mask, value)
    if found is not None:
        return found
    if is_symbolic(x, mask, value):
        return _masked_fill(x, mask, value)
    check_tensor("masked_fill", x, mask)
    if not dtypes.is_bool(mask.dtype):
        raise DtypeError(f"[masked_fill] expected a mask of bool, got {mask.dtype}: compare it first")
    check_fits("masked_fill", x, mask)
    new = written_value("masked_fill", x, value)
    is_plain = dtypes.is_float(x.dtype) and not isinstance(new, Tensor)
    return _masked_fill(x, mask, new) if is_plain else where(mask, new, x)
