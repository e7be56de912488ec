"""The CUDA engine's problems: all that decides how a call is computed, so that nothing else looks at its tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

from alpha.arguments import Shape
from alpha.conv import problem as shared
from alpha.conv.problem import FORWARD, INPUT_GRAD, WEIGHT_GRAD, Strides
from alpha.cu32 import tf32
from alpha.cu32.conv.endings import Ending
from alpha.cu32.costs import Job
from alpha.errors import EngineError, ShapeError
from alpha.geometry import Geometry
from alpha.records import Normalised
from alpha.tensor import Tensor

FILTER_LIMIT = 2**30
"""Elements of filters: kernels hold offsets in them in 32 bits."""

WIDE = 2**30
"""Elements of images from which on offsets take 64 bits, the walk's step beyond the end counted in."""


class Aligned(NamedTuple):
    """Whether first elements lie at multiples of 16 bytes: of x, of y (or their gradients), of filters, of a bias."""

    x: bool = True
    y: bool = True
    filters: bool = True
    bias: bool = True


ALIGNED = Aligned()
"""All of them, as tensors of their own are."""


class Call(NamedTuple):
    """The tensors of a call.

    Attributes:
        source: the images that are read: x, or dy of an input gradient.
        other: the filters, or dy of a filter gradient.
        out: what is written: y, dx or dw.
        bias: what is added to results, a number for each channel; of a filter gradient nothing.
        ending: what a BatchNorm wants of the results while they are in registers.
        before: the BatchNorm that x is still to be normalised by, if there is one.
    """

    source: Tensor
    other: Tensor
    out: Tensor
    bias: Tensor | None = None
    ending: Ending | None = None
    before: Normalised | None = None


@dataclass(frozen=True)
class Problem(shared.Problem, Job):
    """What a plan is made for.

    Attributes:
        high: whether factors may be rounded to TF32, on a device that can.
        split: whether a product may be made of three in TF32, on a device that can.
        adds: whether results are added to what is there.
    """

    high: bool = False
    adds: bool = False
    split: bool = False
    aligned: Aligned = ALIGNED

    def __hash__(self) -> int:
        return self._whole_hash

    @cached_property
    def _whole_hash(self) -> int:
        """Kept, as that of its sizes and strides is."""
        return hash((super().__hash__(), self.high, self.adds, self.split, self.aligned))

    def __str__(self) -> str:
        channels = f"{self.group_in} to {self.group_out} channels x {self.groups}"
        rows, columns = self.geometry.rows, self.geometry.columns
        return (
            f"{self.operator} of {self.images} x {self.geometry.input}, {channels}, filter {self.geometry.filter}, "
            f"stride {(rows.stride, columns.stride)}"
        )

    # -- what kernels ask ------------------------------------------------------------------------------------------

    @property
    def forward(self) -> bool:
        """Whether results are grouped by output position, and filters by output channel."""
        return self.operator == FORWARD

    @property
    def joins(self) -> bool:
        return True

    @property
    def threefold(self) -> bool:
        """Whether products are made of three. In short sums what these leave out would weigh more than roundings do."""
        return self.split and self.item == 4 and self._terms >= tf32.FEWEST_TERMS

    @property
    def _terms(self) -> int:
        """Terms of a result's sum."""
        if self.operator == WEIGHT_GRAD:
            return self.images * math.prod(self.geometry.output)
        return math.prod(self.geometry.filter) * (self.group_in if self.forward else self.group_out)

    @cached_property
    def wide(self) -> bool:
        """Whether an offset within the images of one side needs more than 32 bits."""
        sides = (
            (self.geometry.input, self.in_channels, self.x_strides),
            (self.geometry.output, self.out_channels, self.y_strides),
        )
        return any(
            sum((n - 1) * s for n, s in zip((self.images, *size), strides, strict=True)) + channels >= WIDE
            for size, channels, strides in sides
        )

    @cached_property
    def vector(self) -> bool:
        """Whether four channels of a group may be read at once from both operands."""
        if self.operator == WEIGHT_GRAD:
            return self.x_fours(self.group_in) and self.y_fours(self.group_out)
        if self.group_in % 4 or not self.aligned.filters:
            return False
        return self.x_fours(self.group_in) if self.forward else self.y_fours(self.group_out)

    def x_fours(self, channels: int) -> bool:
        """Whether four of so many channels of x may be read at once everywhere."""
        return self._fours(self.geometry.input, channels, self.x_strides, self.aligned.x)

    def y_fours(self, channels: int) -> bool:
        """The same of y."""
        return self._fours(self.geometry.output, channels, self.y_strides, self.aligned.y)

    def _fours(self, size: tuple[int, int], channels: int, strides: Strides, aligned: bool) -> bool:
        steps = (step for number, step in zip((self.images, *size), strides, strict=True) if number > 1)
        return self.item == 4 and aligned and channels % 4 == 0 and all(step % 4 == 0 for step in steps)

    # -- what the cost model asks ----------------------------------------------------------------------------------

    @property
    def products(self) -> int:
        return self.macs

    @property
    def nominal(self) -> int:
        return self.images * self.in_channels * self.group_out * self.geometry.nominal

    @property
    def operands(self) -> int:
        return self._x_elements + self._y_elements + self.filter_elements - self.results

    @property
    def results(self) -> int:
        return {FORWARD: self._y_elements, INPUT_GRAD: self._x_elements, WEIGHT_GRAD: self.filter_elements}[
            self.operator
        ]

    @property
    def filter_elements(self) -> int:
        """Those of all filters."""
        return math.prod(self.geometry.filter) * self.group_in * self.out_channels

    @property
    def _x_elements(self) -> int:
        return self.images * math.prod(self.geometry.input) * self.in_channels

    @property
    def _y_elements(self) -> int:
        return self.images * math.prod(self.geometry.output) * self.out_channels


