"""Products of the CPU engine whose factors are rounded to bfloat16: ``alpha.set_float32_precision("medium")``."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import alpha
from alpha import cpu, nn
from alpha.conv.problem import FORWARD, WEIGHT_GRAD
from alpha.cpu import isa, pairs, planner
from alpha.cpu.conv.algorithms import ALGORITHMS
from alpha.cpu.conv.problem import dense_problem
from alpha.cpu.convolution import MACS
from alpha.cpu.engine import CPUEngine
from alpha.cpu.gemm import planner as products
from alpha.cpu.kernels import pairs as kernels
from alpha.cpu.kernels.winograd_forms import FEEDBACK_OF_TWO, FORMS, Feedback, Matrix
from alpha.engine import IMAGE_ORDER
from alpha.geometry import Geometry
from alpha.nn import functional as F

Array = np.ndarray[Any, Any]

MOST_ERROR = 3.5e-3
"""The root of the mean square, relative to the exact result's; two roundings make 2.4e-3."""

SPECIAL = np.array(
    [
        np.nan, -np.nan, np.inf, -np.inf, 3.4e38, -3.39e38, 1e-40, -1e-45, 0.0, -0.0, 1 + 2**-8, 1 + 3 * 2**-8,
        -1 - 2**-8, 1 + 2**-8 + 2**-20, 2**-126, 65504.0, 1e-30,
    ],
    np.float32,
)  # fmt: skip
"""NaN, infinities, what becomes one, denormals, and ties that go down and up."""


@pytest.fixture(params=["instruction", "emulated"])
def medium(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The precision, by the processor's instruction and without it."""
    if request.param == "instruction" and not isa.DOTS:
        pytest.skip("this processor has no VDPBF16PS")
    monkeypatch.setattr(isa, "DOTS", request.param == "instruction")
    alpha.set_float32_precision("medium")
    yield request.param
    alpha.set_float32_precision("highest")


@pytest.fixture
def cpu_engine() -> CPUEngine:
    found = alpha.engine("cpu")
    assert isinstance(found, CPUEngine)
    return found


def rounded(x: Array) -> Array:
    """What products multiply, by the definition of ml_dtypes."""
    with np.errstate(all="ignore"):
        return x.astype(ml_dtypes.bfloat16).astype(np.float64)


def error(found: Array, exact: Array) -> float:
    return float(np.sqrt(((found.astype(np.float64) - exact) ** 2).mean() / (exact**2).mean()))


def numbers(rows: int, columns: int) -> Array:
    x = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32)
    x.ravel()[: len(SPECIAL)] = SPECIAL
    return x


