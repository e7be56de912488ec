"""Products of three on the tensor cores: as near to the exact results as multiply-adds are, infinities, who takes them.

The driver that stands in for a device cuts off the tensor cores' sums as they do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.cu32 import planner, tf32
from alpha.cu32.base import DeviceEngine
from alpha.cu32.conv.problem import Aligned, Problem, dense_problem
from alpha.cu32.products import Product
from alpha.engine import IMAGE_ORDER
from alpha.geometry import Geometry
from tests.cu32.test_matrix import LAYOUTS, on_device
from tests.cu32.test_planner import H100, plan
from tests.cu32.test_tf32 import CONVOLUTIONS

Array = np.ndarray[Any, Any]
Draw = Callable[..., Array]

WORSE = 1.5
"""How much farther from the exact results they may be than multiply-adds are: in the mean square, and at most."""


def normal(rng: np.random.Generator, shape: tuple[int, ...], _: int) -> Array:
    return rng.standard_normal(shape)


def positive(rng: np.random.Generator, shape: tuple[int, ...], _: int) -> Array:
    """Sums of these, where they are cut off, all lose."""
    return rng.random(shape)


def wide(rng: np.random.Generator, shape: tuple[int, ...], _: int) -> Array:
    """Exponents from -40 to 40."""
    return rng.standard_normal(shape) * np.exp2(rng.integers(-40, 41, shape))


def cancelling(rng: np.random.Generator, shape: tuple[int, ...], axis: int) -> Array:
    """Along an axis the second half takes back the first, but for a thousandth."""
    x = rng.standard_normal(shape)
    half = shape[axis] // 2
    first, second = (np.take(x, range(start, start + half), axis) for start in (0, half))
    return np.concatenate([first, 1e-3 * second - first], axis)


def constant(rng: np.random.Generator, shape: tuple[int, ...], axis: int) -> Array:
    """The same all along an axis, so that the other side's sums are what remains."""
    return np.broadcast_to(rng.standard_normal((*shape[:axis], 1, *shape[axis + 1 :])), shape)


DRAWS: dict[str, tuple[Draw, Draw]] = {
    "normal": (normal, normal),
    "positive": (positive, positive),
    "wide": (wide, wide),
    "one wide": (normal, wide),
    "cancelling": (cancelling, constant),
}


@pytest.fixture(autouse=True)
def highest() -> Iterator[None]:
    """The default precision for each test here."""
    before = alpha.get_float32_precision()
    alpha.set_float32_precision("highest")
    yield
    alpha.set_float32_precision(before)


def errors(got: Array, exact: Array, sizes: Array) -> tuple[float, float]:
    """The root of the mean square, and the largest: differences relative to the sum of the products' sizes."""
    off = np.abs(got - exact) / sizes
    return float(np.sqrt((off**2).mean())), float(off.max())


def compare(run: Callable[[], Array], exact: Array, sizes: Array) -> None:
    """Holds what "threefold" computes to what multiply-adds do, both in one part: parts make either nearer."""
    with planner.use("threefold", parts=1):
        ours = run()
    with planner.use("tiles", parts=1):
        theirs = run()
    assert not np.array_equal(ours, theirs)  # it is another algorithm indeed
    for mine, plain in zip(errors(ours, exact, sizes), errors(theirs, exact, sizes), strict=True):
        assert mine <= WORSE * plain + 2.0**-30


@pytest.mark.parametrize("depth", [256, 612, 2048])
@pytest.mark.parametrize("kind", DRAWS)
def test_products_are_as_near(cu32: DeviceEngine, rng: np.random.Generator, kind: str, depth: int) -> None:
    of_x, of_y = DRAWS[kind]
    x, y = of_x(rng, (96, depth), 1).astype(np.float32), of_y(rng, (depth, 100), 0).astype(np.float32)
    a, b = cu32.from_numpy(x), cu32.from_numpy(y)
    exact, sizes = x.astype(np.float64) @ y, np.abs(x).astype(np.float64) @ np.abs(y)
    compare(lambda: cu32.to_numpy(cu32.matmul(a, b)), exact, sizes)


