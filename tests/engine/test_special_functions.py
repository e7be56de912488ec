"""Bessel's and Airy's functions, incomplete gamma functions and orthogonal polynomials: values against mpmath, limits,
gradients and errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import special
from alpha.engine import Engine
from alpha.errors import AlphaError
from alpha.functions import special_coefficients, special_fit
from alpha.functions.special_polynomials import MOST
from alpha.testing import gradcheck

Array = np.ndarray[Any, Any]
Interval = tuple[float, float]

WAVES: dict[str, tuple[Callable[[Any, Any], Any], tuple[Interval, ...]]] = {
    "bessel_j0": (lambda mp, x: mp.besselj(0, x), ((-8, 8), (7, 60), (1e3, 1e4))),
    "bessel_j1": (lambda mp, x: mp.besselj(1, x), ((-8, 8), (7, 60), (-1e-5, 1e-5))),
    "bessel_y0": (lambda mp, x: mp.bessely(0, x), ((0, 8), (7, 60), (0, 1e-8))),
    "bessel_y1": (lambda mp, x: mp.bessely(1, x), ((0, 8), (7, 60), (0, 1e-8))),
    "spherical_bessel_j0": (lambda mp, x: mp.sin(x) / x, ((-0.5, 0.5), (-9, 9), (10, 1000))),
    "airy_ai": (lambda mp, x: mp.airyai(x), ((-4, 2), (-20, -4))),
}
"""Functions that cross 0: the intervals of arguments, and mpmath's values. An error is relative to the median size."""

ABOVE_0: dict[str, tuple[Callable[[Any, Any], Any], tuple[Interval, ...]]] = {
    "modified_bessel_i0": (lambda mp, x: mp.besseli(0, x), ((0, 9), (9, 80))),
    "modified_bessel_i1": (lambda mp, x: mp.besseli(1, x), ((0, 9), (9, 80))),
    "modified_bessel_k0": (lambda mp, x: mp.besselk(0, x), ((0, 2), (2, 10), (10, 80), (0, 1e-9))),
    "modified_bessel_k1": (lambda mp, x: mp.besselk(1, x), ((0, 2), (2, 10), (10, 80), (0, 1e-9))),
    "scaled_modified_bessel_k0": (lambda mp, x: mp.besselk(0, x) * mp.exp(x), ((0, 2), (2, 10), (10, 6000))),
    "scaled_modified_bessel_k1": (lambda mp, x: mp.besselk(1, x) * mp.exp(x), ((0, 2), (2, 10), (10, 6000))),
    "airy_ai": (lambda mp, x: mp.airyai(x), ((0, 2), (1, 10), (10, 15))),
}
"""Functions, or parts of them, above 0: an error is relative to the value."""


def values(engine: Engine, function: Callable[..., Any], *arguments: Array) -> Array:
    return np.asarray(function(*[alpha.tensor(x, engine=engine) for x in arguments]).to("cpu"), np.float64)


def exact(function: Callable[[Any, Any], Any], x: Array) -> Array:
    mp: Any = pytest.importorskip("mpmath")
    with mp.workdps(30):
        return np.array([float(function(mp, mp.mpf(float(one)))) for one in x])


@pytest.mark.needs("mpmath")
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", WAVES)
def test_functions_that_cross_0(engine: Engine, name: str, dtype: Any) -> None:
    rng, (function, intervals) = np.random.default_rng(0), WAVES[name]
    for low, high in intervals:
        x = rng.uniform(low, high, 60).astype(dtype)
        wanted = exact(function, x)
        size = np.maximum(np.abs(wanted), 0.3 * np.median(np.abs(wanted)))
        limit = 300 if name == "airy_ai" and low < -4 else 80  # of whose phase the argument's digits are the limit
        assert (np.abs(values(engine, getattr(special, name), x) - wanted) / size).max() < limit * np.finfo(dtype).eps


@pytest.mark.needs("mpmath")
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", ABOVE_0)
def test_functions_above_0(engine: Engine, name: str, dtype: Any) -> None:
    rng, (function, intervals) = np.random.default_rng(0), ABOVE_0[name]
    for low, high in intervals:
        x = rng.uniform(low, high, 60).astype(dtype)
        wanted = exact(function, x)
        limit = 150 if name == "airy_ai" else 40
        error = np.abs(values(engine, getattr(special, name), x) - wanted) / wanted
        assert error.max() < limit * np.finfo(dtype).eps