@lru_cache(maxsize=4096)
def called(
    operator: str,
    geometry: Geometry,
    shapes: tuple[Shape, Shape, Shape],
    counts: tuple[int, int],
    x_strides: Shape,
    y_strides: Shape,
    facts: tuple[bool, bool, bool],
    aligned: Aligned,
) -> Problem:
    """The problem of a call: the same object for the same call, by which plans are found fast.

    Errors as for ``problem_of``. ``shapes``: of x, y and filters. ``counts``: groups, and bytes of a number. ``facts``:
    high, adds and split.
    """
    x, y, _ = shapes
    _check(*shapes, geometry, counts[0])
    sizes = x[0], x[3], y[3], *counts
    return Problem(operator, geometry, *sizes, x_strides[:3], y_strides[:3], *facts, aligned)  # type: ignore[arg-type]


def _check(x: Shape, y: Shape, w: Shape, geometry: Geometry, groups: int) -> None:
    shared.check_sizes(x, y, geometry)
    expected = (y[3], *geometry.filter, x[3] // groups)
    if w != expected or w[0] % groups or x[3] % groups:
        raise ShapeError(f"[convolution] expected filters {expected} in {groups} groups, got {w}")
    if math.prod(w) >= FILTER_LIMIT:
        raise EngineError(f"[convolution] expected fewer than {FILTER_LIMIT} elements of filters, got {math.prod(w)}")


def problem_of(
    operator: str,
    call: Call,
    geometry: Geometry,
    groups: int,
    high: bool = False,
    adds: bool = False,
    split: bool = False,
) -> Problem:
    """The problem of a call's tensors.

    EngineError where images are not of the geometry's sizes, or filters too large; ShapeError where they do not fit.
    """
    source, other, out, bias, _, _ = call
    x, y = (source, out) if operator == FORWARD else (out, source) if operator == INPUT_GRAD else (source, other)
    filters = out if operator == WEIGHT_GRAD else other
    item = x.dtype.itemsize
    places = x.address, y.address, filters.address, 0 if bias is None else bias.address
    aligned = ALIGNED
    if (places[0] | places[1] | places[2] | places[3]) % 16:
        aligned = Aligned(*[place % 16 == 0 for place in places])
    facts = (high, adds, split) if item == 4 else (False, adds, False)
    shapes = x.shape, y.shape, filters.shape
    return called(operator, geometry, shapes, (groups, item), x.strides, y.strides, facts, aligned)


def dense_problem(
    operator: str, geometry: Geometry, images: int, in_channels: int, out_channels: int, groups: int
) -> Problem:
    """The problem of float32 images without gaps in the engine's order, (H, W, N, C) in memory, in full precision."""
    x = shared.dense_strides(geometry.input, images, in_channels)
    y = shared.dense_strides(geometry.output, images, out_channels)
    return Problem(operator, geometry, images, in_channels, out_channels, groups, 4, x, y)