def test_sums_that_hardly_round_are_twice_as_far_off(cu32: DeviceEngine, rng: np.random.Generator) -> None:
    """Where each term all but cancels the one before, multiply-adds are nearer: the documentation says by how much."""
    x = rng.standard_normal((96, 512)).astype(np.float32)
    x[:, 1::2] = -x[:, ::2] * (1 + 1e-3 * rng.standard_normal((96, 256)))
    y = np.repeat(rng.standard_normal((256, 100)), 2, 0).astype(np.float32)
    a, b = cu32.from_numpy(x), cu32.from_numpy(y)
    exact, sizes = x.astype(np.float64) @ y, np.abs(x).astype(np.float64) @ np.abs(y)
    found = []
    for algorithm in ("threefold", "tiles"):
        with planner.use(algorithm, parts=1):
            found.append(errors(cu32.to_numpy(cu32.matmul(a, b)), exact, sizes)[0])
    assert WORSE * found[1] < found[0] < 2.5 * found[1] and found[0] < 2.0**-26


@pytest.mark.parametrize("tile", [64, 128])
@pytest.mark.parametrize("turned", LAYOUTS)
def test_products_of_every_layout(
    cu32: DeviceEngine, rng: np.random.Generator, turned: tuple[bool, bool], tile: int
) -> None:
    for rows, columns, depth in ((132, 140, 256), (12, 8, 260), (68, 4, 612)):
        x, y = (rng.standard_normal(s).astype(np.float32) for s in ((rows, depth), (depth, columns)))
        with planner.use("threefold", tile=(tile, tile)):
            got = cu32.to_numpy(cu32.matmul(on_device(cu32, x, turned[0]), on_device(cu32, y, turned[1])))
        sizes = np.abs(x).astype(np.float64) @ np.abs(y)
        assert errors(got, x.astype(np.float64) @ y, sizes)[1] <= 3e-7


def test_batches_and_parts(cu32: DeviceEngine, rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 1, 8, 4096)).astype(np.float32)
    y = rng.standard_normal((2, 4096, 12)).astype(np.float32)
    with planner.use("threefold", parts=4):
        got = cu32.to_numpy(cu32.matmul(cu32.from_numpy(x), cu32.from_numpy(y)))
    sizes = np.abs(x).astype(np.float64) @ np.abs(y)
    assert errors(got, x.astype(np.float64) @ y, sizes)[1] <= 3e-7


def three_operators(
    engine: Any, arrays: list[Array], geometry: Geometry, groups: int, dtype: Any = np.float32
) -> list[Array]:
    """y with its bias, dx added to what was there, and dw."""
    x, w, dy, bias, before = (engine.from_numpy(array.astype(dtype)) for array in arrays)
    adds = engine.empty(before.shape, before.dtype, IMAGE_ORDER)
    engine.copy(before, adds)
    found = (
        engine.conv2d(x, w, bias, geometry, groups),
        engine.conv2d_input_grad(dy, w, geometry, groups, accumulate=adds),
        engine.conv2d_weight_grad(x, dy, geometry, groups),
    )
    return [engine.to_numpy(one) for one in found]


