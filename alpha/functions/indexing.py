"""Indexing: reading and writing parts of a tensor by NumPy's rules, one-hot, masking."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from alpha import dtypes
from alpha.arguments import Shape, broadcast_shapes, whole
from alpha.autograd import Function, enters_graph, view_of
from alpha.autograd.composing import returned
from alpha.engine import RangeCheck
from alpha.errors import ArgumentError, DtypeError, IndexingError
from alpha.expressions.functions import pointwise, summed_to
from alpha.expressions.symbols import is_symbolic
from alpha.functions.elementwise import where
from alpha.functions.inplace import check_fits, write, written, written_value
from alpha.functions.keys import check_index, is_basic, is_mask, kept_index, region_of, resolved_key, without_flags
from alpha.functions.operands import Number, broadcast_view, call, check_room, check_tensor, sum_to
from alpha.functions.shape import broadcast_to, reshape
from alpha.launches import INDEX_SELECT, ONE_HOT, PUT, PUT_SELECTED
from alpha.tensor import Tensor

__all__ = ["getitem", "masked_fill", "one_hot", "setitem"]

# -- x[key] ------------------------------------------------------------------------------------------------------


class Slice(Function):
    """The part that slices, ints and None select: a view, a copy where a step is negative."""

    fresh = True
    views = True

    def forward(self, x: Tensor, index: tuple[Any, ...]) -> Tensor:
        self.index, self.shape, self.order = index, x.shape, x.memory_order()
        region = region_of(x, index)
        return region.clone() if any(stride < 0 for stride in region.strides) else region

    def backward(self, grad: Tensor) -> Tensor:
        whole = self.accumulator(0)
        if whole is not None:
            region = region_of(whole, self.index)
            grad.engine.elementwise("add", region, grad, out=region)
            return whole
        whole = grad.engine.full(self.shape, 0, grad.dtype, self.order)
        grad.engine.copy(grad, region_of(whole, self.index))
        return whole

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        return returned(self, grad, lambda g: call(Slice, g, self.index))


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

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        return returned(self, grad, lambda g: getitem(g, self.index))


class Gather(Selection):
    """By an index of all axes."""

    def forward(self, x: Tensor, index: tuple[Any, ...]) -> Tensor:
        if self.needs[0]:
            index = kept_index(index)
        self.index, self.shape, self.order = index, x.shape, x.memory_order()
        return x.engine.gather(x, index)


class Assign(Function):
    """x with a part overwritten."""

    def forward(self, x: Tensor, value: Tensor | Number, index: tuple[Any, ...]) -> Tensor:
        if True in self.needs:
            index = kept_index(index)
        self.index, self.shape = index, value.shape if isinstance(value, Tensor) else ()
        if not is_basic(index):
            x.engine.scatter(x, index, value, False)
        elif isinstance(value, Tensor):
            x.engine.copy(value, region_of(x, index))
        else:
            x.engine.fill(region_of(x, index), value)
        return x

    def backward(self, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        rest = part = None
        if self.needs[1]:
            part = sum_to(_selected(grad, self.index), self.shape)
        if self.needs[0]:
            rest = grad.clone()
            if is_basic(self.index):
                grad.engine.fill(region_of(rest, self.index), 0)
            else:
                grad.engine.scatter(rest, self.index, 0, False)
        return rest, part

    def backward_in_graph(self, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        rest = call(Assign, grad.clone(), 0, self.index) if self.needs[0] else None
        return rest, _part_of(grad, self.index, self.shape) if self.needs[1] else None


class Accumulate(Function):
    """x with values added to what an index of tensors selects; of repeated elements all are added."""

    def forward(self, x: Tensor, value: Tensor | Number, index: tuple[Any, ...]) -> Tensor:
        if True in self.needs:
            index = kept_index(index)
        self.index, self.shape = index, value.shape if isinstance(value, Tensor) else ()
        x.engine.scatter(x, index, value, True)
        return x

    def backward(self, grad: Tensor) -> tuple[Tensor, Tensor | None]:
        return grad, _part_of(grad, self.index, self.shape) if self.needs[1] else None


def _part_of(x: Tensor, index: tuple[Any, ...], shape: Shape) -> Tensor:
    """What an index selects, summed to a shape that was repeated to it."""
    return summed_to(call(Slice if is_basic(index) else Gather, x, index), shape)


def _selected(x: Tensor, index: tuple[Any, ...]) -> Tensor:
    return region_of(x, index).clone() if is_basic(index) else x.engine.gather(x, index)


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
    x, key = without_flags("getitem", x, key)
    index = resolved_key("getitem", x, key)
    return call(Slice if is_basic(index) else Gather, x, index)


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
    x, key = without_flags("setitem", x, key)
    index = resolved_key("setitem", x, key)
    value = written_value("setitem", x, value, check_shape=False)
    if isinstance(value, Tensor):
        value = fitting(x, index, value)
        if value.storage is x.storage:
            value = value.clone()
    write("setitem", x, Assign, value, index)


def _is_written(x: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether a launch overwrote the entries of x that a key of integers, or the elements that a mask selects."""
    return written(PUT, x, 0, key, value) or (not value.shape and written(PUT_SELECTED, x, key, value))


