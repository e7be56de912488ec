"""The tables of the cu32 convolutions against the geometry's groups: each product once, one trim a tile."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alpha.cu32.conv import tables
from alpha.errors import EngineError
from alpha.geometry import Axis, Geometry
from tests.oracles import nonzero_products
from tests.unit.test_geometry import axes


@settings(max_examples=300, deadline=None)
@given(axes())
def test_runs_and_classes_reproduce_the_groups(axis: Axis) -> None:
    for groups in (axis.by_output, axis.by_input, axis.by_tap):
        runs = tables.Runs.of(groups)
        for g, pairs in enumerate(groups):
            first = (int(runs.first_a[g]), int(runs.first_b[g]))
            again = [(first[0] + t * runs.step_a, first[1] + t * runs.step_b) for t in range(runs.count[g])]
            assert tuple(again) == pairs
        classes = tables.Classes.of(runs)
        seen = []
        for taps, first_b, start, size in classes.class_array().tolist():
            for index, first_a in classes.member_array()[start : start + size].tolist():
                seen.append(index)
                again = [(first_a + t * runs.step_a, first_b + t * runs.step_b) for t in range(taps)]
                assert tuple(again) == groups[index]
        assert sorted(seen) == list(range(len(groups)))
        assert (np.diff(classes.taps) <= 0).all()


def test_a_stride_makes_its_sub_kernels() -> None:
    """3 taps at stride 2: even and odd inputs see 2 and 1 taps; the trims at the edges are classes of their own."""
    classes = tables.by_input(Axis(8, 3, 2, (1, 1)))
    assert [(t, f) for t, f, _, _ in classes.class_array().tolist()] == [(2, 0), (1, 1), (1, 2)]
    assert classes.index.tolist() == [1, 3, 5, 0, 2, 4, 6, 7]


def test_groups_that_are_no_runs_are_refused() -> None:
    with pytest.raises(EngineError, match="one step"):
        tables.Runs.of((((0, 0), (1, 1), (3, 2)),))


@settings(max_examples=200, deadline=None)
@given(axes(), axes(), st.sampled_from([1, 2, 5, 64]), st.sampled_from([1, 4, 32, 128]), st.booleans())
def test_tiles_cover_every_position_and_image_once(a: Axis, b: Axis, images: int, height: int, forward: bool) -> None:
    listed = tables.tiles(a, b, forward, images, height)
    rows, columns = (tables.by_output(x) if forward else tables.by_input(x) for x in (a, b))
    positions: Counter[tuple[int, int, int]] = Counter()
    for (r, c, first, count), taps in zip(listed.tiles.tolist(), listed.taps.tolist(), strict=True):
        assert 0 < count <= height
        assert taps == rows.taps[r] * columns.taps[c]
        for m in range(first, first + count):
            position, image = divmod(m, images)
            row, column = divmod(position, int(columns.size[c]))
            positions[int(rows.index[rows.start[r] + row]), int(columns.index[columns.start[c] + column]), image] += 1
    shape = (a.output, b.output) if forward else (a.input, b.input)
    assert len(positions) == shape[0] * shape[1] * images
    assert set(positions.values()) == {1}
    assert listed.products == a.useful * b.useful * images
    assert (np.diff(listed.taps) <= 0).all()


@settings(max_examples=200, deadline=None)
@given(axes(), axes(), st.sampled_from([1, 2]), st.sampled_from([1, 4, 8]), st.sampled_from([1, 8]), st.booleans())
def test_patches_cover_every_position_once(
    a: Axis, b: Axis, down: int, across: int, together: int, forward: bool
) -> None:
    """The sources of a patch's members follow from its first source by one step."""
    listed = tables.patches(a, b, forward, down, across, together)
    rows, columns = (tables.by_output(x) if forward else tables.by_input(x) for x in (a, b))
    positions: Counter[tuple[int, int]] = Counter()
    products = 0
    for r, c, first, count in listed.tiles.tolist():
        assert 0 < count <= together
        wide = -(-int(columns.size[c]) // across)
        for number in range(first, first + count):
            for i in range(number // wide * down, min(number // wide * down + down, int(rows.size[r]))):
                for j in range(number % wide * across, min(number % wide * across + across, int(columns.size[c]))):
                    positions[int(rows.index[rows.start[r] + i]), int(columns.index[columns.start[c] + j])] += 1
                    products += int(rows.taps[r]) * int(columns.taps[c])
    shape = (a.output, b.output) if forward else (a.input, b.input)
    assert len(positions) == shape[0] * shape[1]
    assert set(positions.values()) == {1}
    assert listed.products == products == a.useful * b.useful
    for classes in (rows, columns):
        for taps, start, size in zip(classes.taps, classes.start, classes.size, strict=True):
            if taps:
                sources = classes.first_a[start : start + size]
                assert (sources == sources[0] + classes.member_step * np.arange(size)).all()
                indices = classes.index[start : start + size]
                assert (indices == indices[0] + classes.index_step * np.arange(size)).all()


@pytest.mark.parametrize(
    ("size", "filter", "stride", "padding", "dilation"),
    [
        ((32, 32), (7, 7), (2, 2), (3, 3), (1, 1)),
        ((5, 9), (3, 2), (4, 1), (2, 0), (1, 3)),
        ((1, 1), (5, 5), (1, 1), (2, 2), (1, 1)),
    ],
)
def test_products_are_those_of_brute_force(
    size: tuple[int, int],
    filter: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
) -> None:
    geometry = Geometry.make(size, filter, stride, padding, dilation)
    expected = nonzero_products(size, filter, stride, padding, dilation) * 3
    for forward in (True, False):
        assert tables.tiles(geometry.rows, geometry.columns, forward, 3, 64).products == expected
    assert tables.leaps(geometry, 3).sum() == expected


def test_too_many_rows_are_refused() -> None:
    with pytest.raises(EngineError, match="smaller batch"):
        tables.tiles(Axis(64, 1), Axis(64, 1), True, 2**19, 128)