@pytest.mark.parametrize("tile", [(128, 128), (128, 64), (64, 64)], ids=str)
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_convolutions(
    cu32: DeviceEngine,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
    case: tuple[Any, ...],
    tile: tuple[int, int],
) -> None:
    """All three operators, with sums of any length: within what products leave out, and sums of eighths round off."""
    monkeypatch.setattr(tf32, "FEWEST_TERMS", 1)
    images, size, inside, outside, filter, stride, padding, dilation, groups = case
    geometry = Geometry.make(size, (filter,) * 2, (stride,) * 2, (padding,) * 2, (dilation,) * 2)
    shapes = ((images, *size, inside), (outside, filter, filter, inside // groups), (images, *geometry.output, outside))
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in (*shapes, (outside,), (images, *size, inside))]
    cpu = alpha.engine("cpu")
    exact = three_operators(cpu, arrays, geometry, groups, np.float64)
    sizes = three_operators(cpu, [np.abs(array) for array in arrays], geometry, groups, np.float64)
    with planner.use("threefold", tile=tile):
        found = three_operators(cu32, arrays, geometry, groups)
    for got, right, size_of in zip(found, exact, sizes, strict=True):
        assert errors(got, right, size_of)[1] <= 4e-7


@pytest.mark.parametrize("kind", ["normal", "positive", "wide"])
def test_convolutions_are_as_near(cu32: DeviceEngine, rng: np.random.Generator, kind: str) -> None:
    geometry = Geometry.make((7, 6), (3, 3), (1, 1), (1, 1))
    draw = DRAWS[kind][0]
    shapes = ((9, 7, 6, 32), (40, 3, 3, 32), (9, 7, 6, 40))
    x, w, dy = (draw(rng, shape, 0).astype(np.float32) for shape in shapes)
    bias, before = np.zeros(40, np.float32), np.zeros((9, 7, 6, 32), np.float32)
    cpu, arrays = alpha.engine("cpu"), [x, w, dy, bias, before]
    exact = three_operators(cpu, arrays, geometry, 1, np.float64)
    sizes = three_operators(cpu, [np.abs(array) for array in arrays], geometry, 1, np.float64)
    for place in range(3):
        compare(lambda: three_operators(cu32, arrays, geometry, 1)[place], exact[place], sizes[place])  # noqa: B023


def test_what_is_no_number_passes(cu32: DeviceEngine, rng: np.random.Generator) -> None:
    """As with multiply-adds: infinities, what is no number, and the largest numbers, on either side."""
    largest = np.finfo(np.float32).max
    for value in (np.inf, -np.inf, np.nan, largest, -largest):
        x, y = (rng.standard_normal(shape).astype(np.float32) for shape in ((40, 264), (264, 36)))
        x[3, 5], y[70, 9] = value, value
        x[8] = 0
        results = []
        for algorithm in ("threefold", "tiles"):
            with planner.use(algorithm):
                results.append(cu32.to_numpy(cu32.matmul(cu32.from_numpy(x), cu32.from_numpy(y))))
        ours, theirs = results
        assert np.array_equal(np.isnan(ours), np.isnan(theirs)) and np.array_equal(np.isinf(ours), np.isinf(theirs))
        finite = np.isfinite(theirs)
        assert np.array_equal(np.sign(ours[~finite & ~np.isnan(theirs)]), np.sign(theirs[~finite & ~np.isnan(theirs)]))
        np.testing.assert_allclose(ours[finite], theirs[finite], rtol=1e-4, atol=1e-4)


GEOMETRY = Geometry.make((32, 32), (3, 3), (1, 1), (1, 1))
LAYER = replace(dense_problem("forward", GEOMETRY, 512, 64, 64, 1), split=True)


def test_which_problems_take_them() -> None:
    def takes(problem: Problem) -> bool:
        return "threefold" in (algorithm.name for algorithm in planner.candidates(problem))

    assert (
        takes(LAYER) and takes(replace(LAYER, operator="weight_grad")) and takes(replace(LAYER, operator="input_grad"))
    )
    assert not takes(replace(LAYER, aligned=Aligned(x=False)))
    assert not takes(replace(LAYER, in_channels=4))
    assert not takes(replace(LAYER, item=8))
    assert not takes(replace(LAYER, split=False))
    pointwise = replace(LAYER, geometry=Geometry.make((32, 32), (1, 1), (1, 1), (0, 0)))
    assert not takes(pointwise) and takes(replace(pointwise, in_channels=256))  # sums of 64 and of 256 terms
    assert plan(LAYER, H100).algorithm == "threefold"
    product = Product.dense((512, 512), (512, 512), split=True)
    assert plan(product, H100).algorithm == "threefold"
    assert plan(replace(product, depth=100), H100).algorithm == "tiles"
    # Where tensor cores are no faster, as on GPUs for games, multiply-adds are.
    assert plan(LAYER, replace(H100, capability=(8, 6))).algorithm == "tiles"


def test_the_precision_decides(cu32: DeviceEngine, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = (cu32.from_numpy(rng.standard_normal((256, 256)).astype(np.float32)) for _ in range(2))
    results = {}
    for precision in ("ieee", "highest", "high"):
        alpha.set_float32_precision(precision)
        assert alpha.get_float32_precision() == precision
        assert tf32.threefold(cu32) == (precision == "highest") and tf32.enabled(cu32) == (precision == "high")
        with planner.use("threefold"):
            results[precision] = cu32.to_numpy(cu32.matmul(x, y))
    alpha.set_float32_precision("ieee")
    with planner.use("tiles"):
        assert np.array_equal(results["ieee"], cu32.to_numpy(cu32.matmul(x, y)))
    assert not np.array_equal(results["highest"], results["ieee"])
    alpha.set_float32_precision("highest")
    monkeypatch.setattr(cu32.device, "capability", (7, 5))
    assert not tf32.threefold(cu32)
