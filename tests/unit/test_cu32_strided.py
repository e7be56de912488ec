"""Loop plans of the CUDA engine, walked in Python as kernels/strided.cuh walks them: every element reached once."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alpha.cu32.strided import MAX_AXES, Layout, Piece, is_dense, merged_axes, packed_loop, plan, tiles
from alpha.tensor import dense_strides

Offsets = tuple[int, ...]


def unpacked(loop: bytes) -> tuple[int, int, int, list[tuple[int, int, int, Offsets]]]:
    """count, tail, splat and (length, multiplier, shift, strides) of each axis."""
    count, tail, axes, splat = struct.unpack_from("<4I", loop)
    records = [struct.unpack_from("<3I4i", loop, 16 + 28 * a) for a in range(axes)]
    return count, tail, splat, [(n, m, s, tuple(steps)) for n, m, s, *steps in records]


def walked(piece: Piece, width: int, operands: int) -> list[Offsets]:
    """The offsets of the result and of each operand at every element, as the kernels compute them."""
    count, tail, splat, axes = unpacked(piece.loop)
    found = []
    for step in range(count):
        at, left = [0] * operands, step
        for a, (length, multiplier, shift, steps) in enumerate(axes):
            following = ((left * multiplier >> 32) + left) >> shift if a < len(axes) - 1 else 0
            assert a == len(axes) - 1 or following == left // length
            along = left - following * length
            at = [offset + along * steps[n] for n, offset in enumerate(at)]
            left = following
        for k in range(width):
            found.append(tuple(at[n] + (0 if splat >> n & 1 else k) for n in range(operands)))
    for t in range(tail):
        found.append(tuple(0 if splat >> n & 1 else count * width + t for n in range(operands)))
    return [tuple(base + offset for base, offset in zip(piece.offsets, at, strict=True)) for at in found]


def expected(out: Layout, operands: list[Layout | None]) -> set[Offsets]:
    """The same from NumPy's broadcasting of arrays of offsets."""
    arrays: list[Any] = []
    for layout in (out, *operands):
        shape, strides = layout or ((), ())
        offsets = np.zeros(shape, np.int64)
        for axis, stride in enumerate(strides):
            line = np.arange(shape[axis]) * stride
            offsets += line.reshape([-1 if a == axis else 1 for a in range(len(shape))])
        arrays.append(np.broadcast_to(offsets, out[0]).reshape(-1))
    return set(zip(*(array.tolist() for array in arrays), strict=True))


@st.composite
def layouts(draw: Any) -> tuple[Layout, list[Layout | None]]:
    ndim = draw(st.integers(0, 5))
    shape = tuple(draw(st.sampled_from([1, 2, 3, 4, 8, 12])) for _ in range(ndim))
    out = shape, dense_strides(shape, draw(st.permutations(range(ndim))))
    operands: list[Layout | None] = []
    for _ in range(draw(st.integers(1, 3))):
        if draw(st.integers(0, 5)) == 0:
            operands.append(None)
            continue
        operand_shape = tuple(1 if draw(st.integers(0, 4)) == 0 else n for n in shape)[draw(st.integers(0, ndim)) :]
        step = draw(st.sampled_from([1, 1, 1, 2, -1]))
        strides = dense_strides(operand_shape, draw(st.permutations(range(len(operand_shape)))))
        operands.append((operand_shape, tuple(step * stride for stride in strides)))
    return out, operands


@pytest.mark.slow
@given(layouts(), st.sampled_from([1, 2, 4, 16]), st.sampled_from([1 << 31, 100, 7]))
@settings(max_examples=300, deadline=None)
def test_every_element_is_reached_once(case: tuple[Layout, list[Layout | None]], width: int, limit: int) -> None:
    out, operands = case
    planned = plan(out, tuple(operands), width, max(limit, 2 * width + 1))
    found = [at for piece in planned.pieces for at in walked(piece, planned.width, 1 + len(operands))]
    assert len(found) == math.prod(out[0])
    assert set(found) == expected(out, operands)


