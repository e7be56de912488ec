"""Pieces of a tensor along an axis: views."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, groupby
from typing import Any

import numpy as np

from alpha import caches
from alpha.arguments import Shape, one_axis
from alpha.autograd import Function, enters_graph, views_of
from alpha.composed import arrays
from alpha.errors import ArgumentError, ShapeError, described
from alpha.functions.operands import broadcast_view, check_tensor
from alpha.tensor import Tensor

__all__ = ["chunk", "split", "unsafe_chunk", "unsafe_split"]

MOST_PIECES = 1 << 20
"""Most pieces that a tensor is split into: each is an object of its own."""


class Split(Function):
    """Pieces along an axis."""

    views = True

    def forward(self, x: Tensor, sizes: Shape, axis: int) -> tuple[Tensor, ...]:
        self.sizes, self.axis, self.like = sizes, axis, x.strided(0, x.shape, x.strides).memory_order()
        return cut_along(x, sizes, axis)

    def backward(self, *grads: Tensor | None) -> Tensor:
        some = next(grad for grad in grads if grad is not None)
        zero = arrays.filled(some.engine, (), 0, some.dtype) if None in grads else some
        before, after = some.shape[: self.axis], some.shape[self.axis + 1 :]
        pieces: list[Tensor] = []
        for is_none, run in groupby(zip(grads, self.sizes, strict=True), lambda pair: pair[0] is None):
            if is_none:  # neighbours without a gradient are one piece of zeros
                pieces.append(broadcast_view(zero, (*before, sum([size for _, size in run]), *after)))
            else:
                pieces += [grad for grad, _ in run if grad is not None]
        return some.engine.concat(pieces, self.axis, self.like)

    def backward_in_graph(self, *grads: Tensor | None) -> Tensor:
        from alpha.functions.joining import concat  # here: it imports this module

        some = next(grad for grad in grads if grad is not None)
        before, after = some.shape[: self.axis], some.shape[self.axis + 1 :]
        pieces = [
            arrays.filled(some.engine, (*before, size, *after), 0, some.dtype) if grad is None else grad
            for grad, size in zip(grads, self.sizes, strict=True)
        ]
        return concat(pieces, self.axis)

    fresh = True


def cut_along(x: Tensor, sizes: Shape, axis: int) -> tuple[Tensor, ...]:
    """Views of consecutive pieces."""
    storage, strides, dtype = x.storage, x.strides, x.dtype
    places = _places(x.shape, strides, sizes, axis)
    return tuple([Tensor(storage, x.offset + start, shape, strides, dtype) for start, shape in places])


@caches.kept
def _places(shape: Shape, strides: Shape, sizes: Shape, axis: int) -> list[tuple[int, Shape]]:
    """Where pieces of these sizes along an axis begin, and their shapes."""
    starts = accumulate(sizes, initial=0)
    return [
        (start * strides[axis], (*shape[:axis], size, *shape[axis + 1 :]))
        for start, size in zip(starts, sizes, strict=False)
    ]


def split(
    tensor: Tensor,
    split_size_or_sections: int | Sequence[int] | None = None,
    dim: int = 0,
    *,
    split_size: int | Sequence[int] | None = None,
) -> tuple[Tensor, ...]:
    """Pieces of a size (the last may be smaller), or of the sizes in a list, along an axis; views.

    ``split_size``: the method's name for the second argument.
    """
    if split_size is not None:
        if split_size_or_sections is not None:
            raise ArgumentError("[split] expected one of split_size and split_size_or_sections, got both")
        split_size_or_sections = split_size
    if not isinstance(tensor, Tensor):
        check_tensor("split", tensor)
    axis = one_axis("split", dim, len(tensor.shape))
    length = tensor.shape[axis]
    if type(split_size_or_sections) is int and split_size_or_sections > 0:
        sizes = _equal_sizes(length, split_size_or_sections)
    elif isinstance(split_size_or_sections, (tuple, list)):
        sizes = _sizes_given(tuple(split_size_or_sections), tensor.shape, length)
    elif (
        isinstance(split_size_or_sections, bool)
        or not isinstance(split_size_or_sections, (int, np.integer))
        or split_size_or_sections < 1
    ):
        raise ArgumentError(f"[split] expected a size >= 1 or a list of sizes, got {described(split_size_or_sections)}")
    else:
        sizes = _equal_sizes(length, int(split_size_or_sections))
    return _pieces(tensor, sizes, axis)


def _sizes_given(sizes: tuple[Any, ...], shape: Shape, length: int) -> Shape:
    """The sizes that a list holds; ShapeError unless they are the parts of a length."""
    for n in sizes:
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 0:
            raise ShapeError(f"[split] expected sizes as ints >= 0, got {described(list(sizes))}")
    if sum(sizes) != length or not sizes:
        raise ShapeError(f"[split] expected sizes that add up to {length}, got {described(sizes)} for shape {shape}")
    return tuple([int(n) for n in sizes])


@caches.kept
def _equal_sizes(length: int, size: int) -> Shape:
    """Sizes of the pieces of a length, all equal but for the last, which may be smaller."""
    if length // size > MOST_PIECES:
        raise ArgumentError(f"[split] expected at most {MOST_PIECES} pieces, got {size} of {length}: use a larger size")
    whole, rest = divmod(length, size)
    return (size,) * whole + ((rest,) if rest or not whole else ())


def _pieces(x: Tensor, sizes: Shape, axis: int) -> tuple[Tensor, ...]:
    """Views of consecutive pieces along an axis, in the graph where the tensor is."""
    if (x.requires_grad or x._base is not None) and enters_graph(x):
        pieces: tuple[Tensor, ...] = Split.apply(x, sizes, axis)
        return pieces
    return views_of(x, _places(x.shape, x.strides, sizes, axis), x.strides)


def unsafe_split(tensor: Tensor, split_size: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """``split``, which is as safe: in-place writes to pieces and to the tensor follow each other in the graph."""
    return split(tensor, split_size, dim)


def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """``chunk``, which is as safe."""
    return chunk(input, chunks, dim)


def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most ``chunks`` pieces of equal length (the last may be smaller) along an axis; views."""
    if not isinstance(input, Tensor):
        check_tensor("chunk", input)
    if type(chunks) is not int or chunks < 1:
        if isinstance(chunks, bool) or not isinstance(chunks, (int, np.integer)) or chunks < 1:
            raise ArgumentError(f"[chunk] expected a number of pieces >= 1, got {described(chunks)}")
        chunks = int(chunks)
    axis = one_axis("chunk", dim, len(input.shape))
    length = input.shape[axis]
    if length:
        return _pieces(input, _equal_sizes(length, -(-length // chunks)), axis)
    if chunks > MOST_PIECES:
        raise ArgumentError(f"[chunk] expected at most {MOST_PIECES} pieces, got {described(chunks)}: use fewer")
    return _pieces(input, (0,) * chunks, axis)  # as many as asked for, of nothing
