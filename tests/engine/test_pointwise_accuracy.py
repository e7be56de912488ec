"""The elementary functions of the CPU's loops: their errors in ulp over all exponents, and what they give at the ends.

Float32 is compared with NumPy's float64, float64 with NumPy's long double where that is wider, and with math.erf.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

import alpha
from alpha.expressions import fit, symbols
from alpha.expressions.writers import ERRORS
from tests.engine.test_isa import AVAILABLE, ROOT

Array = np.ndarray[Any, Any]
WIDE = np.finfo(np.longdouble).nmant > 60
COUNT = 1 << 17


def ours(name: str, *arrays: Array) -> Array:
    """The function by the CPU's loop."""
    if len(arrays) == 1:
        function = alpha.pointwise(lambda x: symbols.apply(name, x))
    else:
        function = alpha.pointwise(lambda x, y: symbols.apply(name, x, y))
    found: Array = function(*(alpha.tensor(x, engine="cpu") for x in arrays)).numpy()
    return found


def everywhere(rng: np.random.Generator, dtype: Any, count: int = COUNT) -> Array:
    """Numbers of all exponents, more of those in the middle, and the special ones."""
    integers = np.uint32 if dtype == np.float32 else np.uint64
    bits = rng.integers(0, np.iinfo(integers).max, count, dtype=integers, endpoint=True)
    middle = [rng.standard_normal(count) * scale for scale in (0.01, 0.3, 1, 6, 50, 400)]
    near_1 = 1 + rng.standard_normal(count) * 1e-3
    info = np.finfo(dtype)
    special = [0, 1, 2, 0.5, info.tiny, info.max, info.smallest_subnormal, 2 * info.smallest_subnormal, math.inf]
    with np.errstate(all="ignore"):
        found = np.concatenate([bits.view(dtype), *middle, near_1, special, np.negative(special), [math.nan]])
        return found.astype(dtype)


def _erf(x: Array) -> Array:
    if x.dtype != np.longdouble:
        return np.vectorize(math.erf, otypes=[np.float64])(x)
    size = np.minimum(np.abs(x), np.longdouble(7))
    values = [fit.erf(t) if t < 3 else 1 - fit.erfc(t) for t in size]
    return np.where(np.isnan(x), x, np.copysign(np.array(values), x))


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1) / (1 + small)


ORACLES: dict[str, Callable[..., Array]] = {
    "exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "tanh": np.tanh, "sigmoid": _sigmoid,
    "erf": _erf, "sin": np.sin, "cos": np.cos, "pow": np.power, "exp2": np.exp2, "log2": np.log2, "log10": np.log10,
    "tan": np.tan, "atan": np.arctan,
}  # fmt: skip


def exact(name: str, *arrays: Array) -> Array:
    """The function in more digits."""
    wide = np.float64 if arrays[0].dtype == np.float32 and name not in ("sin", "cos", "tan") else np.longdouble
    with np.errstate(all="ignore"):
        return ORACLES[name](*(x.astype(wide) for x in arrays))


def errors(found: Array, wanted: Array) -> Array:
    """The errors in units of the last place; infinite where one is NaN or infinite and the other is not."""
    info = np.finfo(found.dtype)
    with np.errstate(all="ignore"):
        rounded = wanted.astype(found.dtype)
        unit = np.spacing(np.abs(np.where(np.isfinite(rounded), rounded, info.max))).astype(wanted.dtype)
        error = np.abs(found.astype(wanted.dtype) - wanted) / unit
    # A number that is infinite when rounded, and the largest finite one, are neighbours.
    neighbours = np.isinf(rounded) & (np.abs(found) == info.max) & np.isfinite(wanted)
    same = (found == rounded) & ~np.isfinite(rounded) | np.isnan(found) & np.isnan(rounded)
    return np.where(
        same, 0, np.where(np.isnan(error) | (np.isinf(found) != np.isinf(rounded)) & ~neighbours, np.inf, error)
    )


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
def test_errors_are_within_the_stated_bounds(rng: np.random.Generator, name: str, dtype: Any) -> None:
    if dtype == np.float64 and not WIDE:
        pytest.skip("NumPy's long double is no wider than float64 here")
    count = 2000 if name == "erf" and dtype == np.float64 else COUNT
    arguments = [everywhere(rng, dtype, count)]
    if name == "pow":
        x, y = everywhere(rng, dtype), everywhere(rng, dtype)
        rng.shuffle(y)
        sized = np.exp(rng.uniform(-80, 80, COUNT)).astype(dtype)
        powers = (rng.uniform(-700, 700, COUNT) / np.log(sized.astype(np.float64))).astype(dtype)
        whole = rng.integers(-9, 9, COUNT).astype(dtype)
        negative = -np.exp(rng.uniform(-9, 9, COUNT)).astype(dtype)
        arguments = [np.concatenate([x, sized, negative]), np.concatenate([y, powers, whole])]
    found, wanted = ours(name, *arguments), exact(name, *arguments)
    error = errors(found, wanted)
    worst = int(np.argmax(error))
    bound = ERRORS[name][dtype == np.float64]
    at = [x[worst] for x in arguments]
    assert error[worst] <= bound, f"{error[worst]} ulp at {at}: {found[worst]} instead of {wanted[worst]}"
    # Zeros have the right sign, and what is odd is so to the bit.
    zero = wanted == 0
    assert (np.signbit(found[zero]) == np.signbit(wanted[zero])).all()
    if name in ("erf", "sin", "tan", "tanh", "atan"):
        assert (-ours(name, -arguments[0])).tobytes() == np.where(
            np.isnan(found), -ours(name, -arguments[0]), found
        ).tobytes()


