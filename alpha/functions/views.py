"""Views by other names: parts along an axis, axes in other places, windows, any strides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from alpha import arguments
from alpha.arguments import Shape, listed, one_axis, shape_of, whole
from alpha.autograd import Function
from alpha.errors import ArgumentError, ShapeError, described
from alpha.functions.casting import clone
from alpha.functions.complex_arithmetic import conjugate
from alpha.functions.indexing import getitem
from alpha.functions.operands import call, check_room, check_tensor
from alpha.functions.shape import broadcast_to, expand, permute, reshape, squeeze, transpose
from alpha.functions.splitting import split
from alpha.tensor import Tensor, is_within

__all__ = [
    "adjoint",
    "as_strided",
    "broadcast_shapes",
    "broadcast_tensors",
    "dsplit",
    "hsplit",
    "moveaxis",
    "movedim",
    "narrow",
    "narrow_copy",
    "ravel",
    "resolve_conj",
    "resolve_neg",
    "select",
    "split_with_sizes",
    "swapaxes",
    "swapdims",
    "t",
    "tensor_split",
    "unbind",
    "unflatten",
    "unsafe_split_with_sizes",
    "vsplit",
]

# -- axes in other places ----------------------------------------------------------------------------------------


def t(input: Tensor) -> Tensor:
    """A matrix transposed; a tensor of fewer axes as it is."""
    check_tensor("t", input)
    if input.ndim > 2:
        raise ShapeError(f"[t] expected at most two axes, got shape {input.shape}: use .mT or transpose")
    return transpose(input, 0, 1) if input.ndim == 2 else input


def adjoint(input: Tensor) -> Tensor:
    """The last two axes exchanged, of complex numbers their conjugates: as ``input.mH``."""
    return exchanged("adjoint", conjugate(input) if isinstance(input, Tensor) else input)


def exchanged(name: str, input: Tensor) -> Tensor:
    """The last two axes exchanged."""
    check_tensor(name, input)
    if input.ndim < 2:
        raise ShapeError(f"[{name}] expected at least two axes, got shape {input.shape}")
    return transpose(input, -2, -1)


def swapaxes(input: Tensor, axis0: int, axis1: int) -> Tensor:
    """``transpose``."""
    return transpose(input, axis0, axis1)


def swapdims(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """``transpose``."""
    return transpose(input, dim0, dim1)


def movedim(input: Tensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """Axes moved to other places; the others keep their order."""
    check_tensor("movedim", input)
    if not input.shape:
        return input
    given, wanted = (
        [one_axis("movedim", axis, input.ndim) for axis in (axes if isinstance(axes, (tuple, list)) else (axes,))]
        for axes in (source, destination)
    )
    if len(given) != len(wanted) or len(set(given)) != len(given) or len(set(wanted)) != len(wanted):
        raise ShapeError(
            f"[movedim] expected as many different sources as destinations, got {described(source)} and "
            f"{described(destination)}"
        )
    rest = iter([axis for axis in range(input.ndim) if axis not in given])
    places = dict(zip(wanted, given, strict=True))
    return permute(input, [places[axis] if axis in places else next(rest) for axis in range(input.ndim)])


moveaxis = movedim


def resolve_conj(input: Tensor) -> Tensor:
    """The tensor itself, which has no lazy conjugate."""
    check_tensor("resolve_conj", input)
    return input


def resolve_neg(input: Tensor) -> Tensor:
    """The tensor itself, which has no lazy sign."""
    check_tensor("resolve_neg", input)
    return input


# -- shapes ------------------------------------------------------------------------------------------------------


def ravel(input: Tensor) -> Tensor:
    """All elements along one axis."""
    check_tensor("ravel", input)
    return reshape(input, (input.numel(),))


def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """One axis made into several; one of their lengths may be -1."""
    check_tensor("unflatten", input)
    axis = one_axis("unflatten", dim, input.ndim)
    if not isinstance(sizes, (tuple, list)) or not sizes:
        raise ShapeError(f"[unflatten] expected sizes as a sequence of ints, got {described(sizes)}")
    known = shape_of("unflatten", [n for n in sizes if n != -1])
    count = math.prod(known)
    unknown = input.shape[axis] // count if count else 0
    if len(sizes) - len(known) > 1 or count * (unknown if len(known) < len(sizes) else 1) != input.shape[axis]:
        raise ShapeError(f"[unflatten] expected sizes that multiply to {input.shape[axis]}, got {described(sizes)}")
    wanted = [unknown if n == -1 else n for n in sizes]
    return reshape(input, (*input.shape[:axis], *wanted, *input.shape[axis + 1 :]))


def broadcast_shapes(*shapes: Any) -> Shape:
    """The shape that shapes (or lengths of one axis) broadcast to."""
    given = [shape_of("broadcast_shapes", s if isinstance(s, (tuple, list)) else (s,)) for s in shapes]
    return arguments.broadcast_shapes("broadcast_shapes", given) if given else ()


def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """Tensors repeated to the shape that they broadcast to; views."""
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    check_tensor("broadcast_tensors", *given)
    shape = arguments.broadcast_shapes("broadcast_tensors", [x.shape for x in given]) if given else ()
    return tuple([broadcast_to(x, shape) for x in given])


# -- parts along an axis -----------------------------------------------------------------------------------------


def select(input: Tensor, dim: int, index: int) -> Tensor:
    """The entry along an axis, without it; a view."""
    check_tensor("select", input)
    axis = one_axis("select", dim, input.ndim)
    index = whole("select", "index", index.item() if isinstance(index, Tensor) else index)
    return getitem(input, (slice(None),) * axis + (index,))


def narrow(input: Tensor, dim: int, start: Any, length: int) -> Tensor:
    """So many entries along an axis, from ``start`` on; a view."""
    check_tensor("narrow", input)
    axis = one_axis("narrow", dim, input.ndim)
    size = input.shape[axis]
    first = whole("narrow", "start", start.item() if isinstance(start, Tensor) else start, -size, size)
    first = first + size if first < 0 else first
    length = whole("narrow", "length", length, 0, size - first)
    return getitem(input, (slice(None),) * axis + (slice(first, first + length),))


def narrow_copy(input: Tensor, dim: int, start: Any, length: int) -> Tensor:
    """``narrow`` as a copy."""
    return clone(narrow(input, dim, start, length))


def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """All entries along an axis, without it; views."""
    check_tensor("unbind", input)
    axis = one_axis("unbind", dim, input.ndim)
    return tuple([squeeze(piece, axis) for piece in split(input, 1, axis)]) if input.shape[axis] else ()


def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """``split`` by a list of sizes."""
    check_tensor("split_with_sizes", input)
    return split(input, listed("split_with_sizes", "split_sizes", split_sizes), dim)


def unsafe_split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """``split_with_sizes``, which is as safe."""
    return split_with_sizes(input, split_sizes, dim)


def tensor_split(input: Tensor, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """So many pieces, the first ones longer by one if need be, or pieces that begin at indices; views."""
    return _split_at("tensor_split", input, indices_or_sections, dim)


def _split_at(name: str, x: Tensor, where: Any, dim: int) -> tuple[Tensor, ...]:
    check_tensor(name, x)
    axis = one_axis(name, dim, x.ndim)
    length = x.shape[axis]
    if isinstance(where, Tensor):
        check_room(where.engine, where.shape, where.dtype)
        where = where.tolist()
    if isinstance(where, (tuple, list)):
        edges = [0, *[slice(whole(name, "an index", i)).indices(length)[1] for i in where], length]
    else:
        count = whole(name, "sections", where, 1)
        size, longer = divmod(length, count)
        edges = [size * k + min(k, longer) for k in range(count + 1)]
    return tuple([narrow(x, axis, a, max(b - a, 0)) for a, b in pairwise(edges)])


def hsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """``tensor_split`` into equal pieces or at indices, along the second axis, a vector along its only one."""
    check_tensor("hsplit", input)
    return _split_evenly("hsplit", input, indices_or_sections, 0 if input.ndim == 1 else 1, 1)


def vsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """``tensor_split`` into equal pieces or at indices, along the first axis of at least two."""
    check_tensor("vsplit", input)
    return _split_evenly("vsplit", input, indices_or_sections, 0, 2)


def dsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """``tensor_split`` into equal pieces or at indices, along the third axis."""
    check_tensor("dsplit", input)
    return _split_evenly("dsplit", input, indices_or_sections, 2, 3)


def _split_evenly(name: str, x: Tensor, where: Any, axis: int, least: int) -> tuple[Tensor, ...]:
    if x.ndim < least:
        raise ShapeError(f"[{name}] expected at least {least} axes, got shape {x.shape}")
    if not isinstance(where, (tuple, list, Tensor)) and x.shape[axis] % whole(name, "sections", where, 1):
        raise ArgumentError(f"[{name}] expected sections that divide {x.shape[axis]}, got {where}: use tensor_split")
    return _split_at(name, x, where, axis)


# -- any strides -------------------------------------------------------------------------------------------------

Layout = tuple[int, Shape, Shape]
"""A view's offset, shape and strides."""