# -- rounding ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("item", [4, 2])
@pytest.mark.parametrize(("rows", "columns"), [(3, 40), (5, 7), (37, 45), (1, 18), (2, 17)])
def test_words_hold_what_is_nearest(rows: int, columns: int, item: int, cpu_engine: CPUEngine) -> None:
    x = numbers(rows, columns)
    with np.errstate(all="ignore"):
        halves = x.astype(ml_dtypes.bfloat16)
    given = x if item == 4 else halves.view(np.int16)
    tag = np.float32(0) if item == 4 else np.int16(0)
    words = -(-columns // 2)
    in_rows, of_rows = np.full((rows, words), -1, np.int32), np.full((-(-rows // 2), columns), -1, np.int32)
    places = given.ctypes.data, rows, columns, words, in_rows.ctypes.data, 2
    cpu_engine.launch(kernels.pair_in_rows, tag, item, *places)
    cpu_engine.launch(kernels.pair_rows, tag, item, given.ctypes.data, 1, rows, columns, of_rows.ctypes.data)
    neighbours = in_rows.view(np.uint16).reshape(rows, 2 * words)
    check_halves(neighbours[:, :columns], halves)
    assert not neighbours[:, columns:].any()
    both = of_rows.view(np.uint16).reshape(-1, columns, 2)
    check_halves(both[:, :, 0], halves[0::2])
    check_halves(both[: rows // 2, :, 1], halves[1::2])
    assert not both[rows // 2 :, :, 1].any()


def check_halves(found: Array, expected: Array) -> None:
    """The same bits, but for NaN, which has any but the same sign."""
    bits, nan = expected.view(np.uint16), np.isnan(expected.astype(np.float32))
    np.testing.assert_array_equal(found[~nan], bits[~nan])
    assert np.isnan(found.copy().view(ml_dtypes.bfloat16).astype(np.float32)[nan]).all()


def test_numbers_are_rounded_in_place_of_the_instruction(cpu_engine: CPUEngine) -> None:
    x = numbers(9, 13)
    found = pairs.rounded(cpu_engine, alpha.tensor(x)).numpy()
    np.testing.assert_array_equal(found, rounded(x).astype(np.float32))


@pytest.mark.parametrize("value", SPECIAL.tolist())
def test_products_of_special_numbers(value: float, medium: str) -> None:
    """As of float32 numbers that are rounded; what is no normal number is nothing, or as good as nothing."""
    x = np.full((20, 33), 0.0, np.float32)
    x[:, 5] = value
    y = np.full((33, 18), 2.0, np.float32)
    with products.use("tiles"):
        found = (alpha.tensor(x) @ alpha.tensor(y)).numpy()
    with np.errstate(all="ignore"):
        expected = rounded(x)[:, 5:6] * 2.0 + np.zeros((20, 18))
    np.testing.assert_allclose(found, expected.astype(np.float32), rtol=1e-6, atol=2**-125)


# -- convolutions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["images", "positions", "panels", "taps"])
@pytest.mark.parametrize(
    ("x_shape", "w_shape", "options"),
    [
        ((4, 7, 7, 5), (9, 3, 3, 5), {"padding": 1}),
        ((5, 8, 8, 16), (32, 3, 3, 16), {"stride": 2, "padding": 1}),
        ((3, 8, 8, 8), (12, 1, 1, 8), {}),
        ((1, 5, 5, 7), (6, 1, 1, 7), {}),
        ((4, 6, 6, 8), (8, 3, 3, 4), {"padding": 1, "groups": 2}),
        ((2, 6, 6, 6), (6, 3, 3, 3), {"padding": 1, "groups": 2}),
        ((1, 9, 9, 3), (7, 5, 5, 3), {"padding": 2}),
        ((2, 5, 5, 16), (512, 3, 3, 16), {"padding": 1, "dilation": 2}),
    ],
)
def test_convolutions_and_both_gradients(
    algorithm: str, x_shape: tuple[int, ...], w_shape: tuple[int, ...], options: dict[str, Any], medium: str
) -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in (x_shape, w_shape))
    b = rng.standard_normal(w_shape[:1]).astype(np.float32)

    def results(x: Array, w: Array, dtype: Any, dy: Array | None = None) -> tuple[Array, ...]:
        given = [alpha.tensor(one.astype(dtype), requires_grad=True) for one in (x, w)]
        y = F.conv2d(*given, alpha.tensor(b.astype(dtype)), **options)
        dy = rng.standard_normal(y.shape).astype(np.float32) if dy is None else dy
        y.backward(alpha.tensor(dy.astype(dtype)))
        return (*(one.detach().numpy() for one in (y, given[0].grad, given[1].grad)), dy)  # type: ignore[union-attr]

    with planner.use(algorithm):
        *found, dy = results(x, w, np.float32)
    exact = results(x, w, np.float64, dy)[:3]
    of_rounded = results(rounded(x), rounded(w), np.float64, rounded(dy))[:3]
    for one, true, multiplied in zip(found, exact, of_rounded, strict=True):
        assert one.dtype == np.float32 and error(one, true) < MOST_ERROR
        if medium == "emulated":
            assert error(one, multiplied) < 1e-5


@pytest.mark.parametrize(
    ("x_shape", "w_shape", "options"),
    [
        ((40, 12, 12, 64), (128, 3, 3, 64), {"stride": 2, "padding": 1}),
        ((32, 8, 8, 256), (64, 1, 1, 256), {}),
        ((3, 4, 40_000, 8), (8, 1, 3, 8), {"padding": (0, 9_000), "dilation": (1, 9_000)}),
        ((2, 9, 9, 8), (8, 9, 9, 8), {"padding": 8}),
    ],
)
def test_what_is_chosen_stays_near(
    x_shape: tuple[int, ...], w_shape: tuple[int, ...], options: dict[str, Any], medium: str
) -> None:
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in (x_shape, w_shape))
    found = F.conv2d(alpha.tensor(x), alpha.tensor(w), **options).numpy()
    exact = F.conv2d(alpha.tensor(x.astype(float)), alpha.tensor(w.astype(float)), **options).numpy()
    assert error(found, exact) < MOST_ERROR


@pytest.mark.usefixtures("same_figures")
def test_a_named_algorithm_that_computes_neither_leaves_the_choice() -> None:
    """As without the name; of filter gradients, among the algorithms that multiply by no zero."""
    pointwise = dense_problem(FORWARD, Geometry.make((16, 16), (1, 1)), 64, 256, 256, 1)
    without_name = pairs.choose(pointwise)
    assert without_name is not None
    with planner.use("tap_rows"):
        assert pairs.choose(pointwise) == without_name
    tall = dense_problem(WEIGHT_GRAD, Geometry.make((32, 32), (7, 1)), 128, 256, 256, 1)
    with planner.use("winograd_words"):
        named = pairs.choose(tall)
        assert named is not None and named.algorithm.exact
    served = dense_problem(FORWARD, Geometry.make((16, 16), (3, 3), padding=(1, 1)), 64, 256, 256, 1)
    with planner.use("winograd4"):  # which multiplies float32 factors alone
        assert pairs.choose(served) is None


@pytest.mark.parametrize("slope", [None, 0.0, 0.1])
def test_residuals_and_activations(slope: float | None, medium: str) -> None:
    rng = np.random.default_rng(0)
    x, w, r = (rng.standard_normal(s).astype(np.float32) for s in ((3, 6, 6, 8), (8, 3, 3, 8), (3, 6, 6, 8)))
    activation = None if slope is None else "leaky_relu"
    options: dict[str, Any] = {"padding": 1, "activation": activation, "negative_slope": slope or 0.0}

    def result(dtype: Any, *given: Array) -> Array:
        images, filters, residual = (alpha.tensor(one.astype(dtype)) for one in given)
        return F.conv2d(images, filters, residual=residual, **options).numpy()

    with planner.use("images"):
        found = result(np.float32, x, w, r)
    np.testing.assert_allclose(found, result(np.float64, rounded(x), rounded(w), r), rtol=1e-4, atol=1e-4)


def test_filters_in_inference_are_kept_until_they_change(medium: str) -> None:
    conv = nn.Conv2d(8, 8, 3, padding=1, bias=False)
    x = alpha.randn(4, 6, 6, 8)
    with planner.use("images"), alpha.no_grad():
        first = conv(x)
        np.testing.assert_array_equal(conv(x).numpy(), first.numpy())
        conv.weight.mul_(2.0)
        np.testing.assert_array_equal(conv(x).numpy(), 2 * first.numpy())


def test_of_winograds_tiles_the_smallest_alone_is_rounded() -> None:
    """F(4, 3) of numbers rounded to bfloat16 would lose three bits."""
    assert {found.name for found in ALGORITHMS if found.of_pairs} == {"images", "positions", "panels", "taps"}
    assert {(found.name, found.results) for found in ALGORITHMS if found.rounds} == {("winograd_words", 2)}  # type: ignore[attr-defined]


# -- Winograd's products -------------------------------------------------------------------------------------------

needs_instruction = pytest.mark.skipif(not isa.DOTS, reason="this processor has no VDPBF16PS")
WINOGRADS = [
    ((3, 9, 7, 6), (5, 3, 3, 6), {"padding": 1}),
    ((1, 8, 8, 16), (33, 3, 3, 16), {}),
    ((5, 6, 11, 34), (70, 3, 3, 34), {"padding": (2, 0)}),
    ((2, 9, 10, 8), (12, 3, 3, 4), {"padding": 1, "groups": 2}),
    ((2, 9, 10, 8), (8, 3, 3, 8), {"padding": 2, "dilation": 2}),
    ((16, 7, 7, 512), (510, 3, 3, 512), {"padding": 1}),  # in stages
    ((3, 2, 2, 8), (8, 3, 3, 8), {"padding": 1}),
]
"""Shapes of images and filters, and the steps: of an even number of channels."""


def lying(x: Array, dtype: Any) -> alpha.Tensor:
    """Images as the engine lays them out, in rows, columns, images and channels."""
    return alpha.engine("cpu").dense(alpha.tensor(x).to(dtype), IMAGE_ORDER)


def draw(*shapes: tuple[int, ...]) -> list[Array]:
    rng = np.random.default_rng(3)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


@needs_instruction
@pytest.mark.parametrize("dtype", [alpha.float32, alpha.bfloat16])
@pytest.mark.parametrize(("x_shape", "w_shape", "options"), WINOGRADS)
def test_factors_rounded_after_winograds_sums(
    x_shape: tuple[int, ...], w_shape: tuple[int, ...], options: dict[str, Any], dtype: Any
) -> None:
    """Two roundings, made larger by the sums and smaller by feedback, and a result's own of 1.7e-3 in bfloat16."""
    x, w = draw(x_shape, w_shape)
    alpha.set_float32_precision("medium")
    try:
        given = lying(x, dtype).requires_grad_(), alpha.tensor(w).to(dtype)
        with planner.use("winograd_words"):
            y = F.conv2d(*given, **options)
            dy = draw(tuple(y.shape))[0]
            y.backward(lying(dy, dtype))
            products = MACS["conv2d_input_grad"]
    finally:
        alpha.set_float32_precision("highest")
    of = rounded if dtype == alpha.bfloat16 else np.asarray
    exact_x = alpha.tensor(of(x).astype(np.float64), requires_grad=True)
    exact = F.conv2d(exact_x, alpha.tensor(of(w).astype(np.float64)), **options)
    exact.backward(alpha.tensor(of(dy).astype(np.float64)))
    assert given[0].grad is not None and exact_x.grad is not None
    most = MOST_ERROR if dtype == alpha.float32 else np.hypot(MOST_ERROR, 1.8e-3)
    assert 5e-4 < error(y.detach().float().numpy(), exact.detach().numpy()) < most
    if (w_shape[0] // options.get("groups", 1)) % 2 == 0:
        assert 5e-4 < error(given[0].grad.float().numpy(), exact_x.grad.numpy()) < most
        assert products < 9 * np.prod(dy.shape) * w_shape[3]


@needs_instruction
@pytest.mark.parametrize("algorithm", ["winograd_words", "winograd", "winograd4", "images", "positions"])
@pytest.mark.parametrize("slope", [None, 0.0, 0.1])
def test_images_of_halves_with_all_that_follows(algorithm: str, slope: float | None) -> None:
    """Read, added and written as they lie: one rounding, of the float32 result that their numbers have."""
    x, w, b, r = draw((4, 7, 9, 18), (20, 3, 3, 18), (20,), (4, 7, 9, 20))
    x, w, b, r = (rounded(one).astype(np.float32) for one in (x, w, b, r))
    options: dict[str, Any] = {"padding": 1, "negative_slope": slope or 0.0}
    options["activation"] = None if slope is None else "leaky_relu"

    def result(dtype: Any) -> Array:
        given = lying(x, dtype), alpha.tensor(w).to(dtype), alpha.tensor(b).to(dtype)
        with alpha.no_grad(), planner.use(algorithm):
            y = F.conv2d(*given, residual=lying(r, dtype), **options)
        assert y.dtype == dtype
        return y.float().numpy()

    try:
        alpha.set_float32_precision("medium" if algorithm not in ("winograd", "winograd4") else "highest")
        np.testing.assert_array_equal(result(alpha.bfloat16), rounded(result(alpha.float32)))
    finally:
        alpha.set_float32_precision("highest")


@needs_instruction
@pytest.mark.parametrize("algorithm", ["winograd_words", "winograd4", "images"])
def test_gradients_of_halves_are_added_to_what_is_there(algorithm: str, cpu_engine: CPUEngine) -> None:
    w, dy, before = draw((6, 3, 3, 10), (3, 8, 8, 6), (3, 8, 8, 10))
    geometry = Geometry.make((8, 8), (3, 3), padding=(1, 1))
    found = []
    for place in (True, False):
        total = lying(before, alpha.bfloat16)
        if not place:  # not as results lie
            total = alpha.tensor(before).to(alpha.bfloat16)
        with planner.use(algorithm):
            given = lying(dy, alpha.bfloat16), alpha.tensor(w).to(alpha.bfloat16)
            result = cpu_engine.conv2d_input_grad(*given, geometry, 1, accumulate=total)
        assert result is total
        found.append(result.float().numpy())
    exact_x = alpha.tensor(np.zeros(before.shape), requires_grad=True)
    F.conv2d(exact_x, alpha.tensor(rounded(w)), padding=1).backward(alpha.tensor(rounded(dy)))
    assert exact_x.grad is not None
    for one in found:
        assert error(one, exact_x.grad.numpy() + rounded(before)) < 5e-3


@needs_instruction
@pytest.mark.parametrize("algorithm", ["winograd", "winograd3", "winograd4"])
@pytest.mark.parametrize(
    ("x_shape", "channels", "options"),
    [
        ((4, 7, 9, 18), 20, {"padding": 1}),
        ((1, 8, 8, 33), 7, {"padding": 1}),
        ((40, 5, 6, 70), 130, {"padding": (2, 0)}),
        ((3, 9, 9, 6), 8, {"padding": 1, "groups": 2}),
    ],
)
def test_filter_gradients_read_halves(
    algorithm: str, x_shape: tuple[int, ...], channels: int, options: dict[str, Any]
) -> None:
    """They have the bits of those of float32 images, rounded once."""
    x, w = draw(x_shape, (channels, 3, 3, x_shape[3] // options.get("groups", 1)))
    found = []
    for dtype in (alpha.bfloat16, alpha.float32):
        images = lying(rounded(x).astype(np.float32), dtype)
        filters = alpha.tensor(rounded(w).astype(np.float32)).to(dtype).requires_grad_()
        with planner.use(algorithm):
            y = F.conv2d(images, filters, **options)
            dy = draw(tuple(y.shape))[0]
            y.backward(lying(rounded(dy).astype(np.float32), dtype))
        assert filters.grad is not None and filters.grad.dtype == dtype
        found.append(filters.grad.float().numpy())
    np.testing.assert_array_equal(found[0], rounded(found[1]))


@needs_instruction
def test_a_nan_reaches_what_reads_it_and_no_more_than_its_tiles() -> None:
    x, w = draw((2, 12, 12, 4), (4, 3, 3, 4))
    x[1, 5, 6, 2] = np.nan
    with planner.use("winograd_words"):
        y = F.conv2d(lying(x, alpha.bfloat16), alpha.tensor(w).to(alpha.bfloat16), padding=1).float().numpy()
    assert np.isnan(y[1, 4:7, 5:8]).all() and np.isfinite(y[0]).all()
    assert np.isfinite(y[1, :3]).all() and np.isfinite(y[1, 8:]).all()


@needs_instruction
def test_winograds_rounded_filters_are_kept_until_they_change() -> None:
    conv = nn.Conv2d(8, 8, 3, padding=1, bias=False).to(alpha.bfloat16)
    x = alpha.randn(4, 6, 6, 8).to(alpha.bfloat16)
    with planner.use("winograd_words"), alpha.no_grad():
        first = conv(x)
        np.testing.assert_array_equal(conv(x).float().numpy(), first.float().numpy())
        conv.weight.mul_(2.0)
        np.testing.assert_array_equal(conv(x).float().numpy(), 2 * first.float().numpy())


def test_feedback_takes_a_fifth_of_the_error() -> None:
    """By the definition, in float64: the products' root mean square error with shares of errors and without."""
    rng = np.random.default_rng(0)
    form = FORMS[2][True, 3, 1, 0]
    b, g, a = (np.array(matrix) for matrix in (form.b, form.g, form.a))
    d, w = rng.standard_normal((20, 200, 4, 4)), rng.standard_normal((30, 200, 3, 3))

    def result(v: Array, u: Array) -> Array:
        products: Array = a @ np.einsum("tcij,ocij->toij", v, u) @ a.T
        return products

    v, u, found = b @ d @ b.T, g @ w @ g.T, []
    for feedback in (FEEDBACK_OF_TWO, Feedback(((0,) * 4,) * 4, ((0,) * 4,) * 4)):
        rounded_both = fed_back(v, feedback.of_inputs), fed_back(u, feedback.of_filters)
        found.append(error(result(*rounded_both), result(v, u)))
    assert found[0] < MOST_ERROR < 3.7e-3 < found[1] and 0.78 < found[0] / found[1] < 0.87, found


def fed_back(values: Array, shares: Matrix) -> Array:
    """The last two axes' places rounded, those without shares first."""
    share, made = np.array(shares), np.zeros_like(values)
    first = [not row.any() for row in share]
    for stage in ((True, True), (True, False), (False, True), (False, False)):
        for i, j in itertools.product(range(4), repeat=2):
            if (first[i], first[j]) == stage:
                errors = made - values
                along_rows = np.einsum("k,...k->...", share[i], errors[..., :, j])
                along_columns = np.einsum("k,...k->...", share[j], errors[..., i, :])
                both = np.einsum("k,n,...kn->...", share[i], share[j], errors)
                made[..., i, j] = rounded(values[..., i, j] + along_rows + along_columns - both)
    return made


# -- matrices ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((5, 7), (7, 9)),
        ((33, 64), (64, 40)),
        ((3, 17, 21), (3, 21, 18)),
        ((2, 1, 17, 22), (5, 22, 18)),
        ((70, 600), (600, 90)),
    ],
)
def test_matrices_of_any_layout(left: tuple[int, ...], right: tuple[int, ...], medium: str) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal(left).astype(np.float32), rng.standard_normal(right).astype(np.float32)
    exact, multiplied = x.astype(np.float64) @ y, rounded(x) @ rounded(y)
    layouts: tuple[Callable[[Array], alpha.Tensor], ...] = (
        alpha.tensor,
        lambda a: alpha.tensor(np.ascontiguousarray(a.swapaxes(-1, -2))).swapaxes(-1, -2),
        lambda a: alpha.tensor(np.repeat(a, 2, -1))[..., ::2],
    )
    with products.use("tiles"):
        for lay in layouts:
            for put in layouts:
                found = (lay(x) @ put(y)).numpy()
                assert error(found, exact) < MOST_ERROR and error(found, multiplied) < 1e-5


def test_linear_with_its_activation_and_gradients(medium: str) -> None:
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(s).astype(np.float32) for s in ((33, 47), (21, 47), (21,))]
    results = []
    for dtype in (np.float32, np.float64):
        x, w, b = (alpha.tensor(one.astype(dtype), requires_grad=True) for one in given)
        with products.use("tiles"):
            y = F.linear(x, w, b, F.gelu)
            F.linear(x, w, b).backward(alpha.tensor(given[0][:, :21].astype(dtype)))
        results.append([one.detach().numpy() for one in (y, x.grad, w.grad, b.grad)])  # type: ignore[union-attr]
    for found, exact in zip(*results, strict=True):
        assert error(found, exact) < MOST_ERROR


def test_the_setting_holds_from_the_next_call_on() -> None:
    """Launches that earlier calls prepared do not outlive it."""
    x, y = alpha.randn(300, 300), alpha.randn(300, 300)
    exact = [(x @ y).numpy() for _ in range(3)][-1]
    try:
        alpha.set_float32_precision("medium")
        found = [(x @ y).numpy() for _ in range(3)]
        np.testing.assert_array_equal(found[0], found[2])
        assert 1e-4 < error(found[0], exact) < MOST_ERROR
        a, b = x.double(), y.double()
        terms = np.abs(a.numpy()) @ np.abs(b.numpy())  # a sum's error is at most the length times that of its terms
        assert np.all(np.abs((a @ b).numpy() - a.numpy() @ b.numpy()) <= 300 * np.finfo(np.float64).eps * terms)
    finally:
        alpha.set_float32_precision("highest")
    np.testing.assert_array_equal((x @ y).numpy(), exact)


def test_explain_says_what_is_rounded(medium: str, cpu_engine: CPUEngine) -> None:
    told = str(cpu.explain(cpu_engine, "forward", (128, 32, 32, 64), (128, 3, 3, 64), 2, 1))
    also = str(cpu.explain_product(cpu_engine, (1024, 1024), (1024, 1024)))
    wanted = {"instruction": "by VDPBF16PS", "emulated": "VDPBF16PS emulated"}[medium]
    assert wanted in told and wanted in also
    alpha.set_float32_precision("highest")
    assert "bfloat16" not in str(cpu.explain_product(cpu_engine, (1024, 1024), (1024, 1024)))
