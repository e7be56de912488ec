"""Bands: parts of long axes, so that tables and copies are small whatever a convolution's size.

Positions are independent of each other, so a part of them is a convolution too, over views of the same tensors. All
parts but the first and the last have the same plan. Positions whose window lies in the padding belong to no band.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from alpha.geometry import LONGEST, POSITIONS, Axis, Band, Geometry
from alpha.tensor import Tensor

MIN_EMPTY = 1 << 12
"""Fewest positions without any product that are worth leaving out."""

MAX_SPAN = 1 << 12
"""In filters with more elements from the first tap to the last, a filter gradient handles taps one by one."""


class Part(NamedTuple):
    """A band of rows and one of columns."""

    rows: Band
    columns: Band

    @property
    def geometry(self) -> Geometry:
        """The geometry of the part."""
        return Geometry(self.rows.axis, self.columns.axis)

    def of_inputs(self, images: Tensor) -> Tensor:
        """A view of the part's inputs."""
        return view(images, self.rows.inputs, self.columns.inputs)

    def of_outputs(self, images: Tensor) -> Tensor:
        """A view of the part's outputs."""
        return view(images, self.rows.outputs, self.columns.outputs)


def middle(geometry: Geometry, by_output: bool) -> Part | None:
    """The part that has products, if many positions have none; None if few positions have none, or all."""
    if not (geometry.long_output if by_output else geometry.long_input):
        return None
    middles = []
    for axis in (geometry.rows, geometry.columns):
        bands = _bands(axis, by_output, 1 << 62)[0]
        if not bands:
            return None
        middles.append(bands[0])
    part = Part(*middles)
    return (
        None
        if (part.geometry.output if by_output else part.geometry.input)
        == (geometry.output if by_output else geometry.input)
        else part
    )


def view(images: Tensor, rows: range, columns: range) -> Tensor:
    """A view of some rows and columns of images (N, H, W, C)."""
    n, _, _, channels = images.shape
    offset = images.offset + rows.start * images.strides[1] + columns.start * images.strides[2]
    strides = (images.strides[0], images.strides[1] * rows.step, images.strides[2] * columns.step, images.strides[3])
    return images.strided(offset, (n, len(rows), len(columns), channels), strides)


def parts(geometry: Geometry, by_output: bool) -> tuple[list[Part], bool]:
    """All parts that have products, and whether they contain all positions."""
    columns, all_columns = _bands(geometry.columns, by_output, LONGEST)
    widest = max((len(band.outputs if by_output else band.inputs) for band in columns), default=1)
    rows, all_rows = _bands(geometry.rows, by_output, min(LONGEST, max(1, POSITIONS // widest)))
    return [Part(row, column) for row in rows for column in columns], all_rows and all_columns


def _bands(axis: Axis, by_output: bool, most: int) -> tuple[list[Band], bool]:
    """Bands of about equal length, without long ends that have no products; and whether they contain all positions."""
    size = axis.output if by_output else axis.input
    met = axis.met_outputs if by_output else axis.met_inputs
    if size - len(met) < MIN_EMPTY:
        met = range(size)
    bands = list(_cut(axis, by_output, met, most))
    return bands, sum(len(band.outputs if by_output else band.inputs) for band in bands) == size


def _cut(axis: Axis, by_output: bool, met: range, most: int) -> Iterator[Band]:
    # Bands of one length, which share a plan, and a shorter last one.
    count = -(-len(met) // most)
    length = min(most, -(-len(met) // max(1, count) // 64) * 64)
    for first in range(met.start, met.stop, max(1, length)):
        stop = min(first + length, met.stop)
        band = axis.band_of_outputs(first, stop) if by_output else axis.band_of_inputs(first, stop)
        if band is not None:
            yield band


def taps(geometry: Geometry) -> Iterator[tuple[int, Part]]:
    """Each tap column that has products, with the part where it has them: a filter one column wide."""
    columns = geometry.columns
    rows = Band(range(geometry.rows.output), range(geometry.rows.input), geometry.rows)
    for tap in range(columns.filter):
        outputs = columns.leap(tap)
        if outputs:
            first = columns.source(outputs.start, tap)
            inputs = range(first, columns.source(outputs[-1], tap) + 1)
            yield tap, Part(rows, Band(outputs, inputs, Axis(len(inputs), 1, columns.stride)))