class Strided(Function):
    """A view by strides; the gradients of elements that are seen several times add up."""

    views = True

    def forward(self, x: Tensor, offset: int, shape: Shape, strides: Shape) -> Tensor:
        self.given, self.seen = (x.offset, x.shape, x.strides), (offset, shape, strides)
        return x.strided(offset, shape, strides)

    def backward(self, grad: Tensor) -> Tensor:
        if not (_sees_each_once(*self.given[1:]) and _sees_each_once(*self.seen[1:])):
            return self.backward_in_graph(grad)
        first, count = _extent(self.given, self.seen)
        memory = grad.engine.full((count,), 0, grad.dtype)
        offset, shape, strides = self.seen
        if 0 not in shape:
            grad.engine.copy(grad, memory.strided(offset - first, shape, strides))
        offset, shape, strides = self.given
        return memory.strided(offset - first if 0 not in shape else 0, shape, strides)

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        """By tables of places: where elements are seen several times, and as functions that have gradients."""
        from alpha.functions.scattering import (
            index_put,  # here: it imports lookups, which this module must not wait for
        )

        engine, (first, count) = grad.engine, _extent(self.given, self.seen)
        given: Layout = (self.given[0] - first, *self.given[1:])
        seen: Layout = (self.seen[0] - first, *self.seen[1:])
        memory = engine.full((count,), 0, grad.dtype)
        places = engine.constant(("places", *seen), lambda: _places(*seen))
        memory = index_put(memory, (reshape(places, (-1,)),), reshape(grad, (-1,)), True)
        found = getitem(memory, engine.constant(("places", *given), lambda: _places(*given)))
        if not _sees_each_once(*given[1:]):  # they share their gradient
            shares = engine.constant(("shares", *given, grad.dtype), lambda: _shares(*given).astype(grad.dtype))
            found = found / shares
        return found