def _incomplete(rng: np.random.Generator) -> dict[str, tuple[Array, Array]]:
    """Exponents and arguments in each region of the formulas."""
    small, tiny = rng.uniform(0, 1, 40), 10 ** rng.uniform(-12, -1, 40)
    usual, large, huge = rng.uniform(1, 30, 60), rng.uniform(30, 300, 40), 10 ** rng.uniform(3, 6, 20)
    return {
        "series of small exponents": (small, rng.uniform(0.01, 2, 40)),
        "exponents near 0": (tiny, 10 ** rng.uniform(-6, 1, 40)),
        "fraction of small exponents": (small, rng.uniform(2, 50, 40)),
        "usual": (usual, rng.uniform(0.1, 60, 60)),
        "near each other": (usual, usual + rng.uniform(-0.5, 3, 60) * np.sqrt(usual)),
        "Temme's expansion": (large, large * rng.uniform(0.5, 1.5, 40)),
        "large and far apart": (large, large * np.concatenate([rng.uniform(0.2, 0.5, 20), rng.uniform(1.5, 3, 20)])),
        "huge": (huge, huge + rng.uniform(-5, 5, 20) * np.sqrt(huge)),
    }


@pytest.mark.needs("mpmath")
def test_incomplete_gamma_functions(engine: Engine) -> None:
    mp: Any = pytest.importorskip("mpmath")
    for region, (a, x) in _incomplete(np.random.default_rng(0)).items():
        with mp.workdps(40):
            pairs = [(mp.mpf(float(one)), mp.mpf(float(other))) for one, other in zip(a, x, strict=True)]
            lower = np.array([float(mp.gammainc(one, 0, other, regularized=True)) for one, other in pairs])
            upper = np.array([float(mp.gammainc(one, other, mp.inf, regularized=True)) for one, other in pairs])
        for function, wanted in ((special.gammainc, lower), (special.gammaincc, upper)):
            np.testing.assert_allclose(values(engine, function, a, x), wanted, 2e-13, 1e-280, err_msg=region)
            narrow = values(engine, function, a.astype(np.float32), x.astype(np.float32))
            near = region in ("usual", "near each other", "series of small exponents")
            assert not near or np.allclose(narrow, wanted, 2e-3, 1e-5), region


def test_incomplete_gamma_functions_at_their_ends(engine: Engine) -> None:
    inf, nan = math.inf, math.nan
    limits = [
        # a, x, P
        (0.0, 0.0, nan), (0.0, 2.0, 1.0), (0.0, inf, 1.0), (2.0, 0.0, 0.0), (2.0, inf, 1.0), (inf, 3.0, 0.0),
        (inf, inf, nan), (-1.0, 2.0, nan), (2.0, -1.0, nan), (nan, 1.0, nan), (1.0, nan, nan), (0.0, nan, nan),
        (1e308, 40.0, 0.0), (1e-310, 1.0, 1.0),
    ]  # fmt: skip
    a, x, wanted = np.array(limits).T
    np.testing.assert_allclose(values(engine, special.gammainc, a, x), wanted, 1e-14)
    np.testing.assert_allclose(values(engine, special.gammaincc, a, x), 1 - wanted, 1e-14, 1e-300)
    tensor = alpha.tensor([0.5, 2.0], dtype=alpha.float64, engine=engine)
    np.testing.assert_allclose(np.asarray(alpha.igamma(tensor, 1.0).to("cpu")), [math.erf(1.0), 1 - 2 / math.e], 1e-14)
    np.testing.assert_allclose(np.asarray(alpha.igammac(1.0, tensor).to("cpu")), np.exp([-0.5, -2.0]), 1e-14)
    written = tensor.clone().igamma_(1.0)
    np.testing.assert_array_equal(np.asarray(written.to("cpu")), np.asarray(tensor.igamma(1.0).to("cpu")))
    written = tensor.clone().igammac_(tensor)
    np.testing.assert_array_equal(np.asarray(written.to("cpu")), np.asarray(tensor.igammac(tensor).to("cpu")))


def test_bessel_functions_at_their_ends(engine: Engine) -> None:
    inf, nan = math.inf, math.nan
    x = np.array([0.0, -0.0, inf, -inf, nan, -1.0])
    j0, j1, ai = 0.7651976865579666, -0.44005058574493355, 0.5355608832923521
    limits: dict[str, list[float]] = {
        "bessel_j0": [1, 1, 0, 0, nan, j0],
        "bessel_j1": [0, -0.0, 0, 0, nan, j1],
        "bessel_y0": [-inf, -inf, 0, nan, nan, nan],
        "bessel_y1": [-inf, -inf, 0, nan, nan, nan],
        "modified_bessel_k0": [inf, inf, 0, nan, nan, nan],
        "modified_bessel_k1": [inf, inf, 0, nan, nan, nan],
        "scaled_modified_bessel_k0": [inf, inf, 0, nan, nan, nan],
        "scaled_modified_bessel_k1": [inf, inf, 0, nan, nan, nan],
        "spherical_bessel_j0": [1, 1, 0, 0, nan, math.sin(1)],
        "airy_ai": [0.3550280538878172, 0.3550280538878172, 0, 0, nan, ai],
    }
    for name, wanted in limits.items():
        found = values(engine, getattr(special, name), x)
        np.testing.assert_allclose(found, wanted, 4e-15, err_msg=name)
    assert np.signbit(values(engine, special.bessel_j1, x)[:2]).tolist() == [False, True]


