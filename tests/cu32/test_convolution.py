"""cu32's convolutions against float64 from the definition: each tile, each way of loading, splits, counts, bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import alpha
from alpha import caches
from alpha.cu32 import planner
from alpha.cu32.base import DeviceEngine
from alpha.cu32.conv import problem, tiles, tiles_gradient
from alpha.cu32.conv.problem import Problem
from alpha.cu32.convolution import MACS
from alpha.engine import IMAGE_ORDER
from alpha.geometry import Geometry
from alpha.tensor import Tensor
from tests import oracles
from tests.engine.test_conv import Case, cases, draw_data, relative

# Sums of K products in float32, each rounded once: see tests/engine/test_conv.py.
BOUND = {np.float32: (5e-6, 1e-5), np.float64: (1e-12, 1e-12)}


def geometry_of(case: Case) -> Geometry:
    return Geometry.make(case.size, case.filter, case.stride, case.padding, case.dilation)


def forget() -> None:
    """Has all choices and launches made anew, where a test changes what they depend on."""
    planner.forget()
    caches.release()


def compute(engine: DeviceEngine, case: Case, dtype: Any, order: Any = IMAGE_ORDER) -> tuple[Tensor, ...]:
    """y, dx, dw."""
    x, w, b, dy = (alpha.tensor(array, engine=engine) for array in draw_data(case, dtype))
    x, dy = x.contiguous(order), dy.contiguous(order)
    geometry = geometry_of(case)
    return (
        engine.conv2d(x, w, b, geometry, case.groups),
        engine.conv2d_input_grad(dy, w, geometry, case.groups),
        engine.conv2d_weight_grad(x, dy, geometry, case.groups),
    )


def check(engine: DeviceEngine, case: Case, dtype: Any = np.float32, order: Any = IMAGE_ORDER) -> None:
    x, w, b, dy = draw_data(case, dtype)
    parameters = (case.stride, case.padding, case.dilation, case.groups)
    y, dx, dw = compute(engine, case, dtype, order)
    expected_dx, expected_dw = oracles.conv2d_gradients(x, w, dy, *parameters)
    forward, gradient = BOUND[dtype]
    assert relative(y, oracles.conv2d(x, w, *parameters) + b) <= forward
    assert relative(dx, expected_dx) <= gradient
    assert relative(dw, expected_dw) <= gradient


PICKED = [
    Case(40, (3, 4), (16, 24), (3, 3), (1, 1), (1, 1)),  # four channels at a time, several trims, whole and cut tiles
    Case(9, (7, 6), (16, 20), (3, 3), (2, 2), (1, 1)),  # sub-kernels of a stride, odd and even maps
    Case(3, (9, 9), (3, 36), (7, 7), (2, 2), (3, 3)),  # a stem
    Case(1, (11, 9), (8, 12), (3, 3), (1, 1), (1, 1)),  # one image: rows run over positions
    Case(3, (1, 1), (17, 16), (1, 1)),  # channels that fill no vector
    Case(150, (1, 1), (36, 68), (1, 1)),  # a linear layer
    Case(1, (1, 1), (5, 7), (5, 5), (1, 1), (2, 2)),  # a map of one pixel inside a large filter
    Case(2, (8, 8), (4, 4), (2, 2), (3, 3)),  # stride over filter: some inputs are never read
    Case(2, (6, 6), (12, 12), (3, 3), (1, 1), (1, 1), (1, 1), 12),  # depthwise
    Case(2, (6, 5), (24, 16), (3, 2), (2, 1), (1, 1), (1, 2), 2),  # grouped, dilated, nothing square
    Case(2, (5, 6), (19, 130), (3, 3), (1, 1), (2, 3)),  # padding over half the filter
]


@pytest.mark.parametrize("case", PICKED, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_picked_configurations(cu32: DeviceEngine, case: Case, dtype: Any) -> None:
    check(cu32, case, dtype)


@pytest.mark.parametrize("case", PICKED[:4], ids=str)
def test_images_in_row_major_order(cu32: DeviceEngine, case: Case) -> None:
    check(cu32, case, order=None)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases(), dtype=st.sampled_from([np.float32, np.float32, np.float64]))
def test_random_configurations(cu32: DeviceEngine, case: Case, dtype: Any) -> None:
    check(cu32, case, dtype)


TILES = sorted({(t.rows, t.columns) for module in (tiles, tiles_gradient) for ts in module.TILES.values() for t in ts})


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize(
    "case",
    [
        Case(21, (4, 3), (36, 40), (3, 3), (2, 1), (1, 1)),
        Case(5, (5, 3), (3, 7), (3, 3), (1, 1), (1, 1)),
        Case(5, (4, 3), (130, 129), (3, 3), (1, 1), (1, 1)),
    ],
    ids=["vector", "flat", "scalar"],
)
def test_every_tile_and_split(cu32: DeviceEngine, tile: tuple[int, int], parts: int, case: Case) -> None:
    with planner.use(tile=tile, parts=parts):
        check(cu32, case)


def test_more_parts_than_steps(cu32: DeviceEngine) -> None:
    with planner.use(parts=50):
        check(cu32, Case(3, (3, 3), (8, 8), (2, 2)))


@pytest.mark.parametrize("case", PICKED, ids=str)
def test_no_zero_enters_a_multiply_add(cu32: DeviceEngine, case: Case) -> None:
    """Rows x taps x channels over the list of tiles, against products that meet no zero of padding or dilation."""
    compute(cu32, case, np.float32)
    pairs = oracles.nonzero_products(case.size, case.filter, case.stride, case.padding, case.dilation)
    expected = pairs * case.n * case.channels[0] * case.channels[1] // case.groups
    assert dict(MACS) == dict.fromkeys(MACS, expected)


@pytest.mark.parametrize("parts", [2, 6, 7, 40])
def test_parts_are_joined_by_the_kernel_itself(cu32: DeviceEngine, monkeypatch: pytest.MonkeyPatch, parts: int) -> None:
    """One launch each, also of many parts, which are added in groups; counters are 0 again behind each."""
    launched: list[str] = []
    original = cu32.launch_packed

    def launch_packed(source: Any, kernel: str, *others: Any) -> None:
        launched.append(kernel)
        original(source, kernel, *others)

    case = Case(6, (5, 4), (132, 68), (3, 3), (1, 1), (1, 1))
    x, w, _, dy = (alpha.tensor(array, engine=cu32) for array in draw_data(case, np.float32))
    geometry = geometry_of(case)
    monkeypatch.setattr(cu32, "launch_packed", launch_packed)
    with planner.use("tiles", tile=(64, 64), parts=parts):
        cu32.conv2d(x, w, None, geometry, 1)
        cu32.conv2d_input_grad(dy, w, geometry, 1)
        cu32.conv2d_weight_grad(x, dy, geometry, 1)
    assert launched == ["conv", "conv", "conv_weight"]
    monkeypatch.undo()
    assert not cu32.counters(1).numpy().any()
    with planner.use("tiles", tile=(64, 64), parts=parts):
        check(cu32, case)


@pytest.mark.parametrize("case", PICKED[:3], ids=str)
def test_two_runs_are_the_same_to_the_bit(cu32: DeviceEngine, case: Case) -> None:
    with planner.use(parts=4):
        first, second = (compute(cu32, case, np.float32) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert np.array_equal(np.asarray(one), np.asarray(other))


def test_accumulates_and_adds_a_bias(cu32: DeviceEngine) -> None:
    case = replace(PICKED[1], n=2)
    _, w, _, dy = draw_data(case, np.float32)
    rng = np.random.default_rng(5)
    before = rng.standard_normal((case.n, *case.size, case.channels[0])).astype(np.float32)
    bias = rng.standard_normal(case.channels[0]).astype(np.float32)
    dx, _ = oracles.conv2d_gradients(before, w, dy, case.stride, case.padding, case.dilation, case.groups)
    for order in (IMAGE_ORDER, None):
        grads, filters, biases = (alpha.tensor(array, engine=cu32) for array in (dy, w, bias))
        into = alpha.tensor(before, engine=cu32).contiguous(order)
        out = cu32.conv2d_input_grad(grads, filters, geometry_of(case), case.groups, biases, into)
        assert out is into
        assert relative(out, dx + before + bias) <= 1e-5


LOADS = [
    ("VECTOR", Case(7, (4, 3), (36, 40), (3, 3), (2, 1), (1, 1))),
    ("VECTOR", Case(4, (2, 2), (64, 64), (3, 3), (1, 1), (1, 1))),
    ("FLAT", Case(5, (5, 3), (17, 7), (3, 3), (1, 2), (1, 1))),
    ("SCALAR", Case(5, (4, 3), (33, 129), (3, 3), (1, 1), (1, 1))),
]


@pytest.mark.parametrize(("load", "case"), LOADS, ids=str)
@pytest.mark.parametrize("number", range(5))
def test_accumulates_with_every_tile(cu32: DeviceEngine, load: str, case: Case, number: int) -> None:
    """A split would lose what was there, so parts that are asked for must be refused."""
    if number >= len(tiles.TILES[load]):
        return
    _, w, _, dy = draw_data(case, np.float32)
    before = np.random.default_rng(5).standard_normal((case.n, *case.size, case.channels[0])).astype(np.float32)
    dx, _ = oracles.conv2d_gradients(before, w, dy, case.stride, case.padding, case.dilation, case.groups)
    tile = tiles.TILES[load][number]
    for parts in (1, 3):
        grads, filters = (alpha.tensor(array, engine=cu32) for array in (dy, w))
        into = alpha.tensor(before, engine=cu32).contiguous(IMAGE_ORDER)
        with planner.use(tile=(tile.rows, tile.columns), parts=parts):
            out = cu32.conv2d_input_grad(grads.contiguous(IMAGE_ORDER), filters, geometry_of(case), 1, None, into)
        assert out is into
        assert relative(out, dx + before) <= 1e-5


@pytest.mark.parametrize(("load", "case"), LOADS, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_offsets_of_64_bits(
    cu32: DeviceEngine, monkeypatch: pytest.MonkeyPatch, load: str, case: Case, dtype: Any
) -> None:
    """What images of 2^30 elements take, on small ones, with every tile, and from sources that are built ahead."""
    used: set[Any] = set()
    launch = DeviceEngine.launch_packed

    def record(self: DeviceEngine, source: Any, *rest: Any, **more: Any) -> None:
        used.add(source)
        launch(self, source, *rest, **more)

    monkeypatch.setattr(Problem, "wide", True)
    monkeypatch.setattr(DeviceEngine, "launch_packed", record)
    forget()
    try:
        for tile in TILES if dtype == np.float32 else TILES[:1]:
            with planner.use("tiles", tile=tile, parts=2):
                check(cu32, case, dtype)
    finally:
        forget()
    used = {source for source in used if ("OFFSET", "int64") in source.defines}
    fewest = {"VECTOR": 13, "FLAT": 3, "SCALAR": 3}[load] if dtype == np.float32 else 3
    assert len(used) >= fewest
    assert used <= {*tiles.SOURCES, *tiles_gradient.SOURCES}


def test_views_that_are_not_aligned(cu32: DeviceEngine) -> None:
    """Filters and images that begin in the middle of four floats, or whose channels are a part of more."""
    rng = np.random.default_rng(6)
    x = rng.standard_normal((2, 4, 5, 12)).astype(np.float32)
    w = rng.standard_normal(8 * 9 * 8 + 1).astype(np.float32)
    geometry = Geometry.make((4, 5), (3, 3), padding=(1, 1))
    filters = alpha.tensor(w, engine=cu32)[1:].reshape(8, 3, 3, 8)
    for first in (0, 1, 4):
        images = alpha.tensor(x, engine=cu32)[..., first : first + 8]
        y = cu32.conv2d(images, filters, None, geometry, 1)
        expected = oracles.conv2d(x[..., first : first + 8], w[1:].reshape(8, 3, 3, 8), (1, 1), (1, 1), (1, 1), 1)
        assert relative(y, expected) <= 5e-6


def test_sizes_that_do_not_fit_are_refused(cu32: DeviceEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = (alpha.zeros(shape, engine=cu32) for shape in ((1, 4, 4, 4), (4, 3, 3, 4)))
    with pytest.raises(alpha.errors.EngineError, match=r"expected images of \(5, 5\)"):
        cu32.conv2d(x, w, None, Geometry.make((5, 5), (3, 3)), 1)
    monkeypatch.setattr(problem, "FILTER_LIMIT", 100)
    with pytest.raises(alpha.errors.EngineError, match="fewer than 100 elements of filters, got 144"):
        cu32.conv2d(x, w, None, Geometry.make((4, 4), (3, 3)), 1)
    with pytest.raises(alpha.errors.ShapeError, match="expected filters"):
        cu32.conv2d(x, w, None, Geometry.make((4, 4), (2, 2)), 1)