def fitting(x: Tensor, index: tuple[Any, ...], value: Tensor) -> Tensor:
    """The value without leading axes of length 1 that the part has not; ShapeError where it does not broadcast."""
    if not value.shape:
        return value
    part = region_of(x, index) if is_basic(index) else _shape_only(x, index)
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
            shape += [int(entry.sum().item())] if is_mask(entry) else entry.shape
        axis += entry.ndim if is_mask(entry) else 1
    return broadcast_view(one, tuple(shape))


def one_hot(tensor: Tensor, num_classes: int = -1, dtype: dtypes.DtypeLike = dtypes.default_int) -> Tensor:
    """A new last axis of ``num_classes`` elements, 1 at the label and 0 elsewhere. Labels are integers in range.

    ``num_classes``: -1 for one more than the largest label.
    """
    if dtype is dtypes.default_int:
        found: Tensor | None = ONE_HOT.launch_outside(tensor, num_classes)
        if found is not None:
            return found
    check_tensor("one_hot", tensor)
    check_index("one_hot", tensor, tensor)
    kind = dtypes.as_dtype(dtype, "one_hot")
    num_classes = whole("one_hot", "num_classes", num_classes, -1)
    if num_classes == -1:
        if not tensor.numel():
            raise ArgumentError("[one_hot] expected num_classes where there are no labels, got -1: give their number")
        num_classes = int(tensor.engine.to_numpy(tensor.detach()).max()) + 1
    check_room(tensor.engine, (*tensor.shape, num_classes), kind)
    message = f"[one_hot] expected labels in 0..{num_classes - 1}, got {{value}}: raise num_classes"
    index = reshape(tensor.detach().long(), (tensor.numel(),))
    out = tensor.engine.one_hot(index, num_classes, kind, RangeCheck(IndexingError, message))
    return out if tensor.ndim == 1 else reshape(out, (*tensor.shape, num_classes))


@pointwise
def _masked_fill(x: Any, mask: Any, value: Any) -> Any:
    return where(mask, value, x)


def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """input with a number where the mask (bool, broadcast to input's shape) holds; the gradient is 0 there."""
    found: Tensor | None = _masked_fill.latest.launch_outside(input, mask, value)
    if found is not None:
        return found
    if is_symbolic(input, mask, value):
        return _masked_fill(input, mask, value)
    check_tensor("masked_fill", input, mask)
    if not dtypes.is_bool(mask.dtype):
        raise DtypeError(f"[masked_fill] expected a mask of bool, got {mask.dtype}: compare it first")
    shape = broadcast_shapes("masked_fill", [input.shape, mask.shape])
    input = input if input.shape == shape else broadcast_to(input, shape)
    new = written_value("masked_fill", input, value)
    is_plain = dtypes.is_float(input.dtype) and not isinstance(new, Tensor)
    return _masked_fill(input, mask, new) if is_plain else where(mask, new, input)
