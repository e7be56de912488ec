"""Products of the CPU engine whose factors are rounded to bfloat16: ``alpha.set_float32_precision("medium")``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import alpha
from alpha import cpu, nn
from alpha.cpu import isa, pairs, planner
from alpha.cpu.conv.algorithms import ALGORITHMS
from alpha.cpu.engine import CPUEngine
from alpha.cpu.gemm import planner as products
from alpha.cpu.kernels import pairs as kernels
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


def test_winograd_is_of_float32_alone() -> None:
    """F(4, 3) of numbers rounded to bfloat16 would lose three bits."""
    assert {found.name for found in ALGORITHMS if found.of_pairs} == {"images", "positions", "panels", "taps"}


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
        np.testing.assert_allclose((x.double() @ y.double()).numpy(), x.double().numpy() @ y.double().numpy(), 1e-9)
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