@pytest.mark.parametrize(
    ("out", "operand", "width"),
    [
        (((4, 8), (8, 1)), ((4, 8), (8, 1)), 4),
        (((1001,), (1,)), ((1001,), (1,)), 4),  # with a tail
        (((2, 3, 5, 8), (8, 80, 16, 1)), ((8,), (1,)), 4),  # one value per channel
        (((5, 8), (8, 1)), ((5, 1), (1, 1)), 4),  # one value per row
        (((5, 6), (6, 1)), ((6,), (1,)), 1),  # rows that are no whole vectors
        (((8, 8), (8, 1)), ((8, 8), (1, 8)), 1),  # across
        (((4, 8), (9, 1)), ((4, 8), (8, 1)), 1),  # rows that start between vectors
        (((3,), (1,)), ((3,), (1,)), 1),
    ],
    ids=str,
)
def test_vectors_where_memory_allows_them(out: Layout, operand: Layout, width: int) -> None:
    assert plan(out, (operand,), 4).width == width


def test_axes_are_merged() -> None:
    shape = (4, 5, 6, 7)
    order = (1, 2, 0, 3)
    same = shape, dense_strides(shape, order)
    assert merged_axes(same, [same]) == [(math.prod(shape), (1, 1))]
    assert len(merged_axes(same, [(shape, dense_strides(shape))])) == 3
    assert merged_axes(((), ()), []) == [(1, (0,))]


def test_more_axes_than_a_kernel_walks_over_take_several_launches() -> None:
    shape = (2,) * (MAX_AXES + 2)
    out = shape, tuple(3 * s for s in dense_strides(shape))
    apart = shape, tuple(reversed(dense_strides(shape)))
    planned = plan(out, (apart,), 4)
    assert len(planned.pieces) == 4
    found = [at for piece in planned.pieces for at in walked(piece, planned.width, 2)]
    assert set(found) == expected(out, [apart]) and len(found) == math.prod(shape)


def test_launches_stay_within_32_bits() -> None:
    rows = 3 << 30
    planned = plan(((rows, 2), (2, 1)), (((2,), (1,)),), 4)  # 6 Gi elements
    assert len(planned.pieces) > 1
    for piece in planned.pieces:
        count, tail, _, axes = unpacked(piece.loop)
        assert count * planned.width + tail < 1 << 31
        assert all(length * abs(step) <= 1 << 31 for length, _, _, steps in axes for step in steps)
    offsets = [piece.offsets[0] for piece in planned.pieces]
    assert offsets == sorted(offsets) and offsets[0] == 0


@pytest.mark.parametrize("length", [1, 2, 3, 7, 10, 641, 65_537, (1 << 31) - 1, 1 << 30])
def test_division_by_multiplication(length: int, rng: np.random.Generator) -> None:
    _, multiplier, shift, _ = unpacked(packed_loop([(length, (1,))], length))[3][0]
    values = [0, 1, length - 1, length, length + 1, 2 * length - 1, (1 << 31) - 1, *rng.integers(0, 1 << 31, 1000)]
    for value in map(int, values):
        if value < 1 << 31:
            assert ((value * multiplier >> 32) + value) >> shift == value // length


def test_dense_means_a_run_of_memory() -> None:
    assert is_dense(((3, 4), (4, 1))) and is_dense(((3, 4), (1, 3))) and is_dense(((), ())) and is_dense(((1,), (7,)))
    assert not is_dense(((3, 4), (5, 1)))
    assert not is_dense(((4, 4), (5, 0)))
    assert not is_dense(((4,), (-1,)))


def test_transpositions_are_tiled_only_across_memory() -> None:
    assert tiles(((64, 48), (48, 1)), ((64, 48), (1, 64)), 32, 8) is not None
    assert tiles(((64, 48), (48, 1)), ((64, 48), (48, 1)), 32, 8) is None
    assert tiles(((64, 4), (4, 1)), ((64, 4), (1, 64)), 32, 8) is None  # too narrow
    assert tiles(((2, 3, 4, 64), (64, 512, 128, 1)), ((2, 3, 4, 64), (768, 256, 64, 1)), 32, 8) is None  # rows