def test_power_at_the_ends() -> None:
    special = [0.0, 0.5, 1.0, 2.0, 3.0, 1e30, math.inf, math.nan]
    both = np.array([*special, *[-x for x in special]])
    x, y = (grid.reshape(-1) for grid in np.meshgrid(both, both))
    for dtype in (np.float32, np.float64):
        a, b = x.astype(dtype), y.astype(dtype)
        with np.errstate(all="ignore"):
            wanted = np.power(a, b)
        np.testing.assert_allclose(ours("pow", a, b), wanted, rtol=4 * np.finfo(dtype).eps)


def test_the_normal_distribution(rng: np.random.Generator) -> None:
    """Near its formula everywhere, and to its size from -3 on; 0 and 1 at the ends, and never outside of them."""
    x = np.concatenate([np.linspace(-30, 30, COUNT), everywhere(rng, np.float32)]).astype(np.float32)
    found = ours("normal_cdf", x)
    wanted = np.array([math.erfc(-value / math.sqrt(2)) / 2 for value in x.astype(np.float64)])
    known = ~np.isnan(x)
    error = np.abs(found - wanted)[known]
    assert np.isnan(found[~known]).all() and error.max() < 1e-7
    near = x[known] >= -3
    assert (error[near] / wanted[known][near]).max() < 1e-6
    assert found[known].min() == 0 and found[known].max() == 1
    wide = x.astype(np.float64)
    np.testing.assert_allclose(ours("normal_cdf", wide)[known], wanted[known], rtol=0, atol=4e-16)


Interval = tuple[float, float]
SPECIAL: dict[str, tuple[Interval, ...]] = {
    "erfc": ((-6, 0.6), (0.4, 9)), "erfcx": ((-5, 5), (5, 1000)), "erfinv": ((-1, 1), (-1e-3, 1e-3), (0.999, 1)),
    "ndtri": ((0, 1), (1e-30, 1e-20), (0.49, 0.51)), "lgamma": ((0, 4), (0.99, 1.01), (1.99, 2.01), (4, 1e5), (-3, 0)),
    "digamma": ((0, 1.4), (1.5, 1e5), (-0.49, 0)), "i0e": ((-10, 10), (8, 700)), "i1e": ((-1e-3, 1e-3), (-10, 700)),
    "atan2": ((-3, 3),),
}  # fmt: skip
"""Intervals from which the arguments of special functions are drawn."""

CROSSING = {"ndtri": 0.5, "lgamma": 0.5, "digamma": 4.0}
"""Functions that cross 0: near it, errors are counted in units of the last place of numbers of their terms' size."""


def _exact_special(mpmath: Any, name: str, *arguments: float) -> Any:
    x = mpmath.mpf(arguments[0])
    if name == "ndtri":  # which mpmath has not: by the inverse of erfc where that is small
        target = 2 * min(x, 1 - x)
        start = float(fit.erfinv_of_logarithm(-np.log(np.longdouble(float(target * (2 - target))))) * float(1 - target))
        y = mpmath.findroot(lambda t: mpmath.log(mpmath.erfc(t)) - mpmath.log(target), start, tol=1e-50)
        return y * mpmath.sqrt(2) * (-1 if x < 0.5 else 1)
    functions = {
        "erfcx": lambda t: mpmath.exp(t * t) * mpmath.erfc(t),
        "lgamma": lambda t: mpmath.re(mpmath.loggamma(t)),
        "i0e": lambda t: mpmath.besseli(0, abs(t)) * mpmath.exp(-abs(t)),
        "i1e": lambda t: mpmath.besseli(1, t) * mpmath.exp(-abs(t)),
    }
    return functions.get(name, getattr(mpmath, name, None))(*map(mpmath.mpf, arguments))