GRADIENTS = [*WAVES, *(name for name in ABOVE_0 if name not in WAVES)]


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(engine: Engine, name: str) -> None:
    x = np.array([0.3, 1.4, 2.6, 5.0, 9.0]) if name != "airy_ai" else np.array([-6.0, -1.0, 0.5, 3.0])
    assert gradcheck(getattr(special, name), alpha.tensor(x, engine=engine, requires_grad=True))
    if name in ("bessel_j1", "spherical_bessel_j0"):
        at_0 = alpha.tensor([0.0, -0.4], dtype=alpha.float64, engine=engine, requires_grad=True)
        getattr(special, name)(at_0).sum().backward()
        assert at_0.grad is not None and at_0.grad[0].item() == (0.5 if name == "bessel_j1" else 0.0)


def test_gradients_of_incomplete_gamma_functions(engine: Engine) -> None:
    a = alpha.tensor([0.4, 1.0, 2.5, 50.0], dtype=alpha.float64, engine=engine)
    x = alpha.tensor([0.3, 1.2, 6.0, 45.0], dtype=alpha.float64, engine=engine, requires_grad=True)
    for function in (special.gammainc, special.gammaincc):
        assert gradcheck(lambda x, f=function: f(a, x), x)


POLYNOMIALS = [name for name in special.__all__ if "polynomial" in name]


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials_are_pytorchs(name: str) -> None:
    import torch

    x = np.concatenate([np.random.default_rng(0).uniform(-2, 2, 20), [1.0, -1.0, 0.0, 0.5]])
    orders = np.array([-2.0, -0.5, 0.0, 1.0, 2.0, 3.9, 7.0, 20.0])
    mine, theirs = getattr(special, name), getattr(torch.special, name)
    wanted = theirs(torch.tensor(x), torch.tensor(orders[:, None])).numpy()
    found = np.asarray(mine(alpha.tensor(x), alpha.tensor(orders[:, None])))
    np.testing.assert_allclose(found, wanted, 1e-12, 1e-12)
    for row, order in zip(wanted, orders, strict=True):
        np.testing.assert_allclose(np.asarray(mine(alpha.tensor(x), float(order))), row, 1e-12, 1e-12)
    np.testing.assert_allclose(
        np.asarray(mine(0.3, alpha.tensor(orders))), theirs(0.3, torch.tensor(orders)).numpy(), 1e-12, 1e-12
    )
    assert mine(alpha.tensor([1, 2]), 3).dtype == alpha.float32
    assert mine(alpha.zeros((0,)), alpha.zeros((0,))).shape == (0,)


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_gradients_of_polynomials(engine: Engine, name: str) -> None:
    x = alpha.tensor([-0.3, 0.4, 1.2], dtype=alpha.float64, engine=engine, requires_grad=True)
    orders = alpha.tensor([[0], [1], [4]], engine=engine)
    function = getattr(special, name)
    assert gradcheck(lambda x: function(x, orders), x)
    function(x, 0).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: special.gammainc(x, 1.0), r"\[gammainc\] expected an input that does not require grad"),
        (lambda x: alpha.igammac(x, x), r"\[igammac\] expected an input that does not require grad"),
        (lambda x: special.legendre_polynomial_p(x, x), "expected an order n that does not require grad"),
        (lambda x: special.legendre_polynomial_p(x, MOST + 1), "expected orders n <= 10000, got 10001.0"),
        (lambda x: special.legendre_polynomial_p(x, alpha.tensor([3, MOST + 1])), "expected orders n <= 10000"),
        (lambda x: special.legendre_polynomial_p(x, alpha.ones((3,))), "broadcast"),
        (lambda x: special.bessel_j0("x"), r"\[bessel_j0\]"),
    ],
)
def test_arguments_that_do_not_fit(call: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(AlphaError, match=message):
        call(alpha.tensor([1.0, 2.0], requires_grad=True))


@pytest.mark.slow
@pytest.mark.needs("mpmath")
def test_the_coefficients_are_those_that_fit_gives() -> None:
    for name, function in special_fit.polynomials().items():
        np.testing.assert_allclose(special_fit.fitted(function), getattr(special_coefficients, name), 1e-15, 1e-20)
    np.testing.assert_array_equal(special_fit.temme(), special_coefficients.TEMME)
