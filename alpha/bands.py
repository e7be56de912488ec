"""Bands: long axes cut into parts, so that tables and copies are small whatever a convolution's size.

Positions are independent of each other, so a part of them is a convolution of its own, of views of the same tensors.
All but the first and the last have the same plan. What lies in the padding alone is no band: nothing is computed there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from alpha.geometry import LONGEST, POSITIONS, Axis, Band, Geometry
from alpha.tensor import Tensor

EMPTY = 1 << 12
"""Least positions beside all windows that are worth a cut."""

SPAN = 1 << 12
"""Elements from a filter's first tap to its last from which on the taps of a filter gradient are taken one by one."""


class Part(NamedTuple):
    """A band of rows and one of columns."""

    rows: Band
    columns: Band

    @property
    def geometry(self) -> Geometry:
        """Of the part alone."""
        return Geometry(self.rows.axis, self.columns.axis)

    def of_inputs(self, images: Tensor) -> Tensor:
        """A view of the part's inputs."""
        return view(images, self.rows.inputs, self.columns.inputs)

    def of_outputs(self, images: Tensor) -> Tensor:
        """A view of the part's outputs."""
        return view(images, self.rows.outputs, self.columns.outputs)


def middle(geometry: Geometry, by_output: bool) -> Part | None:
    """The part that products fall into, where many positions lie beside it; None where few do, or all."""
    if not (geometry.long_output if by_output else geometry.long_input):
        return None
    found = []
    for axis in (geometry.rows, geometry.columns):
        bands = _bands(axis, by_output, 1 << 62)[0]
        if not bands:
            return None
        found.append(bands[0])
    part = Part(*found)
    return (
        None
        if (part.geometry.output if by_output else part.geometry.input)
        == (geometry.output if by_output else geometry.input)
        else part
    )


def view(images: Tensor, rows: range, columns: range) -> Tensor:
    """Some rows and columns of images (N, H, W, C)."""
    n, _, _, channels = images.shape
    offset = images.offset + rows.start * images.strides[1] + columns.start * images.strides[2]
    strides = (images.strides[0], images.strides[1] * rows.step, images.strides[2] * columns.step, images.strides[3])
    return images.view(offset, (n, len(rows), len(columns), channels), strides)


def parts(geometry: Geometry, by_output: bool) -> tuple[list[Part], bool]:
    """All bands that products fall into, and whether they hold all positions."""
    columns, all_columns = _bands(geometry.columns, by_output, LONGEST)
    widest = max((len(band.outputs if by_output else band.inputs) for band in columns), default=1)
    rows, all_rows = _bands(geometry.rows, by_output, min(LONGEST, max(1, POSITIONS // widest)))
    return [Part(row, column) for row in rows for column in columns], all_rows and all_columns


def _bands(axis: Axis, by_output: bool, most: int) -> tuple[list[Band], bool]:
    """Bands of about equal length, without empty ends that are long; and whether they hold all positions."""
    size = axis.output if by_output else axis.input
    met = axis.met_outputs if by_output else axis.met_inputs
    if size - len(met) < EMPTY:
        met = range(size)
    bands = list(_cut(axis, by_output, met, most))
    return bands, sum(len(band.outputs if by_output else band.inputs) for band in bands) == size


def _cut(axis: Axis, by_output: bool, met: range, most: int) -> Iterator[Band]:
    # Whole bands of one length, which share a plan, and what is left.
    count = -(-len(met) // most)
    length = min(most, -(-len(met) // max(1, count) // 64) * 64)
    for first in range(met.start, met.stop, max(1, length)):
        stop = min(first + length, met.stop)
        band = axis.band_of_outputs(first, stop) if by_output else axis.band_of_inputs(first, stop)
        if band is not None:
            yield band


def taps(geometry: Geometry) -> Iterator[tuple[int, Part]]:
    """Each tap of the columns that meets something, with the outputs where it does: a filter one column wide."""
    columns = geometry.columns
    rows = Band(range(geometry.rows.output), range(geometry.rows.input), geometry.rows)
    for tap in range(columns.filter):
        outputs = columns.leap(tap)
        if outputs:
            first = columns.source(outputs.start, tap)
            inputs = range(first, columns.source(outputs[-1], tap) + 1)
            yield tap, Part(rows, Band(outputs, inputs, Axis(len(inputs), 1, columns.stride)))
