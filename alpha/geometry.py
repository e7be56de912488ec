"""C-K-S as index arithmetic: sizes, trims, splits, leaps and useful FLOPs of a convolution, in integers alone.

A convolution along one axis is a relation between three indices,

    i = o * stride + f * dilation - padding,        0 <= i < I, 0 <= o < O, 0 <= f < F,

of input position i, output position o and filter tap f. Its members are exactly the products that do not involve a
zero of padding or of dilation, and the three operators of C-K-S are three ways to group it:

==============  ===========================================  ==========================================
grouped by      operator                                     what the grouping leaves out
==============  ===========================================  ==========================================
output ``o``    ConvV2: convolution, filter trimmed          zeros of the padding
input ``i``     KS-deconv-V2: deconvolution, filter split    zeros between the elements of dY, and around
                into stride kernels, each trimmed
tap ``f``       Sk-dilated-V2: dilated convolution, leaping  zeros in the dilated dY, and of the padding
==============  ===========================================  ==========================================

Axes are independent, so the pairs of a 2-D problem are the product of its axes' pairs, and those of a 3-D one too: its
depths are grouped by tap as well, within the ``parts`` of the split, so that each is a 2-D problem over many images.
Source: Zhang et al., "Reduce Computational Complexity for Convolutional Layers by Skipping Zeros", arXiv 2306.15951.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from alpha.errors import ArgumentError, ShapeError

Array = np.ndarray[Any, Any]

Side = int | tuple[int, int]
"""Padding of an axis: at each end, or (before, behind)."""

Groups = tuple[tuple[tuple[int, int], ...], ...]
"""For each index of the grouping axis, the pairs of the two other indices that meet there."""

LARGEST = 2**31 - 1
"""The largest filter size, stride, padding and dilation: products of two of them fit into 64 bits."""


LONGEST = 1 << 14
"""Most positions along an axis that a table is made for at once."""

POSITIONS = 1 << 18
"""Most positions of two axes that tables are made for at once."""


@dataclass(frozen=True)
class Pairs:
    """A grouping as arithmetic: group g is the pairs (first[g] + k * step, other[g] + k * other_step), k < count[g].

    The steps are the same for all groups. A group without pairs has a first and other of 0. What is kept is so small
    as the axis is long, however many taps the filter has.
    """

    count: Array
    first: Array
    other: Array
    step: int
    other_step: int

    @property
    def last(self) -> Array:
        """The first index of each group's last pair; 0 where there is none."""
        last: Array = self.first + np.maximum(self.count - 1, 0) * self.step
        return last


class Band(NamedTuple):
    """A part of an axis: output positions and inputs that meet there alone, and the axis that they make."""

    outputs: range
    inputs: range
    axis: Axis


@dataclass(frozen=True)
class Stretches:
    """Groups with the same taps, ``step`` indices apart, as far as they go: in the order of their first index.

    ``source_step``: from a group's first pair to that of the next one.
    """

    index: Array
    number: Array
    step: Array
    source_step: Array


class Run(NamedTuple):
    """A tap with the output positions and a part's inputs that meet under it, one by one."""

    tap: int
    outputs: range
    inputs: range


