"""The geometry against brute force: every trim, split and leap is exactly the set of non-zero products."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alpha.errors import ArgumentError, ShapeError
from alpha.geometry import Axis, Geometry, Pairs, VolumeGeometry, stretches, transposed_input
from tests import oracles


@st.composite
def axes(draw: st.DrawFn) -> Axis:
    """Axes of all kinds: stride above the filter, padding above half of it, dilation, one-element maps, uneven pads."""
    size, filter = draw(st.integers(1, 14)), draw(st.integers(1, 7))
    stride, dilation = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    low, high = draw(st.integers(0, 7)), draw(st.integers(0, 7))
    short = (filter - 1) * dilation + 1 - size - low - high
    return Axis(size, filter, stride, (low, high + max(0, short)), dilation)


@settings(max_examples=500, deadline=None)
@given(axes())
def test_groupings_are_the_relation(axis: Axis) -> None:
    pairs = {
        (i, o, f)
        for o in range(axis.output)
        for f in range(axis.filter)
        for i in [o * axis.stride + f * axis.dilation - axis.padding[0]]
        if 0 <= i < axis.input
    }
    assert {(i, o, f) for o, group in enumerate(axis.by_output) for i, f in group} == pairs
    assert {(i, o, f) for i, group in enumerate(axis.by_input) for o, f in group} == pairs
    assert {(i, o, f) for f, group in enumerate(axis.by_tap) for i, o in group} == pairs
    for groups in (axis.by_output, axis.by_input, axis.by_tap):
        assert sum(len(group) for group in groups) == len(pairs) == axis.useful
    assert axis.useful <= axis.nominal


def groups_of(pairs: Pairs) -> list[tuple[tuple[int, int], ...]]:
    columns = (pairs.count.tolist(), pairs.first.tolist(), pairs.other.tolist())
    return [
        tuple((first + k * pairs.step, other + k * pairs.other_step) for k in range(count))
        for count, first, other in zip(*columns, strict=True)
    ]


@settings(max_examples=500, deadline=None)
@given(axes())
def test_the_arithmetic_is_the_definition(axis: Axis) -> None:
    for pairs, groups in (
        (axis.pairs_by_output, axis.by_output),
        (axis.pairs_by_input, axis.by_input),
        (axis.pairs_by_tap, axis.by_tap),
    ):
        assert groups_of(pairs) == list(groups)
        assert pairs.last.tolist() == [group[-1][0] if group else 0 for group in groups]


@settings(max_examples=300, deadline=None)
@given(axes())
def test_stretches_have_the_same_taps_and_hold_every_position(axis: Axis) -> None:
    for pairs, groups, step in (
        (axis.pairs_by_output, axis.by_output, 1),
        (axis.pairs_by_input, axis.by_input, axis.stride),
    ):
        found = stretches(pairs, step)
        seen = []
        for first, number, apart, moved in zip(*(column.tolist() for column in vars(found).values()), strict=True):
            run = [first + k * apart for k in range(number)]
            seen += run
            relative = {tuple((a - groups[i][0][0], tap) for a, tap in groups[i]) for i in run}
            assert len(relative) == 1
            assert [pairs.first[i] for i in run] == [pairs.first[first] + k * moved for k in range(number)]
        assert sorted(seen) == list(range(len(groups)))
        assert found.index.tolist() == sorted(found.index.tolist())


@settings(max_examples=300, deadline=None)
@given(axes(), st.integers(0, 13), st.integers(1, 14))
def test_a_band_has_all_that_its_positions_meet(axis: Axis, first: int, count: int) -> None:
    for by_output, size, groups in ((True, axis.output, axis.by_output), (False, axis.input, axis.by_input)):
        start, stop = min(first, size - 1), min(first + count, size)
        stop = max(start + 1, stop)
        band = axis.band_of_outputs(start, stop) if by_output else axis.band_of_inputs(start, stop)
        if band is None:
            assert not any(groups[start:stop])
            continue
        requested, others = (band.outputs, band.inputs) if by_output else (band.inputs, band.outputs)
        assert (len(band.inputs), len(band.outputs)) == (band.axis.input, band.axis.output)
        assert list(requested) == list(range(start, stop))
        inner = band.axis.by_output if by_output else band.axis.by_input
        assert [tuple((a + others.start, tap) for a, tap in group) for group in inner] == list(groups[start:stop])
    met_outputs, met_inputs = axis.met_outputs, axis.met_inputs
    assert all(o in met_outputs for o, group in enumerate(axis.by_output) if group)
    assert all(i in met_inputs for i, group in enumerate(axis.by_input) if group)


@settings(max_examples=500, deadline=None)
@given(axes())
def test_cutting_taps_that_reach_nothing_keeps_all_products(axis: Axis) -> None:
    cut, first = axis.reached, axis.reaching.start
    assert (cut.input, cut.output, cut.filter) == (axis.input, axis.output, len(axis.reaching))
    assert [tuple((i, f + first) for i, f in pairs) for pairs in cut.by_output] == list(axis.by_output)
    assert cut.by_tap[-1] or not axis.useful
    assert cut.by_tap[0] or cut.padding[0] < cut.dilation or not axis.useful


@settings(max_examples=500, deadline=None)
@given(axes())
def test_parts_are_convolutions_of_stride_1(axis: Axis) -> None:
    """Each input is in one part, each pair in one run; within a part outputs and inputs go on one by one."""
    assert sorted(i for part in axis.parts for i in part.inputs) == list(range(axis.input))
    pairs = [
        (part.inputs[i], o, run.tap)
        for part in axis.parts
        for run in part.runs
        for o, i in zip(run.outputs, run.inputs, strict=True)
    ]
    assert sorted(pairs) == sorted((i, o, f) for o, group in enumerate(axis.by_output) for i, f in group)
    for part in axis.parts:
        assert all(run.outputs.step == run.inputs.step == 1 for run in part.runs)
        lengths = [len(run.outputs) for run in part.runs]
        assert lengths == sorted(lengths, reverse=True)
        assert lengths[:1] <= [len(run.outputs) for run in axis.parts[0].runs[:1]]


@settings(max_examples=200, deadline=None)
@given(axes())
def test_runs_are_what_the_kernels_assume(axis: Axis) -> None:
    for f in range(axis.filter):
        outputs = [o for _, o in axis.by_tap[f]]
        assert outputs == list(range(outputs[0], outputs[0] + len(outputs))) if outputs else True
    for o in range(axis.output):
        taps = [f for _, f in axis.by_output[o]]
        assert taps == list(axis.trim(o))
    for i in range(axis.input):
        assert [f for _, f in axis.by_input[i]] == list(axis.split(i))


@pytest.mark.parametrize(
    ("size", "filter", "stride", "padding", "dilation"),
    [
        ((32, 32), (7, 7), (2, 2), (3, 3), (1, 1)),
        ((5, 9), (3, 2), (4, 1), (2, 0), (1, 3)),
        ((1, 1), (5, 5), (1, 1), (2, 2), (1, 1)),
        ((6, 4), (1, 3), (2, 3), (0, 3), (1, 2)),
    ],
)
def test_useful_counts_products_one_by_one(size, filter, stride, padding, dilation) -> None:  # type: ignore[no-untyped-def]
    geometry = Geometry.make(size, filter, stride, padding, dilation)
    count = oracles.nonzero_products(size, filter, stride, padding, dilation)
    assert geometry.useful == count
    assert geometry.macs(3, 4, 6, 2) == count * 3 * 4 * 6 // 2
    assert geometry.output == tuple(
        oracles.output_size(*values) for values in zip(size, filter, stride, padding, dilation, strict=True)
    )


def test_transposed_size_inverts_the_convolution() -> None:
    for o, f, s, p, d in [(4, 3, 2, 1, 1), (7, 5, 3, 2, 2), (1, 1, 1, 0, 1)]:
        for extra in range(s):
            size = transposed_input(o, f, s, p, extra, d)
            assert Axis(size, f, s, (p, p), d).output == o


def test_bad_geometry_says_what() -> None:
    with pytest.raises(ShapeError, match="filter of extent 9 over 4 elements"):
        Axis(4, 5, 1, (2, 2), 2)
    with pytest.raises(ArgumentError, match="stride 0"):
        Axis(4, 3, 0)


@pytest.mark.parametrize(
    ("size", "filter", "stride", "padding", "dilation"),
    [
        ((6, 5, 4), (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1)),
        ((1, 7, 9), (5, 2, 3), (4, 1, 2), (2, 3, 0), (1, 3, 2)),
        ((8, 1, 1), (2, 3, 1), (3, 2, 1), (0, 1, 0), (4, 1, 1)),
    ],
)
def test_volumes_count_products_one_by_one(size, filter, stride, padding, dilation) -> None:  # type: ignore[no-untyped-def]
    geometry = VolumeGeometry.make(size, filter, stride, padding, dilation)
    assert geometry.macs(3, 4, 6, 2) == oracles.products(size, filter, stride, padding, dilation) * 3 * 4 * 6 // 2
    assert geometry.input == size
    assert geometry.output == tuple(
        oracles.output_size(*values) for values in zip(size, filter, stride, padding, dilation, strict=True)
    )