def _extent(*layouts: Layout) -> tuple[int, int]:
    """Where the memory of some views begins, and how many elements it has up to their last one."""
    spans = [
        (offset, offset + sum([stride * (n - 1) for stride, n in zip(strides, shape, strict=True)]))
        for offset, shape, strides in layouts
        if 0 not in shape
    ]
    first = min((low for low, _ in spans), default=0)
    return first, max((high for _, high in spans), default=first - 1) + 1 - first


def _sees_each_once(shape: Shape, strides: Shape) -> bool:
    """Whether surely no two elements lie in one place: each axis steps over all that the ones of smaller steps see."""
    behind = 1
    for stride, n in sorted([(stride, n) for stride, n in zip(strides, shape, strict=True) if n > 1]):
        if stride < behind:
            return False
        behind += stride * (n - 1)
    return True


def _shares(offset: int, shape: Shape, strides: Shape) -> np.ndarray[Any, Any]:
    """For each element of a view how many there are in its place."""
    places = _places(offset, shape, strides)
    found: np.ndarray[Any, Any] = np.bincount(places.reshape(-1))[places]
    return found


def _places(offset: int, shape: Shape, strides: Shape) -> np.ndarray[Any, Any]:
    """The place of each element of a view in its memory."""
    places = np.full(shape, offset, np.int64)
    for axis, (n, stride) in enumerate(zip(shape, strides, strict=True)):
        places += (np.arange(n) * stride).reshape([-1 if a == axis else 1 for a in range(len(shape))])
    return places


def as_strided(input: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """A view of input's memory: element i, j, ... is at ``storage_offset`` + i * stride[0] + j * stride[1] + ..."""
    check_tensor("as_strided", input)
    shape = shape_of("as_strided", tuple(size) if isinstance(size, (tuple, list)) else (size,))
    strides = shape_of("as_strided", tuple(stride) if isinstance(stride, (tuple, list)) else (stride,))
    offset = input.offset if storage_offset is None else whole("as_strided", "storage_offset", storage_offset, 0)
    if len(shape) != len(strides) or not is_within(input.storage, input.dtype, offset, shape, strides):
        raise ShapeError(
            f"[as_strided] expected a size and strides within {input.storage.nbytes // input.itemsize} elements of "
            f"memory, got {shape}, {strides} and offset {offset}"
        )
    return call(Strided, input, offset, shape, strides)


def windows(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """The windows of so many elements along an axis, each ``step`` behind the one before; a view.

    Their elements are a new last axis. As PyTorch's ``Tensor.unfold``.
    """
    check_tensor("unfold", input)
    if not input.shape:
        input = reshape(input, (1,))
        return expand(input, (1,)) if one_axis("unfold", dimension, 1) == 0 and size == 1 else narrow(input, 0, 0, size)
    axis = one_axis("unfold", dimension, input.ndim)
    size = whole("unfold", "size", size, 0, input.shape[axis])
    step = whole("unfold", "step", step, 1)
    shape = (*input.shape[:axis], (input.shape[axis] - size) // step + 1, *input.shape[axis + 1 :], size)
    strides = (*input.strides[:axis], input.strides[axis] * step, *input.strides[axis + 1 :], input.strides[axis])
    return call(Strided, input, input.offset, shape, strides)