class Part(NamedTuple):
    """The inputs of one remainder of the stride, with what meets them: counted in it, a convolution of stride 1.

    Those of its taps are one sub-kernel of KS-deconv-V2's split; their runs come with the longest first.
    """

    inputs: range
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Axis:
    """One axis of a convolution: sizes of input and filter, stride, padding (low, high) and dilation.

    A transposed convolution gives its result's side as ``input``, with its output padding taken from the high padding,
    which may so become negative: the last inputs are then beyond every filter.
    """

    input: int
    filter: int
    stride: int = 1
    padding: tuple[int, int] = (0, 0)
    dilation: int = 1

    def __post_init__(self) -> None:
        self._cut()
        if min(self.input, self.filter, self.stride, self.dilation) < 1 or self.padding[0] < 0:
            raise ArgumentError(
                f"[geometry] expected sizes, stride and dilation >= 1 and low padding >= 0, got input {self.input}, "
                f"filter {self.filter}, stride {self.stride}, padding {self.padding}, dilation {self.dilation}"
            )
        if self.output < 1:
            raise ShapeError(
                f"[geometry] expected a filter that fits its input, got a filter of extent {self.extent} over "
                f"{self.input} elements padded by {self.padding}: use a smaller filter or dilation, or more padding"
            )
        if max(self.filter, self.stride, *self.padding, self.dilation) > LARGEST:
            raise ArgumentError(
                f"[geometry] expected filter, stride, padding and dilation of at most {LARGEST}, got filter "
                f"{self.filter}, stride {self.stride}, padding {self.padding}, dilation {self.dilation}: use less"
            )

    def _cut(self) -> None:
        """A stride beyond all outputs but one, and a dilation of a single tap, mean nothing: they need not be large."""
        if self.dilation > LARGEST and self.filter == 1:
            object.__setattr__(self, "dilation", LARGEST)
        if self.stride > LARGEST and 0 <= self.input + sum(self.padding) - self.extent < LARGEST:
            object.__setattr__(self, "stride", LARGEST)

    @property
    def extent(self) -> int:
        """Elements from the filter's first tap to its last, both included."""
        return (self.filter - 1) * self.dilation + 1

    @cached_property
    def output(self) -> int:
        """Number of output positions."""
        return (self.input + sum(self.padding) - self.extent) // self.stride + 1

    def source(self, output: int, tap: int) -> int:
        """The input index under a tap at an output position; outside 0..input-1 it lies in the padding."""
        return output * self.stride + tap * self.dilation - self.padding[0]

    def trim(self, output: int) -> range:
        """The taps at an output position that lie inside the input: always one run (ConvV2's trim)."""
        start = self.source(output, 0)
        first = max(0, -(start // self.dilation))
        last = min(self.filter - 1, (self.input - 1 - start) // self.dilation)
        return range(first, max(first, last + 1))

    def split(self, input: int) -> range:
        """The taps that reach an input index from an output index inside the grid (KS-deconv's sub-kernel, trimmed).

        Taps reach an input only from positions a whole stride apart: the sub-kernel of the residue
        (input + padding) mod stride, whose taps lie stride / gcd(stride, dilation) apart.
        """
        shifted = input + self.padding[0]
        taps = [f for f in range(self.filter) if (shifted - f * self.dilation) % self.stride == 0]
        inside = [f for f in taps if 0 <= (shifted - f * self.dilation) // self.stride < self.output]
        if not inside:
            return range(0)
        step = inside[1] - inside[0] if len(inside) > 1 else 1
        return range(inside[0], inside[-1] + 1, step)

    def leap(self, tap: int) -> range:
        """The output positions at which a tap lies inside the input: one run (Sk-dilated's trimmed, leaping access)."""
        start = self.source(0, tap)
        first = max(0, -(start // self.stride))
        last = min(self.output - 1, (self.input - 1 - start) // self.stride)
        return range(first, max(first, last + 1))

    # -- groups, pair by pair: the definitions, for reading and for tests ------------------------------------------

    @property
    def by_output(self) -> Groups:
        """For each output position its pairs (input index, tap)."""
        return tuple(tuple((self.source(o, f), f) for f in self.trim(o)) for o in range(self.output))

    @property
    def by_input(self) -> Groups:
        """For each input index its pairs (output position, tap)."""
        shift = self.padding[0]
        return tuple(
            tuple(((i + shift - f * self.dilation) // self.stride, f) for f in self.split(i)) for i in range(self.input)
        )

    @property
    def by_tap(self) -> Groups:
        """For each tap its pairs (input index, output position)."""
        return tuple(tuple((self.source(o, f), o) for o in self.leap(f)) for f in range(self.filter))

    # -- the same as arithmetic, for the engines' tables -----------------------------------------------------------

    @property
    def pairs_by_output(self) -> Pairs:
        """``by_output`` as arithmetic: (input index, tap)."""
        return self.outputs_from(0, self.output)

    def outputs_from(self, first_output: int, stop: int) -> Pairs:
        """``pairs_by_output`` for some outputs."""
        start = np.arange(first_output, stop, dtype=np.int64) * self.stride - self.padding[0]
        first = np.maximum(0, -(start // self.dilation))
        last = np.minimum(self.filter - 1, (self.input - 1 - start) // self.dilation)
        return _pairs(first, last, start, self.dilation, 0, 1)

    @property
    def pairs_by_input(self) -> Pairs:
        """``by_input`` as arithmetic: (output position, tap).

        The taps of an input are those with tap * dilation = input + padding modulo the stride: every so many from the
        first one, which the inverse of the dilation gives.
        """
        return self.inputs_from(0, self.input)

    def inputs_from(self, first_input: int, stop: int) -> Pairs:
        """``pairs_by_input`` for some inputs."""
        # One output is the only one at any stride beyond the last input.
        stride = self.stride if self.output > 1 else min(self.stride, self.input + self.padding[0])
        common = math.gcd(stride, self.dilation)
        period, back = stride // common, self.dilation // common
        inverse = pow(back, -1, period) if period > 1 else 0
        place = np.arange(first_input, stop, dtype=np.int64) + self.padding[0]
        rest = place % stride
        tap = rest // common * inverse % period
        met = (rest % common == 0) & (tap < self.filter)
        tap = np.where(met, tap, 0)
        output = (place - tap * self.dilation) // stride
        first = np.maximum(0, -((self.output - 1 - output) // back))
        last = np.minimum((self.filter - 1 - tap) // period, output // back)
        return _pairs(first, np.where(met, last, -1), output, -back, tap, period)

    @property
    def pairs_by_tap(self) -> Pairs:
        """``by_tap`` as arithmetic: (input index, output position)."""
        return self._leaps(0, self.filter)

    def _leaps(self, tap: int, stop: int) -> Pairs:
        """``pairs_by_tap`` of the taps tap..stop-1."""
        start = np.arange(tap, stop, dtype=np.int64) * self.dilation - self.padding[0]
        first = np.maximum(0, -(start // self.stride))
        last = np.minimum(self.output - 1, (self.input - 1 - start) // self.stride)
        return _pairs(first, last, start, self.stride, 0, 1)

    # -- parts of an axis ------------------------------------------------------------------------------------------

    def band_of_outputs(self, first: int, stop: int) -> Band | None:
        """The band of outputs first..stop-1 and the inputs that they read; None where no window reaches the input."""
        start = self.source(first, 0)
        low, high = max(0, start), min(self.input, self.source(stop - 1, self.filter - 1) + 1)
        if high <= low:
            return None
        return self._band(range(first, stop), range(low, high), low - start)

    def band_of_inputs(self, first: int, stop: int) -> Band | None:
        """The band of inputs first..stop-1 and all outputs that read them; None where there are none."""
        shift = self.padding[0]
        behind = first + shift - (self.extent - 1)
        high = min(self.output, (stop - 1 + shift) // self.stride + 1)
        if high <= max(0, -(-behind // self.stride)):
            return None
        low = max(0, behind // self.stride)  # an output earlier, perhaps, so that no padding is negative
        return self._band(range(low, high), range(first, stop), first + shift - self.stride * low)

    def _band(self, outputs: range, inputs: range, padding: int) -> Band:
        after = (len(outputs) - 1) * self.stride + self.extent - len(inputs) - padding
        return Band(outputs, inputs, Axis(len(inputs), self.filter, self.stride, (padding, after), self.dilation))

    @property
    def met_outputs(self) -> range:
        """The outputs from the first to the last whose window reaches into the input."""
        first = max(0, -((self.extent - 1 - self.padding[0]) // self.stride))
        stop = min(self.output, (self.input - 1 + self.padding[0]) // self.stride + 1)
        return range(first, max(first, stop))

    @property
    def met_inputs(self) -> range:
        """The inputs up to the last that an output's window reaches."""
        return range(max(0, min(self.input, self.source(self.output - 1, self.filter - 1) + 1)))

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The inputs by their remainder of the stride, that with the longest run first."""
        runs: dict[int, list[Run]] = {remainder: [] for remainder in range(min(self.stride, self.input))}
        for tap in range(self.filter):
            outputs = self.leap(tap)
            if outputs:
                first, remainder = divmod(self.source(outputs[0], tap), self.stride)
                runs[remainder].append(Run(tap, outputs, range(first, first + len(outputs))))
        parts = [
            Part(range(remainder, self.input, self.stride), tuple(sorted(found, key=lambda run: -len(run.outputs))))
            for remainder, found in runs.items()
        ]
        return tuple(sorted(parts, key=lambda part: -max((len(run.outputs) for run in part.runs), default=0)))

    @cached_property
    def reaching(self) -> range:
        """The taps from the first to the last that reach the input anywhere; all of them where none does.

        A first one that the low padding does not bring to the input, but the stride, keeps those before it.
        """
        low = max(0, -(((self.output - 1) * self.stride - self.padding[0]) // self.dilation))
        stop = min(self.filter, (self.input - 1 + self.padding[0]) // self.dilation + 1)
        found = np.flatnonzero(self._leaps(low, max(low, stop)).count)
        first, last = (low + int(found[0]), low + int(found[-1])) if found.size else (0, self.filter - 1)
        return range(min(first, self.padding[0] // self.dilation), last + 1)

    @cached_property
    def reached(self) -> Axis:
        """The axis with only the taps of ``reaching``: the same products."""
        taps = self.reaching
        if len(taps) == self.filter:
            return self
        low, high = (cut * self.dilation for cut in (taps.start, self.filter - taps.stop))
        padding = (self.padding[0] - low, self.padding[1] - high)
        return Axis(self.input, len(taps), self.stride, padding, self.dilation)

    @cached_property
    def useful(self) -> int:
        """Number of (output, tap) pairs inside the input: what an algorithm without zeros multiplies."""
        return int(self.pairs_by_tap.count.sum())

    @property
    def nominal(self) -> int:
        """Number of (output, tap) pairs with the padding's: what a plain algorithm multiplies."""
        return self.output * self.filter


def _pairs(first: Array, last: Array, start: Array, step: int, tap: Array | int, tap_step: int) -> Pairs:
    """Groups of the pairs number first..last of (start + k * step, tap + k * tap_step)."""
    count = np.maximum(0, last - first + 1)
    some = count > 0
    return Pairs(
        count, np.where(some, start + first * step, 0), np.where(some, tap + first * tap_step, 0), step, tap_step
    )


def stretches(pairs: Pairs, step: int) -> Stretches:
    """The groups by output (``step`` 1) or by input (the stride) in stretches of the same taps."""
    size = len(pairs.count)
    index = np.arange(size, dtype=np.int64)
    # Groups with the same first tap and number of taps are one stretch; those without taps may be one per remainder.
    key = pairs.count * (int(pairs.other.max(initial=0)) + step + 1)
    key += np.where(pairs.count > 0, pairs.other, index % step)
    order = np.argsort(key, kind="stable")
    begins = np.ones(size, np.bool_)
    begins[1:] = (np.diff(key[order]) != 0) | (np.diff(order) != step)
    at = np.flatnonzero(begins)
    number = np.diff(np.append(at, size))
    first = order[at]
    inner = np.argsort(first, kind="stable")
    first, number = first[inner], number[inner]
    several = number > 1
    following = np.minimum(first + step, size - 1)
    moved = np.where(several, pairs.first[following] - pairs.first[first], 0)
    return Stretches(first, number, np.where(several, step, 0), moved)


@dataclass(frozen=True)
class Geometry:
    """A 2-D convolution's two axes."""

    rows: Axis
    columns: Axis

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Cached, since every call looks up plans by it."""
        return hash((self.rows, self.columns))

    @staticmethod
    @lru_cache(maxsize=1024)
    def make(
        size: tuple[int, ...],
        filter: tuple[int, ...],
        stride: tuple[int, ...] = (1, 1),
        padding: tuple[Side, ...] = (0, 0),
        dilation: tuple[int, ...] = (1, 1),
    ) -> Geometry:
        """From PyTorch's arguments, each (rows, columns): input size, filter, stride, padding, dilation."""
        return Geometry(*_axes(size, filter, stride, padding, dilation))

    @cached_property
    def output(self) -> tuple[int, int]:
        """(OH, OW)."""
        return self.rows.output, self.columns.output

    @cached_property
    def input(self) -> tuple[int, int]:
        """(IH, IW)."""
        return self.rows.input, self.columns.input

    @cached_property
    def filter(self) -> tuple[int, int]:
        """(FH, FW)."""
        return self.rows.filter, self.columns.filter

    @cached_property
    def long_output(self) -> bool:
        """Whether outputs are so many that engines compute them in parts."""
        return _is_long(*self.output)

    @cached_property
    def long_input(self) -> bool:
        """Whether inputs are so many that engines compute them in parts."""
        return _is_long(*self.input)

    @cached_property
    def reached(self) -> Geometry:
        """The geometry without the filter's outer rows and columns that never reach the input, or itself."""
        if self.rows.reached is self.rows and self.columns.reached is self.columns:
            return self
        return Geometry(self.rows.reached, self.columns.reached)

    @cached_property
    def pointwise(self) -> bool:
        """Whether each output position reads only the input position of the same index."""
        return all(axis.filter == axis.stride == 1 and axis.padding == (0, 0) for axis in (self.rows, self.columns))

    @property
    def useful(self) -> int:
        """Pairs of output position and tap inside the input."""
        return self.rows.useful * self.columns.useful

    @property
    def nominal(self) -> int:
        """Pairs of output position and tap, padding included."""
        return self.rows.nominal * self.columns.nominal

    def macs(self, batch: int, in_channels: int, out_channels: int, groups: int = 1) -> int:
        """Multiply-adds of any of the three operators when no zero is multiplied."""
        return self.useful * batch * in_channels * out_channels // groups


def _is_long(height: int, width: int) -> bool:
    return height > LONGEST or width > LONGEST or height * width > POSITIONS


@dataclass(frozen=True)
class VolumeGeometry:
    """A 3-D convolution's axes: that of depths, and those of the images at each."""

    depths: Axis
    images: Geometry

    @staticmethod
    @lru_cache(maxsize=1024)
    def make(
        size: tuple[int, ...],
        filter: tuple[int, ...],
        stride: tuple[int, ...],
        padding: tuple[Side, ...],
        dilation: tuple[int, ...],
    ) -> VolumeGeometry:
        """From PyTorch's arguments: (depths, rows, columns) of each, as ``Geometry.make`` has them."""
        depths, *others = _axes(size, filter, stride, padding, dilation)
        return VolumeGeometry(depths, Geometry(*others))

    @cached_property
    def output(self) -> tuple[int, int, int]:
        """(OD, OH, OW)."""
        return self.depths.output, *self.images.output

    @cached_property
    def input(self) -> tuple[int, int, int]:
        """(ID, IH, IW)."""
        return self.depths.input, *self.images.input

    def macs(self, batch: int, in_channels: int, out_channels: int, groups: int = 1) -> int:
        """Multiply-adds of any of the three operators when no zero is multiplied."""
        return self.depths.useful * self.images.macs(batch, in_channels, out_channels, groups)


def _axes(*arguments: tuple[Any, ...]) -> list[Axis]:
    """Axis by axis, from the sizes, filters, strides, paddings and dilations of all."""
    return [Axis(i, f, s, p if isinstance(p, tuple) else (p, p), d) for i, f, s, p, d in zip(*arguments, strict=True)]


def transposed_input(output: int, filter: int, stride: int, padding: int, output_padding: int, dilation: int) -> int:
    """The size of a transposed convolution's result: (O - 1) * stride - 2 * padding + extent + output_padding."""
    return (output - 1) * stride - 2 * padding + (filter - 1) * dilation + 1 + output_padding
