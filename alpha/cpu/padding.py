"""The CPU engine's padding: a list of copies, one for each part of the result that lies as x does."""

from __future__ import annotations

import itertools
import math
import struct
import sys
from typing import NamedTuple

import numpy as np

from alpha import caches
from alpha.arguments import Shape
from alpha.composed import padding
from alpha.cpu.base import HostEngine
from alpha.cpu.copies import Copy, Plan, plan, sums
from alpha.cpu.kernels import copies as kernels
from alpha.cpu.launches import call_of, constant, learn, of_result, of_tensor
from alpha.engine import Scalar
from alpha.launches import PAD
from alpha.tensor import Tensor, dense_strides, memory_order

MOST_AXES = 4
"""Most axes that are padded in one call: each has up to three parts, the result all combinations of them."""

NUMBER = -3
"""The word of a job, negated, that holds the number which is filled in."""


class PaddingOperations(HostEngine):
    """Padding of numbers of up to 8 bytes; its gradient of float32 and float64."""

    def pad(self, x: Tensor, before: Shape, after: Shape, mode: str, value: Scalar) -> Tensor:
        found: Tensor | None = PAD.launch(x, before, after, mode, value)
        if found is not None:
            return found
        item = x.dtype.itemsize
        if item > 8 or sum([a + b > 0 for a, b in zip(before, after, strict=True)]) > MOST_AXES:
            return padding.pad(self, x, before, after, mode, value)
        wanted = _padding(x.shape, x.strides, before, after, mode, item)
        copies = wanted.copies
        out = Tensor(self.allocate(wanted.nbytes), 0, wanted.shape, wanted.strides, x.dtype)
        if copies.tasks:
            number = (np.asarray(value, x.dtype).tobytes() if mode == "constant" else b"").ljust(8, b"\0")
            job = _JOB(copies.address, out.storage.address, x.storage.address + x.offset * item)
            kernels.copy.run(job + number, copies.tasks, self.threads)
            words = (
                constant(copies.address), of_result(), of_tensor(0),
                constant(int.from_bytes(number, sys.byteorder, signed=True)),
            )  # fmt: skip
            elements = math.prod(wanted.shape)
            learn(
                PAD, self, lambda: call_of(kernels.copy, words, (out,), elements, copies.tasks, copies),
                x, before, after, mode, value,
            )  # fmt: skip
        return out

    def pad_grad(self, dy: Tensor, before: Shape, after: Shape, mode: str) -> Tensor:
        item = dy.dtype.itemsize
        if item not in kernels.add or sum([a + b > 0 for a, b in zip(before, after, strict=True)]) > MOST_AXES:
            return padding.pad_grad(self, dy, before, after, mode)
        found = _folding(dy.shape, dy.strides, before, after, mode, item)
        out = Tensor(self.allocate(found.nbytes), 0, found.shape, found.strides, dy.dtype)
        places = out.storage.address, dy.storage.address + dy.offset * item
        if found.copies.tasks:
            kernels.copy.run(_JOB(found.copies.address, *places), found.copies.tasks, self.threads)
        if found.sums is not None and found.sums.tasks:  # by one thread: what is added may meet
            kernels.add[item].run(_JOB(found.sums.address, *places), 1, 1)
        return out


_JOB = struct.Struct("3q").pack


class Padding(NamedTuple):
    """The result's shape, strides and bytes, what is copied, and what is added then."""

    shape: Shape
    strides: Shape
    nbytes: int
    copies: Plan
    sums: Plan | None = None


class Part(NamedTuple):
    """A part of a padded axis: where it begins, its length, and x's elements: the first, and the step to the next."""

    start: int
    length: int
    first: int
    step: int


def _parts(length: int, before: int, after: int, mode: str) -> list[Part]:
    """The axis' own part, then those before and behind it, of elements that a mode chooses."""
    starts = {"reflect": (before, length - 2, -1), "replicate": (0, length - 1, 0), "circular": (length - before, 0, 1)}
    low, high, step = starts[mode]
    around = [Part(0, before, low, step), Part(before + length, after, high, step)]
    return [Part(before, length, 0, 1), *[part for part in around if part.length]]


@caches.kept
def _padding(shape: Shape, strides: Shape, before: Shape, after: Shape, mode: str, item: int) -> Padding:
    whole = tuple([n + a + b for n, a, b in zip(shape, before, after, strict=True)])
    steps = dense_strides(whole, memory_order(shape, strides))
    if mode == "constant":
        copies = _around(shape, strides, before, after, steps)
    else:
        copies = [_copy(parts, strides, steps) for parts in _combined(shape, before, after, mode)]
    return Padding(whole, steps, math.prod(whole) * item, plan(copies, item))


@caches.kept
def _folding(shape: Shape, strides: Shape, before: Shape, after: Shape, mode: str, item: int) -> Padding:
    """The gradient: the parts are read where they were written, and written where they were read."""
    inner = tuple([n - a - b for n, a, b in zip(shape, before, after, strict=True)])
    steps = dense_strides(inner, memory_order(shape, strides))
    copies = []
    for parts in _combined(inner, before, after, mode):
        there = _copy(parts, steps, strides)
        copies.append(
            Copy(2, there.shape, there.target_offset, there.target_strides, there.source_offset, there.source_strides)
        )
    return Padding(inner, steps, math.prod(inner) * item, plan(copies[:1], item), sums(copies[1:], item))


def _combined(shape: Shape, before: Shape, after: Shape, mode: str) -> list[tuple[Part, ...]]:
    """A part of each axis, in all combinations; x itself is the first."""
    return list(itertools.product(*[_parts(*axis, mode) for axis in zip(shape, before, after, strict=True)]))


def _copy(parts: tuple[Part, ...], source: Shape, target: Shape) -> Copy:
    """What fills the parts of the axes, by the strides of x and of the result."""
    return Copy(
        2,
        tuple([part.length for part in parts]),
        sum([part.first * stride for part, stride in zip(parts, source, strict=True)]),
        tuple([part.step * stride for part, stride in zip(parts, source, strict=True)]),
        sum([part.start * stride for part, stride in zip(parts, target, strict=True)]),
        target,
    )


def _around(shape: Shape, strides: Shape, before: Shape, after: Shape, steps: Shape) -> list[Copy]:
    """x inside the result, and the number before and behind each axis: of earlier ones only where x is."""
    ndim = len(shape)
    inside = [Part(b, n, 0, 1) for n, b in zip(shape, before, strict=True)]
    found = [_copy(tuple(inside), strides, steps)]
    for axis, (n, low, high) in enumerate(zip(shape, before, after, strict=True)):
        later = [Part(0, shape[a] + before[a] + after[a], 0, 0) for a in range(axis + 1, ndim)]
        for part in (Part(0, low, 0, 0), Part(low + n, high, 0, 0)):
            copy = _copy((*inside[:axis], part, *later), (0,) * ndim, steps)
            found.append(copy._replace(source=NUMBER))
    return found