@pytest.mark.needs("mpmath")
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", SPECIAL)
def test_special_functions_are_within_the_stated_bounds(rng: np.random.Generator, name: str, dtype: Any) -> None:
    mpmath: Any = pytest.importorskip("mpmath")
    for low, high in SPECIAL[name]:
        arguments = [rng.uniform(low, high, 60).astype(dtype) for _ in range(2 if name == "atan2" else 1)]
        found = ours(name, *arguments)
        with mpmath.workdps(40):
            wanted = [_exact_special(mpmath, name, *map(float, x)) for x in zip(*arguments, strict=True)]
            error = np.array([float(abs(mpmath.mpf(float(a)) - b)) for a, b in zip(found, wanted, strict=True)])
        size = np.abs(np.array([float(b) for b in wanted])).astype(dtype)
        unit = np.spacing(np.maximum(size, dtype(CROSSING.get(name, 0.0)))).astype(np.float64)
        bound = ERRORS.get(name, (1.0, 5.0))[dtype == np.float64]
        worst = int(np.argmax(error / unit))
        at = [x[worst] for x in arguments]
        assert error[worst] <= bound * unit[worst], f"{error[worst] / unit[worst]} ulp at {at}: {found[worst]}"


def exact_division(x: Array, y: Array) -> tuple[Array, Array]:
    """Quotients rounded down, as floats of the nearest whole numbers, and remainders, by whole numbers of any size."""
    quotients, rests = [], []
    for a, b in zip(x, y, strict=True):
        top, bottom = Fraction(float(a)), Fraction(float(b))
        quotients.append(top // bottom)
        rests.append(float(top - quotients[-1] * bottom))
    return np.array([float(q) for q in quotients]), np.array(rests)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
def test_remainders_are_exact(rng: np.random.Generator, dtype: Any) -> None:
    """However many digits the quotient has; where the signs differ the remainder's sum with the divisor is rounded."""
    x, y = everywhere(rng, dtype, 3000)[:3000], everywhere(rng, dtype, 3000)[:3000]
    near = rng.standard_normal(2000).astype(dtype)
    whole = (near * rng.integers(1, 1 << 20, 2000)).astype(dtype)
    x, y = np.concatenate([x, whole]), np.concatenate([y, near])
    if dtype == np.float64:
        x, y = np.clip(x, -1e150, 1e150), np.where(np.abs(y) < 1e-150, dtype(1e-150), y)
    usual = np.isfinite(x) & np.isfinite(y) & (y != 0)
    x, y = x[usual], y[usual]
    quotients, rests = exact_division(x, y)
    np.testing.assert_array_equal(ours("remainder", x, y), rests.astype(dtype))
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(ours("floor_divide", x, y), quotients.astype(dtype), rtol=2 * np.finfo(dtype).eps)
    small = np.abs(quotients) < 2.0**20
    np.testing.assert_array_equal(ours("floor_divide", x, y)[small], quotients[small])


DIGEST = "33e55b58ce7999d8ac65f452bd3635c30e124cb507d2617bfbaad837d5cbc924"
"""A digest of all functions' bits for the arguments below, on any processor with fused multiply-adds."""

BITS = """
import hashlib
import numpy as np
from tests.engine.test_pointwise_accuracy import ORACLES, ours
digest = hashlib.sha256()
for dtype, integers in ((np.float32, np.uint32), (np.float64, np.uint64)):
    count = np.arange(10_007, dtype=np.uint64)
    x = (count * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(64 - 8 * dtype().itemsize)).astype(integers).view(dtype)
    for name in ORACLES:
        found = ours(name, abs(x), x[::-1].copy()) if name == "pow" else ours(name, x)
        digest.update(np.where(np.isnan(found), dtype(0), found).tobytes())
print(digest.hexdigest())
"""


@pytest.mark.slow
@pytest.mark.parametrize("path", [path.name for path in AVAILABLE])
def test_the_bits_are_the_same_on_every_path_and_processor(path: str) -> None:
    if not llvm.get_host_cpu_features().get("fma"):
        pytest.skip("this processor multiplies and adds in two roundings")
    environment = {**os.environ, "ALPHA_CPU_ISA": path, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-c", BITS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.strip() == DIGEST, done.stderr


def test_the_coefficients_are_those_that_fit_gives() -> None:
    from alpha.expressions import coefficients

    if not WIDE:
        pytest.skip("NumPy's long double is no wider than float64 here")
    for name, (function, low, high, bits, degree) in fit.POLYNOMIALS.items():
        number = np.float32 if bits == 32 else np.float64
        found = [float(number(c)) for c in fit.fitted(function, low, high, degree)]
        # Their values: the last ones, which are small, depend on the last digits of the platform's long double.
        places = np.linspace(float(low), float(high), 50)
        values = [np.polynomial.polynomial.polyval(places, c) for c in (found, getattr(coefficients, name))]
        np.testing.assert_allclose(*values, rtol=8 * np.finfo(number).eps)
